"""The lab's witnesses, on hosts of their own and over TLS: what an auditor sees, and that nothing waits for one that is away."""
import json

from conftest import wait_until

AUDITOR = "auditor1"


def audit(lab, *words, check=True):
    return json.loads(lab.run("ctl", "enclavectl", "audit", *words, "--json", user=AUDITOR, check=check).stdout)


def states(lab):
    return {w["name"]: w["state"] for w in audit(lab, "witness")["list"]}


def test_the_log_is_cosigned_and_verifies_by_the_witnesses_word(lab):
    wait_until(lambda: set(states(lab).values()) == {"ok"}, 40, "both witnesses to cosign")
    report = audit(lab, "verify")
    assert report["result"] == "complete" and report["witnesses"]["required"] == report["witnesses"]["cosigned"] == 2
    assert audit(lab, "search", "--limit", "1")["witnesses"]["required"] == 2


def test_a_kept_head_is_continued_and_a_forged_one_is_not(lab):
    checkpoint = audit(lab, "witness")["checkpoint"]
    write = "cat > /tmp/kept-head; chmod 644 /tmp/kept-head"
    lab.run("ctl", "bash", "-c", write, stdin=checkpoint)
    audit(lab, "search", "--limit", "1")                       # the log grows by it
    found = audit(lab, "consistency", "/tmp/kept-head")
    assert found["result"] == "complete" and found["to"] >= found["from"] > 0
    lines = checkpoint.split("\n")
    lab.run("ctl", "bash", "-c", write, stdin="\n".join([lines[0], str(int(lines[1]) - 1), *lines[2:]]))
    done = lab.run("ctl", "enclavectl", "audit", "consistency", "/tmp/kept-head", "--json", user=AUDITOR, check=False)
    assert done.returncode == 7
    lab.run("ctl", "rm", "/tmp/kept-head")


def test_the_witnesses_hosts_hold_neither_the_logs_key_nor_its_records(lab):
    for host in ("w1", "w2"):
        found = lab.run(host, "bash", "-c", "ls /var/lib/enclave-audit/key /var/lib/enclave-audit/log 2>/dev/null; stat -c %a:%U /var/lib/enclave-witness/key").stdout.split()
        assert found == ["600:enclave-witness"]


def test_a_witness_that_is_cut_off_stops_nothing(lab):
    lab.lab("cut", "w2")
    try:
        audit(lab, "search", "--limit", "1")
        wait_until(lambda: states(lab) == {"w1": "ok", "w2": "down"}, 60, "w2 to be seen away")
        age = audit(lab, "witness")["witnesses"]["age_s"]
        plan = ("plan", "quick", "--nodes", "1", "--agreement", "BAA-17", "--purpose", "witness away", "--owner", "res1")
        assert lab.json("ctl", "enclavectl", *plan, "--json", user="admin1")["allowed"]
        wait_until(lambda: audit(lab, "witness")["witnesses"]["age_s"] > age, 20, "the age to grow")
    finally:
        lab.lab("heal", "w2")
    wait_until(lambda: set(states(lab).values()) == {"ok"}, 90, "w2 to cosign again")
