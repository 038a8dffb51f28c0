"""The lab's virtual machines: the commands that every host has, and what a kernel of one's own has that a shared one has not."""
import subprocess

import pytest

from conftest import REPO, wait_until

pytestmark = pytest.mark.vm

HOSTS = ["vault", "ctl"]   # what it takes to enrol it


def boot_id(lab):
    return lab.run("n1", "cat", "/proc/sys/kernel/random/boot_id").stdout


def test_it_has_a_kernel_of_its_own(machine):
    ours = subprocess.run(["uname", "-r"], text=True, stdout=subprocess.PIPE).stdout
    assert machine.run("n1", "uname", "-r").stdout != ours
    entry = {h["name"]: h for h in machine.status()["hosts"]}["n1"]
    assert entry["kind"] == "vm" and entry["root"] is None and entry["state"] == "up"


@pytest.mark.parametrize("module", ["dm-crypt", "dm-verity", "dm-integrity", "wireguard", "nfs", "quota_v2"])
def test_it_has_what_the_shared_kernel_lacks(machine, module):
    machine.run("n1", "modprobe", module)


def test_it_has_a_tpm(machine):
    assert "tpmrm0" in machine.run("n1", "ls", "/dev").stdout


@pytest.mark.parametrize("script, status", [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("no-such-program", 127)])
def test_exit_statuses_are_the_commands_own(machine, script, status):
    assert machine.run("n1", "sh", "-c", script, check=False).returncode == status


def test_input_and_both_outputs_are_the_commands_own(machine):
    text = "".join(f"line {n}\n" for n in range(20000))
    done = machine.run("n1", "sh", "-c", "cat; echo to the other >&2", stdin=text)
    assert done.stdout == text and done.stderr == "to the other\n"


def test_a_command_that_takes_too_long_ends_with_124_and_is_gone(machine):
    assert machine.run("n1", "sleep", "4711", timeout=3, check=False).returncode == 124
    wait_until(lambda: machine.run("n1", "pgrep", "-f", "sleep 4711", check=False).returncode == 1, 30, "the command to be gone")


def test_many_commands_at_once_do_not_mix(machine):
    started = [subprocess.Popen(["ops/lab/lab", "run", "n1", "--", "sh", "-c", f"for i in 1 2 3; do echo {n}; done"], env={"LAB_DIR": str(machine.dir), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
                                cwd=REPO, stdout=subprocess.PIPE, text=True) for n in range(8)]
    for n, process in enumerate(started):
        assert process.communicate(timeout=120)[0] == f"{n}\n" * 3 and process.returncode == 0


def test_it_is_enrolled_and_measured_like_any_node(machine):
    known = {n["name"]: n for n in machine.json("ctl", "enclavectl", "--json", "node", "list", user="admin1")["nodes"]}
    assert known["n1"]["agent"]["connected"] and known["n1"]["pool"] == "general"


def test_a_cut_drops_its_packets_and_not_the_way_in(machine):
    address = {h["name"]: h["address"] for h in machine.status()["hosts"]}["n1"]
    ping = ["ping", "-c1", "-W2", address]
    assert machine.run("ctl", *ping, check=False).returncode == 0
    machine.lab("cut", "n1")
    try:
        assert machine.run("ctl", *ping, check=False).returncode == 1
        assert machine.run("n1", "echo", "in").stdout == "in\n"
    finally:
        machine.lab("heal", "n1")
    wait_until(lambda: machine.run("ctl", *ping, check=False).returncode == 0, 30, "the cut to end")


def test_a_crash_loses_memory_and_no_disk(machine):
    before = boot_id(machine)
    machine.run("n1", "sh", "-c", "echo kept > /var/tmp/kept; sync; echo lost > /run/lost; nft add table inet lost")
    machine.lab("crash", "n1")
    assert {h["name"]: h["state"] for h in machine.status()["hosts"]}["n1"] == "down"
    assert machine.run("n1", "true", check=False).returncode == 125
    machine.lab("reboot", "n1", timeout=600)
    assert machine.run("n1", "cat", "/var/tmp/kept").stdout == "kept\n"
    assert machine.run("n1", "ls", "/run/lost", check=False).returncode != 0
    assert "lost" not in machine.run("n1", "nft", "list", "tables").stdout
    assert boot_id(machine) != before
    machine.run("n1", "rm", "/var/tmp/kept")
