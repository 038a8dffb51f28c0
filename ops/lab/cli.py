"""The command `lab`: one subcommand a function. See the contracts in --help; exit status 125 is the lab's own failure."""
import argparse
import concurrent.futures
import fcntl
import json
import os
import shutil
import sys
import time

import door
import enter
import hosts
import image
import network
import provision
import vm
from common import LabError, call, say
from hosts import HOLDER, Lab, wait


def up(lab, args):
    """Brings up what is not up: the whole lab, or with --only these hosts beside those that are."""
    if args.service != "host" or args.suite != "bookworm":
        raise LabError(f"not built yet: --service {args.service} --suite {args.suite}")
    start = time.monotonic()
    tree = image.ensure(args.suite)
    lab.dir.mkdir(parents=True, exist_ok=True)
    with open(lab.dir / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not lab.record:
            lab.create(args.suite, tree, args.nodes or 4, args.services or 2, _machines(args))
        elif (args.nodes or lab.record["nodes"], args.services or lab.record["services"]) != (lab.record["nodes"], lab.record["services"]):
            raise LabError(f"this lab was made with {lab.record['nodes']} nodes and {lab.record['services']} service hosts; take it down first")
        lab.start_holder()
        provision.prepare(lab)
        wanted = args.only.split(",") if args.only else lab.record["hosts"] or hosts.plan(lab.record["nodes"], lab.record["services"])
        _start(lab, [hosts.host(n) for n in wanted])
        provision.after(lab)
    say(f"up in {time.monotonic() - start:.1f} s: {' '.join(h.name for h in lab.hosts)}")


def _machines(args):
    """Which hosts are to be virtual machines. The observers and the outside must be namespaces: they hold what users have."""
    wanted = args.vms.split(",") if args.vms else []
    if wanted:
        vm.check()
    for name in wanted:
        if hosts.host(name).role not in ("compute", "service"):
            raise LabError(f"{name} cannot be a virtual machine; compute and service hosts can")
    return wanted


def _start(lab, wanted):
    planned = hosts.plan(lab.record["nodes"], lab.record["services"])
    for host in wanted:
        if host.name not in planned:
            raise LabError(f"this lab was made for {' '.join(planned)}; {host.name} is not among them")
    names = set(lab.record["hosts"]) | {h.name for h in wanted}
    lab.record["hosts"] = [n for n in planned if n in names]
    lab.save()
    down = [h for h in wanted if not lab.alive(h.name)]
    for host in down:
        if not (lab.base(host.name) / "provisioned").exists():
            provision.before(lab, host)
            if lab.is_vm(host.name):
                vm.provision(lab, host)
            (lab.base(host.name) / "provisioned").touch()
        lab.boot(host)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda h: booted(lab, h.name), wanted))


def booted(lab, name, seconds=60):
    """Waits until systemd inside a host has finished starting it."""
    def answers():
        if not lab.alive(name):
            raise LabError(f"{name} did not boot: {vm.log_of(lab, name)}")
        init = lab.init(name)
        return init and (vm.answers(lab, name) if lab.is_vm(name) else os.path.exists(f"/proc/{init}/root/run/systemd/private"))
    seconds *= lab.patience
    wait(answers, seconds, f"{name} to boot")
    state = lab.run(name, "systemctl", "is-system-running", "--wait", check=False, timeout=seconds).strip()
    if state not in ("running", "degraded"):
        raise LabError(f"{name} is {state or 'not answering'}")
    if state == "degraded":
        failed = lab.run(name, "systemctl", "list-units", "--failed", "--plain", "--no-legend", check=False)
        say(f"{name}: failed units: {' '.join(line.split()[0] for line in failed.splitlines() if line.split())}")


def down(lab, args):
    """Ends every process of the lab and removes its directory; with --keep the disks stay to be looked at."""
    if lab.record:
        names = [p.name for p in sorted((lab.dir / "hosts").glob("*"))]
        for name in sorted(names, key=lambda n: n == HOLDER):
            wait(lambda n=name: lab.kill_group(n) or not lab.processes(n), 30, f"the processes of {name} to end")
        for name in names:
            lab.remove_cgroups(name)
        images = [*lab.dir.glob("*.img"), *lab.dir.glob("hosts/*/*.img")]
        # Mounts go with their namespaces, and the kernel lets go of loop devices a moment after the mounts.
        wait(lambda: not any(call("losetup", "-j", i) for i in images), 30, "loop devices to be released")
    if not args.keep and lab.dir.exists():
        shutil.rmtree(lab.dir)


def status(lab, args):
    found = []
    for host in lab.hosts:
        init = lab.init(host.name)
        state = "down" if not init else "cut" if network.is_cut(lab, host.name) else "up"
        found.append({"name": host.name, "role": host.role, "state": state, "address": host.ipv4, "address6": host.ipv6,
                      "root": f"/proc/{init}/root" if init and not lab.is_vm(host.name) else None, "pid": init,
                      "kind": "vm" if lab.is_vm(host.name) else "host"})
    ready = bool(found) and all(h["state"] == "up" for h in found) and provision.ready(lab)
    document = {"ready": ready, "suite": lab.record.get("suite"), "hosts": found}
    if args.json:
        print(json.dumps(document))
    else:
        for h in found:
            print(f"{h['name']:6} {h['role']:10} {h['state']:4} {h['address']}")
        print("ready" if ready else "not ready")
    return 0 if found else 1


def run(lab, args):
    return enter.run(lab, args.host, args.command, args.user, args.timeout)


def crash(lab, args):
    _known(lab, args.host)
    lab.crash(args.host)


def reboot(lab, args):
    """Starts a host again whatever its state: its processes, mounts and kernel state end, its disks stay."""
    host = _known(lab, args.host)
    if lab.alive(host.name):
        lab.crash(host.name)
    lab.boot(host)
    booted(lab, host.name)


def _known(lab, name):
    if not lab.has(name):
        raise LabError(f"this lab has no host {name}")
    return hosts.host(name)


def paths(lab, args):
    """Where the writable bytes of each host lie on this machine, to search them."""
    found = {h.name: {"upper": str(lab.upper(h.name)), "images": [str(p) for p in lab.base(h.name).glob("*.img")]} for h in lab.hosts}
    document = {"lab": str(lab.dir), "tree": lab.record.get("tree"), "shared": {"images": [str(lab.dir / "shared.img")], "home": str(lab.dir / "home")}, "hosts": found}
    if args.json:
        print(json.dumps(document))
    else:
        for name, entry in found.items():
            print(name, entry["upper"], *entry["images"])
        print("shared", lab.dir / "home", lab.dir / "shared.img")


def otp(lab, args):
    print(provision.otp(lab, args.user))


def deploy(lab, args):
    """Lays a newer build over running hosts; restart the daemons yourself."""
    fresh = lab.dir / "stage.new"
    shutil.rmtree(fresh, ignore_errors=True)
    provision.stage(fresh, lab.build)
    for name in args.hosts or [h.name for h in lab.hosts]:
        init = lab.init(name)
        if lab.is_vm(name):
            raise LabError(f"{name} is a virtual machine: take the lab down and up again for another build")
        if init:
            # Through the host's own overlay, each file by a rename: a lower layer must not change below a running host. /etc is provisioning's.
            call("cp", "-a", "--remove-destination", f"{fresh}/usr/.", f"/proc/{init}/root/usr/")
    shutil.rmtree(fresh)


def _parser():
    parser = argparse.ArgumentParser(prog="ops/lab/lab", description="Lab hosts running systemd and a real Slurm cluster on this one machine. "
                                     "LAB_DIR names the lab (default /var/lib/enclave-lab/default); several can be up at once.")
    commands = parser.add_subparsers(dest="verb", required=True)

    def add(name, function, text, *arguments):
        sub = commands.add_parser(name, help=text)
        for names, options in arguments:
            sub.add_argument(*names, **options)
        sub.set_defaults(function=function)

    host, user, peer = (["host"], {}), (["user"], {}), (["peer"], {"nargs": "?"})
    as_json = (["--json"], {"action": "store_true"})
    add("up", up, "bring up what is not up", (["--nodes"], {"type": int, "metavar": "4"}), (["--services"], {"type": int, "metavar": "2"}),
        (["--service"], {"choices": ["host", "libvirt"], "default": "host"}), (["--suite"], {"choices": ["bookworm", "trixie"], "default": "bookworm"}),
        (["--vms"], {"metavar": "HOST,HOST…", "help": "these are virtual machines with a kernel of their own"}),
        (["--only"], {"metavar": "HOST,HOST…", "help": "only these hosts, beside those that are up"}))
    add("down", down, "end the lab and remove its directory", (["--keep"], {"action": "store_true", "help": "leave the disks"}))
    add("status", status, "which hosts are up", as_json)
    add("run", run, "run a command inside a host", (["--user"], {}), (["--timeout"], {"type": float}), host)
    add("crash", crash, "kill every process of a host", host)
    add("reboot", reboot, "boot a host again", host)
    add("cut", lambda lab, a: network.cut(lab, a.host, a.peer), "drop a host's packets", host, peer)
    add("heal", lambda lab, a: network.heal(lab, a.host, a.peer), "end a cut", host, peer)
    add("paths", paths, "where the hosts' bytes lie", as_json)
    add("otp", otp, "a user's one-time password", user)
    add("deploy", deploy, "lay a newer build over running hosts", (["hosts"], {"nargs": "*"}))
    add("ssh", door.connect, "log in to an enclave", user, (["enclave"], {}), (["--from"], {"dest": "origin", "default": "ext"}),
        (["--factor"], {"choices": ["good", "bad", "none"], "default": "good"}))
    return parser


def main(words):
    command = []                                  # what follows the first "--"
    if "--" in words:
        cut = words.index("--")
        words, command = words[:cut], words[cut + 1:]
    try:
        args = _parser().parse_args(words)
    except SystemExit as e:
        return 0 if not e.code else enter.FAILED
    args.command = command
    if (args.verb == "run") > bool(command):
        say("run needs a command: lab run HOST -- CMD")
        return enter.FAILED
    if os.geteuid():
        say("must be run as root")
        return enter.FAILED
    try:
        return args.function(Lab(), args) or 0
    except LabError as e:
        say(e)
        return enter.FAILED
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
