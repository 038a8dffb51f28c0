"""An enclave whose compute nodes are virtual machines: what a kernel of its own keeps, loads and leaves on its disk."""
import mmap
import pathlib
import secrets

import pytest

from conftest import BASE, Lab, wait_until

pytestmark = pytest.mark.vm
NODES = ["n1", "n2"]
LINES = 2000


@pytest.fixture(scope="module")
def site():
    lab = Lab(BASE / f"vms-{secrets.token_hex(4)}")
    try:
        lab.lab("up", "--nodes", "3", "--vms", ",".join(NODES), timeout=900)
        yield lab
    finally:
        lab.lab("down")


def ctl(lab, *words, **options):
    return lab.json("ctl", "enclavectl", *words, "--json", user="admin1", timeout=600, **options)


def disks(lab):
    """The nodes' disks as somebody would have them who took the machines away."""
    return [pathlib.Path(image) for name in NODES for image in lab.paths()["hosts"][name]["images"]]


def holding(lab, text):
    found = []
    for path in disks(lab):
        with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as raw:
            if raw.find(text.encode()) >= 0:
                found.append(path.name)
    return found


def modules(lab, node):
    return set(lab.run(node, "cut", "-d ", "-f1", "/proc/modules").stdout.split())


def test_nodes_with_kernels_of_their_own_are_lent_work_and_come_back_clean(site):
    canary, control = f"canary-{secrets.token_hex(12)}", f"control-{secrets.token_hex(12)}"
    before = {n: modules(site, n) for n in NODES}
    opened = ctl(site, "create", "vms", "--nodes", ",".join(NODES), "--agreement", "BAA-17", "--purpose", "kernels", "--owner", "res1")
    assert opened["state"] == "open" and opened["evidence"]["state"] == "fresh"
    work = f"uname -r; for i in $(seq {LINES}); do echo {canary}; done > /enclave/scratch/notes.$SLURM_PROCID; logger {canary}; sync; grep -c {canary} /enclave/scratch/notes.$SLURM_PROCID"
    done = site.lab("ssh", "res1", "vms", "--", "srun", "-N2", "-p", "protected", "bash", "-c", work, timeout=180)
    said = done.stdout.split()
    assert said.count(str(LINES)) == 2 and len({s for s in said if "cloud" in s}) == 1, done.stdout
    for node in NODES:
        # What was loaded when the baseline was taken is what is loaded now: nothing that the stay needs comes later.
        assert modules(site, node) == before[node]
        site.run(node, "sh", "-ec", f"echo {control} > /opt/control; sync")
    assert set(holding(site, control)) == {"root.img"} and holding(site, canary) == []
    gone = ctl(site, "destroy", "vms")
    assert {n["name"]: n["pool"] for n in gone["nodes"] if n["name"] in NODES} == dict.fromkeys(NODES, "general"), gone["nodes"]
    assert all(n["certificate"] > 0 for n in gone["nodes"])
    assert holding(site, canary) == [] and holding(site, control)
    wait_until(lambda: site.run("head", "srun", "-N2", "-w", ",".join(NODES), "uname", "-r", check=False).stdout.count("cloud") == 2, 60, "general work on the returned nodes")
