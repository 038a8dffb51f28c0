"""The Debian tree under every lab host: made once, kept until a package list changes.

A tree is never changed in place, because running labs have it as an overlay's lower layer: a new list makes a new tree
beside it, and `tree-SUITE` is a link to the newest. Trees that no lab uses any more are removed.
"""
import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import time

import apt
from common import BASE, LabError, call, read_list, read_text, say, write_file

# Raised when the steps below change, so that old trees are not taken for new ones.
VERSION = 3
POLICY = "#!/bin/sh\nexit 101\n"
# MariaDB writes these files when it is installed; every lab copies them up at its first write, so they must be small.
MARIADB = """[mysqld]
skip-networking
innodb_log_file_size = 8M
innodb_buffer_pool_size = 32M
innodb_flush_log_at_trx_commit = 2
innodb_lock_wait_timeout = 900
performance_schema = off
"""
# Units of the tree that a host must not start by itself. Each role enables what it runs (provision.py).
# systemd-sysctl writes kernel-wide values, timesyncd the clock: both belong to the machine, not to a lab host.
MASKED = """systemd-sysctl.service systemd-timesyncd.service systemd-udevd.service systemd-udev-trigger.service systemd-modules-load.service
systemd-binfmt.service systemd-hwdb-update.service systemd-journal-catalog-update.service systemd-update-done.service ldconfig.service systemd-networkd.service
systemd-pstore.service console-getty.service getty.target e2scrub_reap.service e2scrub_all.timer fstrim.timer apt-daily.timer
apt-daily-upgrade.timer dpkg-db-backup.timer logrotate.timer man-db.timer proc-sys-fs-binfmt_misc.automount sys-kernel-debug.mount
sys-kernel-tracing.mount sys-kernel-config.mount sys-fs-fuse-connections.mount dev-hugepages.mount dev-mqueue.mount""".split()
ENABLED_BY_PACKAGES = ["mariadb", "munge", "slurmctld", "slurmd", "slurmdbd", "ssh", "nftables", "stunnel4", "rsyslog", "cron", "e2scrub_reap"]


def key(suite):
    """Names the content of a tree: package lists, suite and the version of this file's steps."""
    packages = read_list("lab", "run")
    return hashlib.sha256(f"{VERSION} {suite} {' '.join(packages)}".encode()).hexdigest()[:10]


def path(suite):
    return BASE / f"tree-{suite}-{key(suite)}"


def ensure(suite="bookworm"):
    """Returns the tree of a suite and makes it first if there is none for these package lists."""
    tree = path(suite)
    if (tree / ".complete").exists():
        return tree
    BASE.mkdir(parents=True, exist_ok=True)
    with open(BASE / "image.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (tree / ".complete").exists():
            _make(suite, tree)
            _prune(suite, tree)
    return tree


def _make(suite, tree):
    start = time.monotonic()
    work = tree.with_name(tree.name + ".new")
    _remove(work)
    older = _smaller(suite)
    if older:
        say(f"starting from {older.name}")
        call("cp", "-a", "--reflink=auto", older, work, timeout=600)
        (work / ".complete").unlink()
    else:
        _bootstrap(suite, work)
    try:
        _install(suite, work)
        _settle(work)
    except BaseException:
        _remove(work)
        raise
    write_file(work / ".complete", f"{VERSION} " + " ".join(read_list("lab", "run")) + "\n")
    _remove(tree)
    work.rename(tree)
    link = BASE / f"tree-{suite}"
    temp = BASE / f".tree-{suite}.link"
    temp.unlink(missing_ok=True)
    temp.symlink_to(tree.name)
    temp.rename(link)
    say(f"made {tree} in {time.monotonic() - start:.0f} s")


def _smaller(suite):
    """The newest finished tree that only lacks packages: adding them is quicker than starting again."""
    wanted = set(read_list("lab", "run"))
    for tree in sorted(BASE.glob(f"tree-{suite}-*/.complete"), key=lambda p: p.stat().st_mtime, reverse=True):
        version, *packages = read_text(tree).split() or ["0"]
        if version == str(VERSION) and set(packages) < wanted:
            return tree.parent
    return None


def _bootstrap(suite, work):
    """A minimal Debian, without documentation: 40 s. Kept as an archive, since package lists change more often."""
    seed = BASE / f"seed-{suite}.tar"
    if not seed.exists():
        say(f"bootstrapping Debian {suite}")
        raw = BASE / f"seed-{suite}.new"
        _remove(raw)
        cache = BASE / "debs"
        cache.mkdir(exist_ok=True)
        call("debootstrap", "--variant=minbase", "--include=systemd-sysv,dbus", f"--cache-dir={cache}", suite, raw, apt.mirror(suite), timeout=900, merge=True)
        call("tar", "-C", raw, "--one-file-system", "-cf", f"{seed}.new", ".")
        os.rename(f"{seed}.new", seed)
        _remove(raw)
    work.mkdir(mode=0o755)
    call("tar", "-C", work, "-xpf", seed)


@contextlib.contextmanager
def _entered(work):
    """proc, dev and the machine's name resolution, for maintainer scripts and apt, undone afterwards."""
    call("mount", "-t", "proc", "proc", work / "proc")
    call("mount", "--bind", "/dev", work / "dev")
    cache = BASE / "debs"
    cache.mkdir(exist_ok=True)
    call("mount", "--bind", cache, work / "var/cache/apt/archives")
    saved = {}
    for name in ("resolv.conf", "hosts"):
        source = pathlib.Path("/etc", name)
        if source.exists():
            saved[name] = work / "etc" / name
            saved[name].unlink(missing_ok=True)
            shutil.copyfile(source, saved[name])
    try:
        yield
    finally:
        for mounted in ("var/cache/apt/archives", "dev", "proc"):
            call("umount", "-l", work / mounted)
        for copy in saved.values():
            copy.unlink(missing_ok=True)


def _install(suite, work):
    write_file(work / "usr/sbin/policy-rc.d", POLICY, 0o755)
    write_file(work / "etc/dpkg/dpkg.cfg.d/lab", "path-exclude=/usr/share/doc/*\npath-exclude=/usr/share/man/*\n"
               "path-exclude=/usr/share/locale/*\nforce-unsafe-io\n")
    write_file(work / "etc/apt/sources.list", apt.sources_text(suite))
    write_file(work / "etc/mysql/mariadb.conf.d/90-lab.cnf", MARIADB)
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    options = ["-o", "Acquire::Retries=3", "-o", "APT::Sandbox::User=root", "-o", "APT::Keep-Downloaded-Packages=true", *apt.proxy_options()]
    say(f"installing {len(read_list('lab', 'run'))} packages and what they need into {work.name}")
    with _entered(work):
        call("chroot", work, "apt-get", *options, "update", env=env, timeout=600, merge=True)
        call("chroot", work, "apt-get", *options, "install", "-y", "--no-install-recommends", *read_list("lab", "run"), env=env, timeout=1800, merge=True)


def _settle(work):
    """Nothing starts by itself, nothing is unique: identities are each host's own (provision.py)."""
    (work / "usr/sbin/policy-rc.d").unlink()
    units = work / "etc/systemd/system"
    for wants in units.glob("*.wants"):
        for link in wants.iterdir():
            if link.name.rsplit(".", 1)[0] in ENABLED_BY_PACKAGES:
                link.unlink()
    for name in MASKED:
        link = units / name
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    for old in [*work.glob("etc/ssh/ssh_host_*"), work / "etc/machine-id", work / "etc/munge/munge.key", work / "var/lib/dbus/machine-id", work / "etc/hostname"]:
        old.unlink(missing_ok=True)
    for index in (work / "var/lib/apt/lists").glob("*_*"):
        index.unlink()


def _in_use(tree):
    for info in pathlib.Path("/proc").glob("[0-9]*/mountinfo"):
        with contextlib.suppress(OSError):
            if str(tree) in info.read_text():
                return True
    return False


def _prune(suite, keep):
    for old in BASE.glob(f"tree-{suite}-*"):
        if old != keep and not old.name.endswith(".new") and not _in_use(old):
            _remove(old)


def _remove(tree):
    if not tree.exists():
        return
    for mounted in ("var/cache/apt/archives", "dev", "proc"):
        call("umount", "-l", tree / mounted, check=False)
    with open("/proc/self/mountinfo") as f:
        if any(line.split()[4].startswith(f"{tree}/") for line in f):
            raise LabError(f"something is still mounted under {tree}")
    shutil.rmtree(tree)
