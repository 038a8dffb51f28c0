"""Login sessions: who came in, from where, with what, and how it ended, in the log before anybody is inside."""
import json
import subprocess

import pytest

from conftest import LAB, wait_until
from test_lifecycle import as_json, nodes_of

NAME = "ses"


@pytest.fixture(scope="module")
def enclave(lab):
    wait_until(lambda: all(n["slurm_state"] == "idle" for n in nodes_of(lab).values() if n["pool"] == "general"), 60, "idle nodes")
    made = as_json(lab, "create", NAME, "--nodes", "1", "--agreement", "BAA-17", "--purpose", "sessions", "--owner", "res1")
    found.enclave = made["id"]     # the name may have been another enclave's
    yield made
    as_json(lab, "destroy", NAME, "--now")


def login_node(enclave):
    return next(s["node"] for s in enclave["services"] if s["role"] == "login")


def found(lab, action):
    return as_json(lab, "audit", "search", "--enclave", found.enclave, "--action", action, "--limit", "500", user="auditor1")["records"]


def record(lab, index):
    return json.loads(as_json(lab, "audit", "prove", str(index), user="auditor1")["record"])


def ssh(lab, *words, user="res1", factor="good", check=True):
    return lab.lab("ssh", user, NAME, "--factor", factor, "--", *words, check=check, timeout=60)


def stay(lab, user="res1"):
    """A session that stays until something ends it."""
    before = {s["id"] for s in sessions(lab)}
    process = subprocess.Popen([str(LAB), "ssh", user, NAME, "--", "sleep", "300"], env={**__import__("os").environ, "LAB_DIR": str(lab.dir)},
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    new = wait_until(lambda: [s for s in sessions(lab) if s["id"] not in before], 20, "the session to be listed")
    return process, new[0]


def sessions(lab, user="admin1"):
    return as_json(lab, "session", "list", NAME, user=user)["sessions"]


def test_a_login_is_in_the_log_with_source_factor_and_end(lab, enclave):
    assert ssh(lab, "id", "-un").stdout.strip() == "res1"
    end = wait_until(lambda: found(lab, "session.end"), 15, "the end of the session")[-1]
    start = found(lab, "session.start")[-1]
    login = found(lab, "auth.login")[-1]
    assert start["user"] == end["user"] == login["user"] == "res1" and start["session"] == end["session"] and start["mfa"] is True
    assert start["ip"] == end["ip"] and start["ip"] and start["node"] == login_node(enclave) and start["enclave"] == NAME
    body, last = record(lab, start["index"]), record(lab, end["index"])
    assert body["data"]["factor"] == "publickey+code" and body["obj"]["enclave_id"] == enclave["id"]
    assert last["data"]["seconds"] >= 0 and last["data"]["bytes_out"] > 1000
    assert last["src"]["counter"] > body["src"]["counter"] and last["src"]["boot"] == body["src"]["boot"]
    members = as_json(lab, "member", "list", NAME)["members"]
    assert [m["last_login"] for m in members if m["user"] == "res1"] != [None]


def test_a_wrong_code_is_in_the_log_with_its_reason(lab, enclave):
    before = len(found(lab, "auth.failed"))
    done = ssh(lab, "true", factor="bad", check=False)
    assert done.returncode == 255 and "enclave" not in done.stderr
    row = wait_until(lambda: found(lab, "auth.failed")[before:], 15, "the refusal in the log")[0]
    assert row["user"] == "res1" and row["outcome"] == "denied" and record(lab, row["index"])["data"]["reason"] == "code-is-wrong"


def test_who_is_in_is_listed_and_can_be_put_out(lab, enclave):
    process, session = stay(lab)
    assert session["user"] == "res1" and session["from"] and session["factor"] == "publickey+code"
    assert as_json(lab, "session", "end", NAME, session["id"], user="auditor1", status=3)["error"]["code"] == "denied"
    assert as_json(lab, "session", "end", NAME, session["id"], user="outsider1", status=4)["error"]["code"] == "not_found"
    assert process.poll() is None
    assert as_json(lab, "session", "end", NAME, session["id"])["sessions"] == []
    process.wait(10)
    end = [row for row in found(lab, "session.end") if row["session"] == session["id"]]
    assert len(end) == 1 and record(lab, end[0]["index"])["data"]["reason"] == "ended-by-order"
    order = found(lab, "session.terminate")[-1]
    assert (order["user"], order["target"], order["object"]) == ("admin1", "res1", session["id"])
    assert as_json(lab, "session", "end", NAME, session["id"], status=4)["error"]["code"] == "not_found"
    assert as_json(lab, "session", "end", NAME, "nonsense", status=2)["error"]["code"] == "usage"
    assert lab.run(login_node(enclave), "pgrep", "-u", "res1", "sleep", check=False).stdout == "", "something of the session is left"


def test_a_session_whose_process_dies_without_a_word_has_an_end_in_the_log(lab, enclave):
    process, session = stay(lab)
    lab.run(login_node(enclave), "bash", "-c", "kill -9 $(pgrep -f 'res1 [[]priv[]]')")
    end = wait_until(lambda: [r for r in found(lab, "session.end") if r["session"] == session["id"]], 15, "the end of the session")[0]
    assert "without-a-word" in record(lab, end["index"])["data"]["reason"]
    assert sessions(lab) == []
    wait_until(lambda: left(lab, enclave) == "", 10, "the end of what was inside it")
    process.kill()
    process.wait()


def left(lab, enclave):
    return lab.run(login_node(enclave), "pgrep", "-u", "res1", "sleep", check=False).stdout


def test_nothing_that_a_session_started_outlives_it(lab, enclave):
    """Neither what has left its terminal and its parent: nobody would be inside by the log, and somebody is."""
    assert ssh(lab, "bash", "-c", "setsid sleep 299 >/dev/null 2>&1 </dev/null & sleep 0.2; echo started").stdout.strip() == "started"
    wait_until(lambda: left(lab, enclave) == "", 15, "the end of what it left")


def test_the_door_limits_what_an_idle_or_greedy_connection_may_have(lab, enclave):
    said = lab.run(login_node(enclave), "/usr/sbin/sshd", "-T", "-f", "/run/enclave/login/sshd_config").stdout
    for line in ("maxsessions 4", "channeltimeout session:*=1h", "unusedconnectiontimeout 300", "disableforwarding yes", "permittunnel no"):
        assert line in said, line
    assert "subsystem" not in said


@pytest.mark.nightly   # the door's own test has each way in which the log fails; this is the whole way
def test_invariant_05_no_record_no_session(lab, enclave):
    before = len(found(lab, "session.start"))
    lab.run("ctl", "systemctl", "stop", "enclave-vault-link")
    try:
        done = ssh(lab, "echo", "inside", check=False)
        assert done.returncode != 0 and "inside" not in done.stdout
    finally:
        lab.run("ctl", "systemctl", "start", "enclave-vault-link")
    wait_until(lambda: ssh(lab, "echo", "inside", check=False).stdout.strip() == "inside", 40, "the door to let members in again")
    # What happened meanwhile is told afterwards, in order and without a gap.
    rows = wait_until(lambda: [r for r in found(lab, "session.start")][before:] if len(found(lab, "session.start")) >= before + 2 else None, 20, "both starts")
    refused = [r for r in found(lab, "session.end") if r["session"] == rows[0]["session"]]
    assert "log-does-not-answer" in record(lab, refused[0]["index"])["data"]["reason"]
    assert found(lab, "node.gap") == []
