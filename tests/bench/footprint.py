"""footprint: what the toolkit's processes hold in memory while nothing happens, as PSS: shared pages are counted by share."""
import os
import time

import labhost

IDLE_S = int(os.environ.get("ENCLAVE_BENCH_IDLE_S", "60"))
NODE = ("enclave-privd", "enclave-agentd")
CONTROLLER = ("enclaved",)


def pss_mb(host, names):
    """Sum over all processes of a host whose executable has one of the names."""
    total = 0
    for pid in labhost.run(host, "/usr/bin/pgrep", "-f", "|".join(f"^/usr/sbin/{n}" for n in names)).split():
        text = labhost.run(host, "/bin/cat", f"/proc/{pid}/smaps_rollup", check=False)
        total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total / 1024


def run(out):
    labhost.ready()
    time.sleep(IDLE_S)  # the definition says: after 60 s of quiet
    out.metric("footprint", "node_pss_mb", [pss_mb("n1", NODE)], "MB", limit=20)
    out.metric("footprint", "controller_pss_mb", [pss_mb("ctl", CONTROLLER)], "MB", limit=30)
