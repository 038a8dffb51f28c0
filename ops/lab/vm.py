"""Lab hosts with a kernel of their own: virtual machines under QEMU's software emulation, on the lab's bridge, from the layers that the other hosts have.

A VM boots Debian's cloud kernel. Its root is an overlay as on the other hosts: the Debian tree, the kernel's modules and the lab's layers are read-only
erofs images, and what the host writes lies in root.img, an ext4 of its own; disk.img takes encrypted volumes. A swtpm process is its TPM 2.0. Commands get
in by virtio-serial ports (vm_port.py), which no fence of the product touches, because they are no network. KVM is not used: Debian's kernel hangs under it
on some machines that offer it, and a test must mean the same everywhere.
"""
import fcntl
import os
import pathlib
import shutil
import stat
import time

import vm_channel
from common import BASE, LabError, call, read_text, say, write_file

PORTS = 6                                         # commands at once in one VM
MEMORY_MB = 768
# What it takes to reach the root; everything else is loaded by the guest's own kernel when it is asked for.
MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "virtio_console", "virtio_rng", "erofs", "overlay", "ext4")
PACKAGES = ("kmod",)                              # what a machine needs and a lab host on a shared kernel does not; their libraries are in the tree
INIT = """#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs devtmpfs /dev
for module in {modules}; do insmod /modules/$module.ko || echo "$module does not load"; done
mount -t erofs -o ro /dev/vda /tree && mount -t erofs -o ro /dev/vdb /kernel && mount -t erofs -o ro /dev/vdc /site && mount -t ext4 /dev/vdd /rw || poweroff -f
mkdir -p /rw/upper /rw/work
mount -t overlay overlay -o lowerdir=/site/common:/site/stage:/kernel:/tree,upperdir=/rw/upper,workdir=/rw/work /new || poweroff -f
mkdir -p /new/var/lib/enclave/disk /new/srv/enclave-shared
if [ -e /dev/vde ]; then mount -t ext4 -o nosuid,nodev /dev/vde /new/var/lib/enclave/disk; fi
if [ -e /dev/vdf ]; then mount -t ext4 -o nosuid,nodev /dev/vdf /new/srv/enclave-shared; fi
mount --move /dev /new/dev; umount /sys; umount /proc
exec switch_root /new /lib/systemd/systemd
"""
NETWORK = """[Unit]
Description=Network of a lab host
DefaultDependencies=no
Wants=network-pre.target
After=network-pre.target
Before=network.target shutdown.target
Conflicts=shutdown.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -ec 'ip link set lo up; ip addr replace {ipv4}/24 brd + dev eth0; ip addr replace {ipv6}/64 dev eth0 nodad; ip link set eth0 up'
[Install]
WantedBy=multi-user.target
"""
PORT = """[Unit]
Description=The lab's way in
DefaultDependencies=no
[Service]
ExecStart=/usr/bin/python3 -B /usr/local/lib/lab/vm_port.py
Restart=always
[Install]
WantedBy=sysinit.target
"""


# --- what all VMs of this machine share ---------------------------------------------------------------------------------------

def check():
    """VMs need programs that the other hosts do not."""
    lacking = [p for p in ("qemu-system-x86_64", "swtpm", "mkfs.erofs", "busybox", "depmod", "cpio") if not shutil.which(p)]
    if lacking:
        raise LabError(f"no {', '.join(lacking)}: run ops/packages/install vm")


def kernel():
    """The folder of the newest Debian cloud kernel: vmlinuz, initrd, modules.img. Made once for a version."""
    with open(BASE / "image.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = sorted(BASE.glob("kernel-*/.complete"))
        return made[-1].parent if made else _make_kernel()


def _make_kernel():
    start, work = time.monotonic(), BASE / "kernel.new"
    shutil.rmtree(work, ignore_errors=True)
    (work / "debs").mkdir(parents=True)
    wanted = call("apt-cache", "depends", "linux-image-cloud-amd64").split("Depends: ")[1].split()[0]
    call("sh", "-ec", f"cd {work}/debs; apt-get -q download {wanted} {' '.join(PACKAGES)}", timeout=300)
    for deb in (work / "debs").glob("*.deb"):
        call("dpkg-deb", "-x", deb, work / "files")
    version = wanted.removeprefix("linux-image-")
    shutil.copy(work / f"files/boot/vmlinuz-{version}", work / "vmlinuz")
    call("depmod", "-b", work / "files", version)
    _initrd(work, work / "files/lib/modules" / version)
    # The tree has /lib and /sbin as links into /usr; a folder of that name in a layer above would hide them.
    for name in ("lib", "sbin", "bin"):
        if (work / "files" / name).exists():
            call("cp", "-a", f"{work}/files/{name}/.", _folder(work / "layer/usr" / name))
    call("mkfs.erofs", work / "modules.img", work / "layer", merge=True)
    for part in ("debs", "files", "layer", "initrd.d"):
        shutil.rmtree(work / part)
    (work / ".complete").touch()
    target = BASE / f"kernel-{version}"
    shutil.rmtree(target, ignore_errors=True)
    work.rename(target)
    say(f"made {target} in {time.monotonic() - start:.0f} s")
    return target


def _folder(path):
    path.mkdir(parents=True, exist_ok=True)
    return path


def _initrd(work, modules):
    root = work / "initrd.d"
    for name in ("bin", "modules", "proc", "sys", "dev", "tree", "kernel", "site", "rw", "new"):
        _folder(root / name)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    needs = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        file, _, others = line.partition(":")
        needs[pathlib.Path(file).stem.replace("-", "_")] = [*reversed(others.split()), file]
    files = list(dict.fromkeys(file for name in MODULES for file in needs.get(name, ())))   # what is built in has no line
    for file in files:
        shutil.copy(modules / file, root / "modules")
    write_file(root / "init", INIT.format(modules=" ".join(pathlib.Path(f).stem for f in files)), 0o755)
    call("sh", "-ec", f"cd {root}; find . | cpio -o -H newc --quiet | gzip -1 > {work}/initrd")


def tree_image(tree):
    """The Debian tree as a read-only file system; made once for a tree, beside it."""
    image = pathlib.Path(f"{tree}.erofs")
    with open(BASE / "image.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not image.exists():
            start = time.monotonic()
            for old in BASE.glob("tree-*.erofs"):
                if not old.with_suffix("").exists():
                    old.unlink()
            call("mkfs.erofs", f"{image}.new", tree, merge=True, timeout=600)
            os.rename(f"{image}.new", image)
            say(f"made {image} in {time.monotonic() - start:.0f} s")
    return image


# --- one lab, one host ---------------------------------------------------------------------------------------------------------

def layers_image(lab):
    """What all hosts of a lab have above the tree: the product and the site's files."""
    image, work = lab.dir / "layers.img", lab.dir / "layers.new"
    if not image.exists():
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        for name in ("common", "stage"):
            call("cp", "-a", lab.dir / name, work / name)
        call("mkfs.erofs", f"{image}.new", work, merge=True)
        shutil.rmtree(work)
        os.rename(f"{image}.new", image)
    return image


def provision(lab, host):
    """What a VM has in its own layer beside what every lab host has."""
    upper = lab.upper(host.name)
    source = pathlib.Path(__file__).with_name("vm_port.py")
    write_file(upper / "usr/local/lib/lab/vm_port.py", source.read_text())
    for name, text, target in (("lab-network", NETWORK.format(ipv4=host.ipv4, ipv6=host.ipv6), "multi-user"), ("lab-port", PORT, "sysinit")):
        write_file(upper / f"etc/systemd/system/{name}.service", text)
        link = _folder(upper / f"etc/systemd/system/{target}.target.wants") / f"{name}.service"
        link.unlink(missing_ok=True)
        link.symlink_to(f"/etc/systemd/system/{name}.service")
    # The site's shared home is a folder of this machine; a VM has none, and its users have the empty homes of the layer below.
    (upper / "etc/fstab").unlink(missing_ok=True)


def _root_image(lab, name):
    """The writable layer as a disk; from then on the folder that it was made from is only a copy of its beginning."""
    image, seed = lab.base(name) / "root.img", lab.base(name) / "seed"
    if image.exists():
        return image
    seed.mkdir(exist_ok=True)
    os.rename(lab.upper(name), seed / "upper")
    with open(f"{image}.new", "wb") as f:
        f.truncate(4 << 30)
    call("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard", "-d", seed, f"{image}.new")
    os.rename(seed / "upper", lab.upper(name))
    seed.rmdir()
    os.rename(f"{image}.new", image)
    return image


def _drives(lab, name):
    at = kernel()
    base = lab.base(name)
    drives = [(tree_image(lab.record["tree"]), True), (at / "modules.img", True), (layers_image(lab), True), (_root_image(lab, name), False)]
    drives += [(base / image, False) for image in ("disk.img", "shared.img") if (base / image).exists()]
    words = []
    for n, (path, fixed) in enumerate(drives):
        words += ["-drive", f"if=none,id=d{n},format=raw,file={path}" + (",readonly=on" if fixed else ",discard=unmap"),
                  "-device", f"virtio-blk-pci,drive=d{n}"]
    return words


def command(lab, host):
    """QEMU's words for a host. One virtual core; no device that is not named here."""
    base, at = lab.base(host.name), kernel()
    words = ["qemu-system-x86_64", "-name", host.name, "-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35", "-accel", "tcg", "-cpu", "max",
             "-smp", "1", "-m", str(MEMORY_MB), "-kernel", at / "vmlinuz", "-initrd", at / "initrd",
             "-append", "console=ttyS0 quiet net.ifnames=0 panic=-1 random.trust_cpu=on systemd.unit=multi-user.target systemd.show_status=no",
             "-serial", f"file:{base}/console.log", "-device", "virtio-rng-pci", *_drives(lab, host.name),
             "-netdev", f"tap,id=n0,ifname=v-{host.name},script=no,downscript=no", "-device", f"virtio-net-pci,netdev=n0,mac={host.mac}",
             "-chardev", f"socket,id=tpm,path={base}/tpm.sock", "-tpmdev", "emulator,id=tpm0,chardev=tpm", "-device", "tpm-tis,tpmdev=tpm0",
             "-device", "virtio-serial-pci"]
    for n in range(PORTS):
        words += ["-chardev", f"socket,id=p{n},path={base}/port-{n}.sock,server=on,wait=off", "-device", f"virtserialport,chardev=p{n},name=lab.{n}"]
    return words


def boot(lab, host):
    """Starts a VM that is down; returns at once. Its process is QEMU's, with a tap on the lab's bridge and a TPM beside it."""
    base = lab.base(host.name)
    base.mkdir(parents=True, exist_ok=True)
    _folder(base / "tpm")
    if host.role in ("compute", "service"):
        lab.disk(base / "disk.img")
        lab.disk(base / "shared.img")
    port = f"v-{host.name}"
    script = (f"ip link del {port} 2>/dev/null || true; ip tuntap add dev {port} mode tap; ip link set {port} master br0 up\n"
              f"[ ! -e {base}/cut.nft ] || nft -f {base}/cut.nft\n"
              f"rm -f {base}/*.sock\n"
              f"swtpm socket --tpm2 --tpmstate dir={base}/tpm --ctrl type=unixio,path={base}/tpm.sock --terminate &\n"
              f"for i in $(seq 200); do [ ! -S {base}/tpm.sock ] || break; sleep 0.02; done\n"
              'exec "$@"')
    pid = lab.spawn(host.name, ["nsenter", "-t", lab.alive("holder"), "-m", "-n", "--", "bash", "-ec", script, "vm", *command(lab, host)], base / "qemu.log")
    lab.remember(host.name, pid)


def answers(lab, name):
    """Whether a command can be run in the VM now."""
    try:
        return lab.run(name, "test", "-S", "/run/systemd/private", timeout=10) == ""
    except LabError:
        return False


def put(lab, name, path, data, mode, owner=None):
    """Writes a file on a running VM; complete when it appears."""
    script = 'cat > "$1.new"; chmod "$2" "$1.new"; [ -z "$3" ] || chown "$3" "$1.new"; mv "$1.new" "$1"'
    lab.run(name, "sh", "-ec", script, "put", f"/{path.lstrip('/')}", f"{stat.S_IMODE(mode):o}", owner or "", stdin=data)


def read(lab, name, path):
    """A file's text on a running VM, "" when there is none."""
    return lab.run(name, "cat", f"/{path.lstrip('/')}", check=False)


def ports(lab, name):
    return [lab.base(name) / f"port-{n}.sock" for n in range(PORTS)]


def call_in(lab, name, words, env, timeout, stdin=None, check=True):
    """As common.call, in a VM."""
    status, out, err = vm_channel.capture(ports(lab, name), words, env, timeout, stdin)
    if check and status:
        raise LabError(f"{' '.join(map(str, words[:8]))} ended with {status}: {(err or out).strip()[-2000:]}")
    return out


def log_of(lab, name):
    return read_text(lab.base(name) / "console.log")[-600:] + read_text(lab.base(name) / "qemu.log")[-600:]
