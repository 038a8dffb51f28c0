"""A lab and its hosts: who there is, where its files lie, how processes get into its namespaces, what is alive.

A lab is one directory (LAB_DIR) and one *holder*: a sleeping process whose mount and network namespace contain everything the lab needs outside its
hosts (the bridge, loop mounts, /run/netns). The machine's own mount table and network are never touched, and when the holder dies nothing is left.
Every process of a lab lives in a cgroup named enclave-lab-ID.HOST in every hierarchy, ID being random per `lab up`.
"""
import dataclasses
import json
import os
import pathlib
import re
import secrets
import signal
import subprocess
import time

import vm
from common import BASE, REPO, LabError, call, read_text, write_file

CGROUP = pathlib.Path("/sys/fs/cgroup")
BOOT = pathlib.Path(__file__).with_name("host-boot")
FIXED = {"ctl": ("controller", 10), "vault": ("vault", 11), "w1": ("witness", 12), "w2": ("witness", 13), "head": ("head", 20),
         "login": ("login", 21), "ext": ("outside", 250)}
HOLDER = "holder"
INOTIFY = "/proc/sys/fs/inotify/max_user_instances"


@dataclasses.dataclass(frozen=True)
class Host:
    name: str
    role: str                                     # controller vault witness head login compute service outside
    number: int                                   # last part of both addresses

    @property
    def ipv4(self):
        return f"10.77.0.{self.number}"

    @property
    def ipv6(self):
        return f"fd77::{self.number}"

    @property
    def mac(self):
        return f"02:77:00:00:00:{self.number:02x}"


def host(name):
    """The host of that name in the lab's fixed address plan."""
    if name in FIXED:
        return Host(name, *FIXED[name])
    m = re.fullmatch(r"([ns])([1-9][0-9]?)", name)
    if not m or int(m[2]) > (99 if m[1] == "n" else 40):
        raise LabError(f"no host is called {name}")
    return Host(name, *(("compute", 100 + int(m[2])) if m[1] == "n" else ("service", 200 + int(m[2]))))


def plan(nodes=4, services=2):
    """Names of a whole lab, in the order in which they are started."""
    return ["head", "vault", "ctl", "w1", "w2", "login", *[f"n{i + 1}" for i in range(nodes)], *[f"s{i + 1}" for i in range(services)], "ext"]


def _start_time(pid):
    """When a process started, in clock ticks: with the pid it names one process for good."""
    text = read_text(f"/proc/{pid}/stat")
    return text.rsplit(")", 1)[-1].split()[19] if text else None


def _children(pid):
    return [int(p) for p in read_text(f"/proc/{pid}/task/{pid}/children").split()]


class Lab:
    """One lab directory and its record: id, suite, tree and the names of its hosts."""

    def __init__(self, directory=None):
        self.dir = pathlib.Path(directory or os.environ.get("LAB_DIR") or BASE / "default").absolute()
        self.record = json.loads(read_text(self.dir / "lab.json", "{}"))

    def create(self, suite, tree, nodes, services, machines=()):
        self.dir.mkdir(parents=True, exist_ok=True)
        self.record = {"id": secrets.token_hex(4), "suite": suite, "tree": str(tree), "nodes": nodes, "services": services, "machines": list(machines), "hosts": []}
        self.save()

    def save(self):
        write_file(self.dir / "lab.json", json.dumps(self.record, indent=1) + "\n")

    @property
    def id(self):
        return self.record.get("id")

    @property
    def hosts(self):
        return [host(n) for n in self.record.get("hosts", [])]

    def has(self, name):
        return name in self.record.get("hosts", [])

    @property
    def patience(self):
        """How many times as long anything may take: software emulation is slow."""
        return 6 if self.record.get("machines") else 1

    def is_vm(self, name):
        """Whether the host is a virtual machine, with a kernel of its own."""
        return name in self.record.get("machines", [])

    @property
    def build(self):
        """The CMake build tree whose product the hosts run: $ENCLAVE_BUILD, else this checkout's; None when there is none."""
        for build in (os.environ.get("ENCLAVE_BUILD"), REPO / "build/release", REPO / "build"):
            if build and pathlib.Path(build, "cmake_install.cmake").exists():
                return pathlib.Path(build).absolute()
        return None

    def uid(self, user):
        """(uid, gid) of a user on the lab's hosts, before they boot."""
        for line in (self.dir / "common/etc/passwd").read_text().splitlines():
            fields = line.split(":")
            if fields[0] == user:
                return int(fields[2]), int(fields[3])
        raise LabError(f"the lab's hosts have no user {user}")

    def base(self, name):
        return self.dir / "hosts" / name

    def upper(self, name):
        """The host's writable layer: what provisioning writes into before the host boots."""
        return self.base(name) / "upper"

    # --- cgroups -----------------------------------------------------------------------------------------------------

    def cgroups(self, name):
        """The cgroup of a host (or of the holder) in each hierarchy of this machine."""
        leaf = f"enclave-lab-{self.id}.{name}"
        if (CGROUP / "cgroup.controllers").exists():
            return [CGROUP / leaf]
        return [c / leaf for c in sorted(CGROUP.iterdir()) if c.is_dir() and not c.is_symlink()]

    def make_cgroups(self, name):
        made = self.cgroups(name)
        for group in made:
            group.mkdir(exist_ok=True)
            if (group / "cgroup.clone_children").exists() and (group / "cpuset.cpus").exists():
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (group / file).write_text((group.parent / file).read_text())
                (group / "cgroup.clone_children").write_text("1")
        return made

    def all_cgroups(self):
        pattern = f"enclave-lab-{self.id}.*"
        return [*CGROUP.glob(pattern), *CGROUP.glob(f"*/{pattern}")]

    def spawn(self, name, words, output):
        """Starts a lasting process in the cgroups of a host; it outlives this program. Returns its pid."""
        groups = self.make_cgroups(name)

        def enter():
            os.setsid()
            for group in groups:
                (group / "cgroup.procs").write_text("0")

        with open(output, "ab") as log:
            child = subprocess.Popen([str(w) for w in words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=enter, cwd="/")
        child.returncode = 0                      # not ours to wait for
        return child.pid

    # --- the holder and the hosts' processes --------------------------------------------------------------------------

    def remember(self, name, pid):
        write_file(self.base(name) / "pid", f"{pid} {_start_time(pid)}\n")

    def alive(self, name):
        """The pid of a host's supervisor (or of the holder) if that very process still runs."""
        pid, _, started = read_text(self.base(name) / "pid").strip().partition(" ")
        return int(pid) if pid and _start_time(pid) == started and "Z" not in read_text(f"/proc/{pid}/stat").rsplit(")", 1)[-1][:3] else None

    def inside(self, *words, **options):
        """Runs a program of this machine in the lab's own mount and network namespace."""
        holder = self.alive(HOLDER)
        if not holder:
            raise LabError(f"the lab at {self.dir} is not up")
        return call("nsenter", "-t", holder, "-m", "-n", "--", *words, **options)

    def start_holder(self):
        if self.alive(HOLDER):
            return
        # A systemd host takes about five inotify instances, and all hosts count as one user to the shared kernel: 128 last for two labs.
        if int(read_text(INOTIFY, "1024")) < 1024:
            pathlib.Path(INOTIFY).write_text("1024")
        self.base(HOLDER).mkdir(parents=True, exist_ok=True)
        ready = self.base(HOLDER) / "ready"
        ready.unlink(missing_ok=True)
        script = ("mkdir -p /run/netns; mount -t tmpfs tmpfs /run/netns; ip link set lo up; "
                  "ip link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0; ip link set br0 up; "
                  f"mkdir -p {self.dir}/shared {self.dir}/home; mount -o loop,nosuid,nodev {self.dir}/shared.img {self.dir}/shared; "
                  f"echo > {ready}; exec sleep infinity")
        self.disk(self.dir / "shared.img")
        log = self.base(HOLDER) / "log"
        pid = self.spawn(HOLDER, ["unshare", "--mount", "--net", "bash", "-ec", script], log)
        self.remember(HOLDER, pid)
        wait(lambda: ready.exists() or not self.alive(HOLDER), 20, "the lab's holder")
        if not self.alive(HOLDER):
            raise LabError(f"the holder did not start: {read_text(log)[-500:]}")

    def disk(self, image):
        """A sparse ext4 image that takes encrypted directories."""
        if not image.exists():
            with open(image, "wb") as f:
                f.truncate(2 << 30)
            call("mkfs.ext4", "-q", "-F", "-O", "encrypt", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard", "-N", "16384", image)

    def boot(self, host):
        """Starts a host that is down; returns at once."""
        if self.is_vm(host.name):
            vm.boot(self, host)
            return
        base = self.base(host.name)
        for part in ("upper", "work", "root"):
            (base / part).mkdir(parents=True, exist_ok=True)
        if host.role in ("compute", "service"):
            self.disk(base / "disk.img")
        lower = ":".join(str(p) for p in (self.dir / "common", self.dir / "stage", self.record["tree"]))
        pid = self.spawn(host.name, ["nsenter", "-t", self.alive(HOLDER), "-m", "-n", "--", BOOT, self.dir, self.id, host.name, lower, host.mac, host.ipv4,
                                     host.ipv6, host.role], base / "console.log")
        self.remember(host.name, pid)

    def init(self, name):
        """The pid, on this machine, of a host's PID 1 (of a VM: of its emulator); None when it is down or has not reached systemd yet."""
        supervisor = self.alive(name)
        if self.is_vm(name):
            return supervisor
        for unshare in _children(supervisor) if supervisor else []:
            for init in _children(unshare):
                if read_text(f"/proc/{init}/comm").strip() == "systemd":
                    return init
        return None

    def crash(self, name):
        """Ends every process of a host at once; its disks stay as they were at that moment."""
        init, supervisor = self.init(name), self.alive(name)
        # The kernel kills all that lives in a PID namespace with its init; the supervisor sees a SIGKILL and ends.
        if init and not self.is_vm(name):
            os.kill(init, signal.SIGKILL)
        elif supervisor:
            self.kill_group(name)
        wait(lambda: not self.alive(name) and not self.processes(name), 20, f"the processes of {name} to end")
        self.remove_cgroups(name)

    def processes(self, name):
        """Pids in the cgroup of a host, from one hierarchy that all of them are in."""
        pids = []
        group = self.cgroups(name)[-1]
        for procs in [group / "cgroup.procs", *group.rglob("cgroup.procs")]:
            pids += read_text(procs).split()
        return sorted(set(map(int, pids)))

    def kill_group(self, name):
        for pid in self.processes(name):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def remove_cgroups(self, name):
        def gone():
            left = [g for g in self.cgroups(name) if g.exists()]
            for group in left:
                for folder, _, _ in os.walk(group, topdown=False):
                    try:
                        os.rmdir(folder)
                    except OSError:
                        pass
            return not any(g.exists() for g in left)
        wait(gone, 20, f"the cgroups of {name} to empty")

    # --- entering a host -------------------------------------------------------------------------------------------------

    def run(self, name, *words, timeout=60, **options):
        """Runs a program inside a host as root, for the lab's own use (also from threads); returns its stdout."""
        init = self.init(name)
        if not init:
            raise LabError(f"host {name} is down")
        try:
            if self.is_vm(name):
                return vm.call_in(self, name, words, ROOT_ENV, timeout, **options)
            return call("nsenter", "-t", init, "-a", "--", *words, timeout=timeout, env=ROOT_ENV, **options)
        except LabError as e:
            raise LabError(f"{name}: {e}") from e


ROOT_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "USER": "root", "LOGNAME": "root",
            "SHELL": "/bin/bash", "LANG": "C.UTF-8"}


def wait(condition, seconds, what):
    """Polls until a condition holds; a lab error when it does not within the deadline."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise LabError(f"waited {seconds} s in vain for {what}")
        time.sleep(0.02)
