"""An enclave whose compute nodes are virtual machines: what a kernel of its own keeps, loads and leaves on its disk, and how it starts again."""
import mmap
import pathlib
import secrets
import shutil

import pytest

from conftest import own_lab, wait_until

pytestmark = pytest.mark.vm
NODES = ["n1", "n2"]
LINES = 2000
# What a PHI job leaves wherever it can: its scratch, and the node's log.
WORK = "uname -r; for i in $(seq {lines}); do echo {canary}; done > /enclave/scratch/notes.$SLURM_PROCID; logger {canary}; sync; grep -c {canary} /enclave/scratch/notes.$SLURM_PROCID"


@pytest.fixture(scope="module")
def site():
    with own_lab("vms", "--nodes", "3", "--vms", ",".join(NODES)) as lab:
        yield lab


def ctl(lab, *words, **options):
    return lab.json("ctl", "enclavectl", *words, "--json", user="admin1", timeout=600, **options)


def create(lab):
    opened = ctl(lab, "create", "vms", "--nodes", ",".join(NODES), "--agreement", "BAA-17", "--purpose", "kernels", "--owner", "res1")
    assert opened["state"] == "open" and opened["evidence"]["state"] == "fresh"


def destroy(lab):
    gone = ctl(lab, "destroy", "vms")
    assert {n["name"]: n["pool"] for n in gone["nodes"] if n["name"] in NODES} == dict.fromkeys(NODES, "general"), gone["nodes"]
    assert all(n["certificate"] > 0 for n in gone["nodes"])


def node(lab, name):
    return next(n for n in ctl(lab, "node", "list")["nodes"] if n["name"] == name)


def work(lab, canary, nodes=NODES):
    done = lab.lab("ssh", "res1", "vms", "--", "srun", f"-N{len(nodes)}", "-w", ",".join(nodes), "-p", "protected", "bash", "-c", WORK.format(lines=LINES, canary=canary), timeout=180)
    said = done.stdout.split()
    assert said.count(str(LINES)) == len(nodes) and len({s for s in said if "cloud" in s}) == 1, done.stdout


def general_work(lab, *nodes):
    wait_until(lambda: lab.run("head", "srun", f"-N{len(nodes)}", "-w", ",".join(nodes), "uname", "-r", check=False).stdout.count("cloud") == len(nodes), 90, "general work on them")


def disks(lab, *names):
    """The nodes' disks as somebody would have them who took the machines away."""
    return [pathlib.Path(image) for name in names or NODES for image in lab.paths()["hosts"][name]["images"]]


def holding(text, paths):
    found = []
    for path in paths:
        with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as raw:
            if raw.find(text.encode()) >= 0:
                found.append(path.name)
    return found


def modules(lab, name):
    return set(lab.run(name, "cut", "-d ", "-f1", "/proc/modules").stdout.split())


def started(lab, name, unit):
    return int(lab.run(name, "systemctl", "show", "-P", "ActiveEnterTimestampMonotonic", unit).stdout)


def has_no_keys(lab, name):
    """Neither an open volume nor what a role is made with; a scratch that is mounted anew would be empty."""
    script = "test -z \"$(findmnt -rno TARGET /enclave/scratch)\"; test ! -e /run/enclave/munge/munge.key; test -z \"$(keyctl show 2>/dev/null | grep fscrypt)\"; test -z \"$(dmsetup ls --target crypt 2>/dev/null | grep -v 'No devices')\""
    return lab.run(name, "sh", "-ec", script, check=False).returncode == 0


def test_nodes_with_kernels_of_their_own_are_lent_work_and_come_back_clean(site):
    canary, control = f"canary-{secrets.token_hex(12)}", f"control-{secrets.token_hex(12)}"
    before = {n: modules(site, n) for n in NODES}
    create(site)
    work(site, canary)
    for name in NODES:
        # What was loaded when the baseline was taken is what is loaded now: nothing that the stay needs comes later.
        assert modules(site, name) == before[name]
        site.run(name, "sh", "-ec", f"echo {control} > /opt/control; sync")
    assert set(holding(control, disks(site))) == {"root.img"} and holding(canary, disks(site)) == []
    destroy(site)
    assert holding(canary, disks(site)) == [] and holding(control, disks(site))
    general_work(site, *NODES)


def test_a_node_that_starts_again_inside_is_fenced_before_its_network_and_is_led_back_invariant_09(site):
    canary = f"canary-{secrets.token_hex(12)}"
    create(site)
    work(site, canary)
    site.lab("cut", "n1", "ctl")                    # nobody leads it yet
    try:
        site.lab("reboot", "n1", timeout=600)
        assert started(site, "n1", "enclave-privd") < started(site, "n1", "lab-network"), "the fence is there before the network"
        assert "drop" in site.run("n1", "nft", "list", "ruleset").stdout and has_no_keys(site, "n1")
        assert site.run("n1", "systemctl", "is-active", "slurmd", check=False).stdout.strip() != "active"
        address = {h["name"]: h["address"] for h in site.status()["hosts"]}["n1"]
        assert site.run("n3", "ping", "-c1", "-W2", address, check=False).returncode == 1
    finally:
        site.lab("heal", "n1", "ctl")
    wait_until(lambda: not (e := ctl(site, "show", "vms")).get("waiting") and e["evidence"]["state"] == "fresh", 240, "the node to be back", every=2)
    work(site, canary)
    assert holding(canary, disks(site)) == []
    destroy(site)


def test_a_disk_taken_while_inside_holds_nothing_and_opens_nothing_when_it_is_started(site):
    canary = f"canary-{secrets.token_hex(12)}"
    create(site)
    work(site, canary)
    site.lab("crash", "n1")
    taken = {path: path.with_suffix(".taken") for path in disks(site, "n1")}
    for path, copy in taken.items():
        shutil.copyfile(path, copy)
    try:
        assert holding(canary, taken.values()) == []
        site.lab("reboot", "n1", timeout=600)
        wait_until(lambda: not (e := ctl(site, "show", "vms")).get("waiting") and e["evidence"]["state"] == "fresh", 240, "the node to be back", every=2)
        destroy(site)
        site.lab("crash", "n1")
        for path, copy in taken.items():
            copy.replace(path)
        # It believes itself to be in an enclave that is no more, and has the certificate of that time.
        site.lab("reboot", "n1", timeout=600)
        assert has_no_keys(site, "n1")
        assert site.run("n1", "systemctl", "is-active", "slurmd", check=False).stdout.strip() != "active" or node(site, "n1")["pool"] == "general"
        wait_until(lambda: node(site, "n1")["agent"]["connected"], 120, "its agent", every=2)
        assert node(site, "n1")["enclave"] is None and holding(canary, disks(site)) == []
    finally:
        for copy in taken.values():
            copy.unlink(missing_ok=True)


def test_a_general_node_starts_as_if_we_were_not_there_while_the_controller_is_down_invariant_09(site):
    site.lab("crash", "ctl")
    try:
        site.lab("reboot", "n2", timeout=600)
        general_work(site, "n2")
        assert "drop" not in site.run("n2", "nft", "list", "ruleset").stdout
    finally:
        site.lab("reboot", "ctl")
