"""One change on a node, one row of its baseline: `create` sends the node to quarantine and names the row. Rows come from node-agent/privd/measure.c;
those of the kernel cannot be changed on hosts that share one (they are judged in virtual machines)."""
import re

import pytest

from conftest import REPO, wait_until
from test_lifecycle import ORDER, as_json, nodes_of

NODE = "n4"
SHARED_KERNEL = {"kernel", "kernel-command-line", "kernel-modules", "sysctl"}
LIB = "/usr/lib/x86_64-linux-gnu"
# Row → a file of it. One that exists gets a byte more, one that does not is made.
FILES = {
    "privd": "/usr/sbin/enclave-privd", "agentd": "/usr/sbin/enclave-agentd", "enclave-config": "/etc/enclave/units.json",
    "enclave-programs": "/usr/libexec/enclave/planted", "enclave-templates": "/usr/share/enclave/templates/enclave-slurm.conf.in",
    "enclave-units": "/usr/lib/systemd/system/enclave-privd.service", "plugins": f"{LIB}/security/pam_enclave.so", "slurm-plugins": f"{LIB}/slurm-wlm/planted.so",
    "slurmd": "/usr/sbin/slurmstepd", "slurmctld": "/usr/sbin/slurmctld", "munged": "/usr/sbin/munged", "sshd": "/usr/sbin/sshd",
    "overlay-programs": "/usr/bin/wg", "sshd-config": "/etc/ssh/sshd_config", "pam": "/etc/pam.d/planted", "name-service": "/etc/nsswitch.conf",
    "loader": "/etc/ld.so.conf.d/planted.conf", "root-accounts": "/etc/passwd", "root-keys": "/root/.ssh/planted", "sudo": "/etc/sudoers",
    "cron": "/etc/cron.d/planted", "units-local": "/etc/systemd/system/planted.service", "init-scripts": "/etc/profile.d/planted.sh",
    "suid-programs": "/usr/local/bin/planted",
}
LINES = {"/etc/passwd": "toor:x:0:0::/root:/bin/bash", "/etc/enclave/units.json": " "}
# Debian keeps some of these behind links of its alternatives.
PLANT = """set -e
set -- "$(readlink -f "$1")" "$2" "$3"
mkdir -p /root/before-planting
[ -d "$(dirname "$1")" ] || { mkdir "$(dirname "$1")"; touch /root/before-planting/folder; }
if [ -e "$1" ]; then cp -a "$1" /root/before-planting/it; cp -a "$1" "$1.new"; echo "$2" >> "$1.new"; mv "$1.new" "$1"; else echo "$2" > "$1"; fi
[ -z "$3" ] || chmod 4755 "$1"
"""
RESTORE = """set -e
set -- "$(readlink -f "$1")"
if [ -e /root/before-planting/it ]; then cp -a /root/before-planting/it "$1.new"; mv "$1.new" "$1"; else rm -f "$1"; fi
[ ! -e /root/before-planting/folder ] || rmdir "$(dirname "$1")"
rm -rf /root/before-planting
"""


def rows():
    return re.findall(r'^\t\{ "([a-z-]+)", how_', (REPO / "node-agent/privd/measure.c").read_text(), re.M)


def test_every_row_has_a_test_or_a_reason():
    assert set(rows()) == set(FILES) | SHARED_KERNEL and not set(FILES) & SHARED_KERNEL


@pytest.mark.parametrize("row", sorted(FILES))
def test_invariant_02_a_changed_row_sends_the_node_to_quarantine_by_name(lab, row):
    path = FILES[row]
    wait_until(lambda: nodes_of(lab)[NODE]["pool"] == "general" and nodes_of(lab)[NODE]["slurm_state"] == "idle", 60, f"{NODE} idle in general")
    lab.run(NODE, "bash", "-c", PLANT, "plant", path, LINES.get(path, "# planted"), "suid" if row == "suid-programs" else "")
    try:
        error = as_json(lab, "create", "differs", "--nodes", NODE, *ORDER, status=7)["error"]
        assert error["code"] == "integrity" and re.search(rf"\b{row}\b", error["text"]), error
        node = nodes_of(lab)[NODE]
        assert node["pool"] == "quarantine" and row in node["why"] and node["next"]
    finally:
        lab.run(NODE, "bash", "-c", RESTORE, "restore", path)
    as_json(lab, "node", "release", NODE)
    wait_until(lambda: nodes_of(lab)[NODE]["pool"] == "general" and nodes_of(lab)[NODE]["slurm_state"] == "idle", 60, f"{NODE} back in general")
