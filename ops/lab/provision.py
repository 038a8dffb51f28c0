"""What each host holds before it boots, and what is done once all of them are up. Two ordered tables; a row is one small function.

BEFORE rows write into the hosts' writable layers (lab.upper(name)); the layer below them, lab.dir/common, is the same for all hosts and made once.
AFTER rows run against booted hosts. Each row must be idempotent: `lab up` on a lab that is up runs AFTER again.
"""
import base64
import hashlib
import hmac
import os
import pathlib
import secrets
import shutil
import struct
import time

import product
import slurm
from common import REPO, LabError, call, read_text, say, write_file
from hosts import host as host_named, plan
from product import ACCOUNTS

# Units that a role starts at boot, besides what the tree itself starts.
UNITS = {
    "head": ["mariadb", "munge", "slurmdbd", "slurmctld", "ssh"],
    "login": ["munge", "ssh"],
    "controller": ["munge"],
    "compute": ["munge", "slurmd", "ssh"],
}
# The site's home file system is on these; a service host knows no site user until an enclave brings its members.
SITE_HOME = {"login", "compute"}
NO_ACCOUNTS = {"service", "witness"}


def prepare(lab):
    """The layers below every host's own: `stage`, the product as it would be installed, and `common`, the site's doing."""
    if (lab.dir / "common/.made").exists():
        return
    for folder in ("common", "common.work", "prep", "keys/hosts", "otp", "home", "stage"):
        (lab.dir / folder).mkdir(parents=True, exist_ok=True)
    os.chmod(lab.dir / "keys", 0o700)
    os.chmod(lab.dir / "otp", 0o700)
    stage(lab.dir / "stage", lab.build)
    _users(lab)
    _site_files(lab)
    _identities(lab)
    _homes(lab)
    product.transport(lab)
    (lab.dir / "common/.made").touch()


def stage(target, build):
    """Installs a CMake build tree below target; without a build only what the lab needs from the source tree."""
    if build:
        call("cmake", "--install", build, "--prefix", "/usr", env={**os.environ, "DESTDIR": str(target)})
    users = target / "usr/lib/sysusers.d/enclave.conf"
    if not users.exists():
        write_file(users, (REPO / "ops/systemd/enclave.sysusers.conf").read_text())
    for name in ("bin", "sbin", "lib", "lib64"):
        if (target / name).exists():
            raise LabError(f"the build installs into /{name}; that would hide the tree's link to usr/{name}")


def _users(lab):
    tree, etc = pathlib.Path(lab.record["tree"]), lab.dir / "common/etc"
    lines = {"passwd": [], "group": [], "shadow": [], "gshadow": []}
    for user, uid in ACCOUNTS.items():
        lines["passwd"].append(f"{user}:x:{uid}:{uid}:{user}:/home/{user}:/bin/bash")
        lines["group"].append(f"{user}:x:{uid}:")
        lines["shadow"].append(f"{user}:*:19700:0:99999:7:::")
        lines["gshadow"].append(f"{user}:*::")
    for name, added in lines.items():
        mode = (tree / "etc" / name).stat().st_mode & 0o777
        write_file(etc / name, (tree / "etc" / name).read_text() + "\n".join(added) + "\n", mode)
        shutil.copystat(tree / "etc" / name, etc / name)
        os.chown(etc / name, 0, (tree / "etc" / name).stat().st_gid)


def _site_files(lab):
    etc = lab.dir / "common/etc"
    names = [host_named(n) for n in plan(lab.record["nodes"], lab.record["services"])]
    table = "127.0.0.1 localhost\n::1 localhost\n" + "".join(f"{h.ipv4} {h.name}\n{h.ipv6} {h.name}\n" for h in names)
    write_file(etc / "hosts", table)
    services = (pathlib.Path(lab.record["tree"]) / "etc/nsswitch.conf").read_text()
    for kind in ("passwd", "group", "shadow"):
        services = "\n".join(f"{kind}: files extrausers systemd" if line.startswith(f"{kind}:") else line for line in services.splitlines())
    write_file(etc / "nsswitch.conf", services + "\n")
    write_file(etc / "ssh/sshd_config.d/lab.conf", "HostKey /etc/ssh/ssh_host_ed25519_key\nUseDNS no\n")
    write_file(etc / "ssh/ssh_config.d/lab.conf", "Host *\n  GSSAPIAuthentication no\n  ConnectTimeout 5\n")
    write_file(etc / "systemd/journald.conf.d/lab.conf", "[Journal]\nStorage=persistent\nSystemMaxUse=64M\nRateLimitIntervalSec=0\n")
    write_file(etc / "systemd/system.conf.d/lab.conf", "[Manager]\nDefaultTimeoutStopSec=10s\nDefaultTimeoutStartSec=30s\n")


def _identities(lab):
    """Keys of hosts and users, and system users: made by the tree's own programs, in an overlay whose upper layer is `common`."""
    owners = ["root", *ACCOUNTS]
    names = plan(lab.record["nodes"], lab.record["services"])
    prep, tree = lab.dir / "prep", lab.record["tree"]
    write_file(lab.dir / "keys/make", "set -e\nsystemd-sysusers\nldconfig\n" + "".join(
        f"[ -e /mnt/{path} ] || ssh-keygen -q -t ed25519 -N '' -C {comment} -f /mnt/{path}\n"
        for path, comment in [*((u, u) for u in owners), *((f"hosts/{n}", n) for n in names)]))
    lab.inside("bash", "-ec", f"mount -t overlay overlay -o lowerdir={lab.dir}/stage:{tree},upperdir={lab.dir}/common,workdir={lab.dir}/common.work {prep}\n"
               f"mount --bind {lab.dir}/keys {prep}/mnt\nmount --bind /dev {prep}/dev\nchroot {prep} bash /mnt/make\numount -R {prep}\n")
    (lab.dir / "keys/make").unlink()
    known = "".join(f"{n},{host_named(n).ipv4},{host_named(n).ipv6} {' '.join(read_text(lab.dir / 'keys/hosts' / (n + '.pub')).split()[:2])}\n" for n in names)
    write_file(lab.dir / "common/etc/ssh/ssh_known_hosts", known)
    for user in ACCOUNTS:
        if not (lab.dir / "otp" / user).exists():
            write_file(lab.dir / "otp" / user, base64.b32encode(secrets.token_bytes(20)).decode() + "\n", 0o600)


def _homes(lab):
    """Two homes a user: the site's, shared by login and compute nodes, and an empty one where that is not mounted."""
    for user, uid in ACCOUNTS.items():
        key = read_text(lab.dir / f"keys/{user}.pub")
        for home in (lab.dir / "home" / user, lab.dir / "common/home" / user):
            write_file(home / ".ssh/authorized_keys", key, 0o600)
            for path in (home, home / ".ssh", home / ".ssh/authorized_keys"):
                os.chown(path, uid, uid)
            os.chmod(home, 0o700)
            os.chmod(home / ".ssh", 0o700)


def _identity(lab, host):
    upper = lab.upper(host.name)
    write_file(upper / "etc/hostname", host.name + "\n")
    write_file(upper / "etc/machine-id", hashlib.sha256(f"{lab.id}{host.name}".encode()).hexdigest()[:32] + "\n", 0o444)
    for part, mode in (("", 0o600), (".pub", 0o644)):
        write_file(upper / f"etc/ssh/ssh_host_ed25519_key{part}", (lab.dir / f"keys/hosts/{host.name}{part}").read_text(), mode)


def _accounts(lab, host):
    """Takes the site accounts away where a site's directory would not show them."""
    if host.role not in NO_ACCOUNTS:
        return
    for name in ("passwd", "group", "shadow", "gshadow"):
        source, target = lab.dir / "common/etc" / name, lab.upper(host.name) / "etc" / name
        kept = [line for line in source.read_text().splitlines() if line.split(":")[0] not in ACCOUNTS]
        write_file(target, "\n".join(kept) + "\n", source.stat().st_mode & 0o777)
        os.chown(target, 0, source.stat().st_gid)


def _site_access(lab, host):
    """The site's shared home, and its standing root key on everything it administers."""
    upper = lab.upper(host.name)
    if host.role in SITE_HOME:
        write_file(upper / "etc/fstab", "/srv/site/home /home none bind 0 0\n")
    if "ssh" in UNITS.get(host.role, []):
        write_file(upper / "root/.ssh/authorized_keys", read_text(lab.dir / "keys/root.pub"), 0o600)
        os.chmod(upper / "root/.ssh", 0o700)
        os.chmod(upper / "root", 0o700)


def _outside(lab, host):
    """Users sit outside: their private keys are on `ext` and nowhere else."""
    if host.role != "outside":
        return
    write_file(lab.upper(host.name) / "usr/local/bin/lab-askpass", "#!/bin/sh\necho \"$LAB_ANSWER\"\n", 0o755)
    for user, uid in ACCOUNTS.items():
        home = lab.upper(host.name) / "home" / user
        for path, text in ((home / ".ssh/id_ed25519", read_text(lab.dir / "keys" / user)), (home / ".ssh/id_ed25519.pub", read_text(lab.dir / f"keys/{user}.pub"))):
            write_file(path, text, 0o600)
            os.chown(path, uid, uid)
        for path in (home, home / ".ssh"):
            os.chown(path, uid, uid)
            os.chmod(path, 0o700)


def _units(lab, host):
    for unit in UNITS.get(host.role, []):
        if not slurm.present(lab) and unit in ("munge", "slurmd"):
            continue                              # no general cluster in this lab
        enable(lab, host.name, unit)
    for unit in product.units(lab, host):
        enable(lab, host.name, unit)


def enable(lab, name, unit, target="multi-user.target"):
    """As systemctl enable, on a host that has not booted yet."""
    file = unit if "." in unit else f"{unit}.service"
    link = lab.upper(name) / f"etc/systemd/system/{target}.wants" / file
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(f"/lib/systemd/system/{file.split('@')[0] + '@.service' if '@' in file else file}")


# Run for each host before its first boot: (name, function (lab, host)).
BEFORE = [
    ("identity", _identity),
    ("accounts", _accounts),
    ("site access", _site_access),
    ("outside", _outside),
    ("general cluster", slurm.configure),
    ("product", product.files),
    ("units", _units),
]

# Run once all hosts are up: (name, function (lab)).
AFTER = [
    ("what the build lacks", product.warn),
    ("vault", product.vault),
    ("witnesses", product.witnesses),
    ("trust", product.trust),
    ("accounting", lambda lab: slurm.account(lab, list(ACCOUNTS))),
    ("controller", product.controller),
    ("agents", product.agents),
    ("general pool idle", slurm.wait_ready),
]


# What `lab status` asks before it says ready: (name, function (lab) -> bool).
READY = [
    ("product", product.ready),
    ("general pool", lambda lab: not slurm.present(lab) or slurm.ready(lab)),
]


def ready(lab):
    return all(row(lab) for _, row in READY)


def before(lab, host):
    for _, row in BEFORE:
        row(lab, host)


def after(lab):
    for name, row in AFTER:
        start = time.monotonic()
        row(lab)
        if time.monotonic() - start > 1:
            say(f"{name}: {time.monotonic() - start:.1f} s")


def otp(lab, user, at=None):
    """The present code of a user: RFC 6238 with SHA-1, 30 s, 6 digits."""
    secret = read_text(lab.dir / "otp" / user).strip()
    if not secret:
        raise LabError(f"no one-time password secret for {user}")
    counter = struct.pack(">Q", int(time.time() if at is None else at) // 30)
    digest = hmac.new(base64.b32decode(secret), counter, hashlib.sha1).digest()
    offset = digest[-1] & 15
    return f"{(struct.unpack_from('>I', digest, offset)[0] & 0x7FFFFFFF) % 1000000:06d}"
