"""One program in a virtual machine with a kernel of its own (QEMU's software emulation): for what this machine's kernel may not have.

The root file system is an initramfs: the program and what it links to, a few tools, and the kernel's modules. Nothing of this machine is shared
with it. The kernel is Debian's linux-image-cloud-amd64, fetched with apt once (or unpacked at $ENCLAVE_VM_KERNEL) and never installed here.
"""
import gzip
import os
import pathlib
import re
import shutil
import subprocess

CACHE = pathlib.Path("/var/lib/enclave-lab/machine")
MODULES = ("loop", "xts", "aesni-intel", "dm-mod", "dm-crypt")
TOOLS = ("/usr/sbin/mkfs.ext4", "/sbin/losetup")
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
for m in $(cat /modules/order); do insmod /modules/$m || echo "no module $m"; done
chmod 755 /; mkdir -p /t; mount -t tmpfs -o size=1500m,mode=755 t /t
mkdir -p /t/disk /t/shared /t/run /t/points /run/cryptsetup /var/tmp /var/spool/slurmd /var/spool/slurmctld /tmp
head -c 64 /dev/urandom > /t/key; truncate -s 4M /t/hand.header
ifconfig lo up 2>/dev/null
%s
status=$?; dmesg | grep "audit.*syscall" | tail -20; echo "status $status"
poweroff -f
"""


class NoMachine(Exception):
    """This machine cannot start one; the text says why."""


def fetch(package):
    """A Debian package, unpacked under the cache; returns its folder."""
    folder = CACHE / package
    if folder.is_dir():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    new = CACHE / f"{package}.new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    got = subprocess.run(["apt-get", "download", package], cwd=new, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    debs = list(new.glob("*.deb"))
    if got.returncode or len(debs) != 1:
        raise NoMachine(f"cannot fetch {package}: {got.stderr.strip()[-200:]}")
    subprocess.run(["dpkg", "-x", str(debs[0]), str(new)], check=True)
    debs[0].unlink()
    new.rename(folder)
    return folder


def kernel():
    """Folder with boot/vmlinuz-* and lib/modules."""
    given = os.environ.get("ENCLAVE_VM_KERNEL")
    if given:
        return pathlib.Path(given)
    shown = subprocess.run(["apt-cache", "depends", "linux-image-cloud-amd64"], capture_output=True, text=True, timeout=60).stdout
    found = re.search(r"Depends: (linux-image-\S+)", shown)
    if not found:
        raise NoMachine("apt knows no linux-image-cloud-amd64")
    return fetch(found.group(1))


def libraries(program):
    """Libraries (and the loader) that a program links to."""
    text = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    return re.findall(r"(?:=> )?(/\S+) \(0x", text)


def put(root, source, target=None):
    to = root / (target or source).lstrip("/")
    if not to.exists():
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, to)


def put_modules(root, tree):
    """The modules in the order in which they load."""
    order = []

    def add(name):
        found = [p for p in tree.glob("lib/modules/*/kernel/**/*.ko") if p.stem.replace("_", "-") == name.replace("_", "-")]
        if not found:
            return  # built in
        needs = subprocess.run(["modinfo", "-F", "depends", str(found[0])], capture_output=True, text=True, check=True).stdout.strip()
        for other in filter(None, needs.split(",")):
            add(other)
        if found[0].name not in order:
            order.append(found[0].name)
            put(root, str(found[0]), f"/modules/{found[0].name}")

    for module in MODULES:
        add(module)
    (root / "modules/order").write_text("\n".join(order) + "\n")


def make_root(root, program, tree, tools):
    for folder in ("proc", "sys", "dev", "bin", "sbin", "usr", "etc", "run", "modules"):
        (root / folder).mkdir(parents=True)
    put(root, "/bin/busybox")
    for source, target in [(str(program), "/program"), *((t, t) for t in TOOLS), *tools]:
        put(root, source, target)
        for library in libraries(source):
            put(root, library)
    put_modules(root, tree)


def run(folder, program, *words, timeout=800):
    """Runs `program words…` as root in a fresh machine. Returns (exit status, all it printed)."""
    for need in ("qemu-system-x86_64", "cpio", "busybox", "modinfo"):
        if not shutil.which(need):
            raise NoMachine(f"there is no {need} here")
    tree = kernel()
    root, image = folder / "root", folder / "initrd.gz"
    hand = fetch("cryptsetup-bin")
    make_root(root, program, tree, [(str(next(hand.glob("**/sbin/cryptsetup"))), "/sbin/cryptsetup")])
    init = root / "init"
    init.write_text(INIT % " ".join(["/program", *words]))
    init.chmod(0o755)
    names = "\0".join(str(p.relative_to(root)) for p in sorted(root.rglob("*")))
    packed = subprocess.run(["cpio", "-o", "-0", "-H", "newc", "--quiet"], cwd=root, input=names.encode(), capture_output=True, check=True).stdout
    image.write_bytes(gzip.compress(packed, 1))
    done = subprocess.run(["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "2048", "-smp", "2", "-nographic", "-no-reboot", "-nic", "none",
                           "-kernel", str(next(tree.glob("boot/vmlinuz-*"))), "-initrd", str(image),
                           "-append", "console=ttyS0 quiet panic=-1 mitigations=off"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=timeout)
    said = done.stdout.replace("\r", "")
    status = re.search(r"^status (\d+)$", said, re.M)
    if not status:
        raise AssertionError(f"the machine ended without a status:\n{said[-4000:]}{done.stderr[-1000:]}")
    return int(status.group(1)), said
