"""Witnesses: a fork, a rollback, a log signed anew and a truncated one are found although the attacker has the log's own key and disk."""
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess

import pytest

from audit_daemon import VERIFY, Auditd, Refused, event
from witness_daemon import Witnessed, wait

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to set up the daemons' places")


@pytest.fixture
def site(request):
    made = Witnessed(**getattr(request, "param", {}))
    yield made
    made.done()


def add(auditd, n=20, **members):
    client = auditd.client()
    for _ in range(n):
        client.append(event(**members))
    client.close()


def verify(site, *options, folder=None, policy=True):
    words = [VERIFY, folder or site.auditd.log, "--vkey", site.auditd.state / "log.vkey", "--json", "--tail-age", "3600", *map(str, options)]
    done = subprocess.run(words + (["--policy", site.policy] if policy else []), stdout=subprocess.PIPE, text=True)
    return done.returncode, json.loads(done.stdout)


# ---- the sunny side ----

def test_checkpoints_are_cosigned_and_everybody_says_so(site, tmp_path):
    site.start_cosignd()
    add(site.auditd)
    size = site.wait_cosigned()
    answer = site.auditd.client().call("search", limit=1)
    assert answer["witnesses"]["required"] == 2 and answer["witnesses"]["cosigned"] == 2 and answer["witnesses"]["age_s"] <= 5
    assert site.states() == ["ok", "ok"]
    # A proof of a record that the witnesses have seen carries their word, and holds offline.
    proof = site.auditd.client().call("receipt", index=5)
    (tmp_path / "proof").write_text(proof["proof"])
    (tmp_path / "record").write_text(proof["record"])
    words = [VERIFY, "proof", tmp_path / "proof", "--record", tmp_path / "record", "--policy", site.policy, "--json"]
    assert subprocess.run(words, stdout=subprocess.DEVNULL).returncode == 0
    assert len(proof["proof"]) <= 3072
    bare = re.sub(r"^\u2014 w2.*\n", "", proof["proof"], flags=re.M)
    (tmp_path / "proof").write_text(bare)
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 7 and json.loads(done.stdout)["result"] == "unsigned"
    site.auditd.stop()
    status, report = verify(site)
    assert (status, report["result"]) == (0, "complete") and report["witnesses"]["required"] == report["witnesses"]["cosigned"] == 2
    assert report["witnesses"]["size"] <= size + 2 and report["witnesses"]["age_s"] is not None


def test_the_witnesses_own_checkpoint_is_a_head_to_verify_against(site, tmp_path):
    site.start_cosignd()
    add(site.auditd)
    site.wait_cosigned()
    status, kind, note = site.witnesses[0].ask("GET", "/checkpoint/" + hashlib.sha256(b"test.example/log").hexdigest())
    assert status == 200 and note.startswith("test.example/log\n") and "w1.example" in note
    (tmp_path / "seen").write_text(note)
    site.auditd.stop()
    assert verify(site, "--seen", tmp_path / "seen")[0] == 0


def test_an_unchanged_log_is_cosigned_again_so_that_its_age_says_something(site):
    site.start_cosignd(refresh_s=1)
    site.wait_cosigned()
    ages = set()
    wait(lambda: ages.add(site.shown()["checkpoint"]) or len(ages) >= 2, what="a second cosignature of the same head")


# ---- a witness away ----

def test_a_witness_that_is_away_stops_nothing_and_its_age_grows(site):
    site.start_cosignd()
    site.wait_cosigned()
    site.witnesses[1].kill()
    add(site.auditd)
    wait(lambda: site.states() == ["ok", "down"], what="the state of the witness")
    assert site.auditd.client().append(event(), receipt=True)["proof"]
    old = site.shown()["witnesses"]
    wait(lambda: site.shown()["witnesses"]["age_s"] > old["age_s"], what="the age to grow")
    site.witnesses[1].up()
    add(site.auditd)
    wait(lambda: site.states() == ["ok", "ok"], 60, "the witness to cosign again")
    site.wait_cosigned()


@pytest.mark.parametrize("wrong", ["quorum nobody\n", "http://w2.example:99999/"])
def test_a_new_policy_that_is_no_good_leaves_the_witnesses_as_they_were(site, wrong):
    site.start_cosignd()
    site.wait_cosigned()
    good = site.policy.read_text()
    site.policy.write_text(good.replace(f"unix:{site.witnesses[1].socket}", wrong) if wrong.startswith("http") else wrong)
    site.cosignd.process.send_signal(signal.SIGHUP)
    wait(lambda: "stays in force" in site.cosignd.output(), what="the policy to be refused")
    add(site.auditd)
    site.wait_cosigned()


@pytest.mark.parametrize("site", [{"quorum": "any"}], indirect=True)
def test_one_witness_is_enough_where_the_policy_says_so(site):
    site.start_cosignd()
    site.wait_cosigned()
    site.witnesses[1].kill()
    add(site.auditd)
    site.wait_cosigned()
    assert site.shown()["witnesses"] | {"age_s": 0} == {"required": 1, "cosigned": 1, "age_s": 0, "size": site.shown()["witnesses"]["size"]}


@pytest.mark.parametrize("site", [{"witness_max_age_s": 2}], indirect=True)
def test_without_witnesses_nothing_loosens_where_the_configuration_says_so(site):
    """No receipt for an order that loosens; what tightens is taken, and so is every plain record."""
    site.start_cosignd()
    site.wait_cosigned()
    client = site.auditd.client()
    order = {"class": "node", "action": "order", "outcome": "intent", "obj": {"node": "n1"}, "head": {"verb": "node.grant"}}
    assert client.append(order, receipt=True)["proof"]
    site.witnesses[1].kill()

    def refused():
        try:
            client.append(order, receipt=True)
            return False
        except Refused as refusal:
            assert refusal.code == "unavailable" and "witness" in refusal.error["text"] and refusal.error["next"]
            return True

    wait(refused, what="receipts to be refused")
    assert client.append(order)["index"]
    assert client.append({"class": "breakglass", "action": "open", "outcome": "ok", "actor": {"user": "officer1"}, "obj": {"enclave_id": "abc"}},
                         receipt=True)["proof"]
    site.witnesses[1].up()
    wait(lambda: not refused(), 60, "receipts again")


# ---- attacks: the attacker is root on the vault; each is first shown to work on the log alone ----

def rebuilt(site, to, n, **members):
    """A whole log of the same name and key, made by the real auditd from other records: what an attacker with the vault can always do."""
    other = Auditd(origin="test.example/log")
    shutil.copy(site.auditd.state / "key", other.state / "key")
    os.chown(other.state / "key", 65534, 65534)
    other.start()
    add(other, n, **members)
    other.stop()
    shutil.copytree(other.log, to)
    other.done()
    return to


def found_by_witnesses_alone(site, folder, result):
    """With the log's own key nothing is amiss; with the witnesses' it is unsigned, and beside what they signed before it is found out."""
    assert verify(site, folder=folder, policy=False)[0] == 0, "the attack does not work on a log without witnesses"
    assert verify(site, folder=folder)[1]["result"] == "unsigned"
    shutil.copy(site.auditd.log / "cosigned", folder / "cosigned")
    status, report = verify(site, folder=folder)
    assert (status, report["result"]) == (7, result) and report["first_bad"]["file"] == "cosigned"


def test_a_log_signed_anew_passes_alone_and_not_before_witnesses(site, tmp_path):
    site.start_cosignd()
    add(site.auditd, 30)
    site.wait_cosigned()
    site.auditd.stop()
    forged = rebuilt(site, tmp_path / "forged", 50, req="other")
    found_by_witnesses_alone(site, forged, "altered")


def test_a_truncated_log_passes_alone_and_not_before_witnesses(site, tmp_path):
    site.start_cosignd()
    add(site.auditd, 10)
    site.auditd.stop()
    shutil.copytree(site.auditd.log, tmp_path / "short")
    site.auditd.start()
    add(site.auditd, 10)
    site.wait_cosigned()
    site.auditd.stop()
    short = tmp_path / "short"
    (short / "cosigned").unlink(missing_ok=True)
    found_by_witnesses_alone(site, short, "incomplete")


def test_a_rollback_after_a_restore_is_refused_by_the_witnesses_and_recorded(site, tmp_path):
    site.start_cosignd()
    add(site.auditd, 10)
    site.wait_cosigned()
    site.auditd.stop()
    shutil.copytree(site.auditd.state, tmp_path / "backup")
    site.auditd.start()
    add(site.auditd, 40)
    size = site.wait_cosigned()
    site.auditd.stop()
    shutil.rmtree(site.auditd.state)
    shutil.copytree(tmp_path / "backup", site.auditd.state)
    subprocess.run(["chown", "-R", "65534:65534", site.auditd.state], check=True)
    site.auditd.start()
    assert site.auditd.client().append(event(), receipt=True)["proof"], "the attack does not work on a log without witnesses"
    wait(lambda: site.states() == ["conflict", "conflict"], 40, f"the witnesses' refusal: {site.cosignd.output()}")
    shown = site.shown()
    assert all(w["size"] >= size for w in shown["list"]) and shown["witnesses"]["size"] < size
    found = site.auditd.client().call("search", action="audit.witness")["records"]
    assert {row["outcome"] for row in found} == {"failed"} and len(found) == 2
    # It grows beyond what the witnesses saw: now it is a fork, and refused for that.
    add(site.auditd, 60)
    wait(lambda: any("forked" in (w["text"] or "") for w in site.shown()["list"]), 60, "the refusal of the fork")
    assert site.shown()["witnesses"]["size"] < size


def test_a_log_restored_without_its_cosigned_file_being_restored_stays_shut(site, tmp_path):
    site.start_cosignd()
    add(site.auditd, 10)
    site.auditd.stop()
    shutil.copytree(site.auditd.state, tmp_path / "backup")
    site.auditd.start()
    add(site.auditd, 40)
    site.wait_cosigned()
    wait(lambda: b"\n" in (site.auditd.log / "cosigned").read_bytes() and verify(site)[1]["witnesses"]["size"] > 40, 30, "the file to be written")
    site.auditd.stop()
    for path in (tmp_path / "backup/log").iterdir():
        if path.is_file() and path.name != "cosigned":
            shutil.copy(path, site.auditd.log / path.name)
    site.auditd.start(wait=False)
    assert site.auditd.wait() == 7 and "witnesses cosigned" in site.auditd.output()


def test_two_logs_of_one_name_get_one_history(site):
    """A split view: a second auditd with the same key, asking the same witnesses."""
    site.start_cosignd()
    add(site.auditd, 30)
    site.wait_cosigned()
    other = Auditd(origin="test.example/log")
    try:
        shutil.copy(site.auditd.state / "key", other.state / "key")
        os.chown(other.state / "key", 65534, 65534)
        other.start()
        add(other, 60, req="other")
        note = other.client().call("head")["checkpoint"]
        status, kind, text = site.witnesses[0].add("old 0\n\n" + note)
        assert status == 409 and kind == "text/x.tlog.size" and int(text) >= 30
        client = other.client()
        client.call("search", limit=1)
        head = client.call("head")
        with pytest.raises(Refused):
            client.call("consistency", **{"from": int(text), "to": 10**6})
        proof = client.call("consistency", **{"from": int(text), "to": head["size"]})["proof"]
        body = f"old {int(text)}\n" + "".join(f"{line}\n" for line in proof) + "\n" + head["checkpoint"]
        assert site.witnesses[0].add(body)[0] in (409, 422)   # 409: the true log has grown meanwhile
    finally:
        other.done()


def test_what_cosignd_says_is_not_believed(site):
    """cosignd is on the network: it can be late, or lie, and the log says nothing that no witness signed."""
    site.start_cosignd()
    add(site.auditd)
    site.wait_cosigned()
    note = site.shown()["checkpoint"]
    client = site.auditd.client()
    with pytest.raises(Refused) as refusal:
        client.call("cosign", witness="w1", note=note)
    assert refusal.value.code == "denied", "the reader of the log brought a cosignature"
    site.cosignd.stop()
    site.auditd.stop()
    site.auditd.conf["peers"] = [{"name": "tester", "user": "root", "append": True, "read": True, "cosign": True}]
    site.auditd.start()
    client = site.auditd.client()
    for bad, code in ((note.replace("w1.example", "w3.example"), "not_found"), (note.replace("\u2014 w1.example ", "\u2014 w1.example A"), "usage"),
                      (note.split("\n\n")[0] + "\n\n" + note.split("\n\n")[1].split("\n")[1] + "\n", "not_found"), ("", "usage"), ("x" * 60000, "usage"),
                      (note, "not_found")):            # the last: true, but of a head that this process did not give out
        with pytest.raises(Refused) as refusal:
            client.call("cosign", witness="w1", note=bad)
        assert refusal.value.code == code, (bad[:80], refusal.value.error)
    with pytest.raises(Refused):
        client.call("cosign", witness="w9", state="down")


# ---- the witness itself ----

@pytest.mark.parametrize("point", ["witness.before_store", "witness.after_store"])
def test_a_witness_killed_around_its_write_never_cosigns_two_histories(site, point):
    site.start_cosignd()
    add(site.auditd)
    site.wait_cosigned()
    witness = site.witnesses[0]
    witness.kill()
    witness.start({"name": witness.name, "state": str(witness.home / "state"), "socket": str(witness.socket), "logs": witness.logs}, [f"{point} kill 2"])
    add(site.auditd)
    assert witness.process.wait(30) == -9
    witness.up()
    add(site.auditd)
    wait(lambda: site.states() == ["ok", "ok"], 60, "both to cosign")
    site.wait_cosigned()
    site.auditd.stop()
    assert verify(site)[0] == 0


def test_a_second_witness_process_on_the_same_memory_is_refused(site):
    first = site.witnesses[0]
    second = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", first.program, "--config",
                             first.home / "enclave-witness.json", "--foreground"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=20)
    assert second.returncode == 5, second.stdout


def test_bad_requests_to_a_witness_get_a_status_and_change_nothing(site):
    site.start_cosignd()
    add(site.auditd)
    site.wait_cosigned()
    note = site.shown()["checkpoint"]
    witness = site.witnesses[0]
    for body, status in (("", 400), ("x", 400), ("old 0\n\nnothing.example/log\n1\nx\n\n\u2014 a AAAA\n", 404), ("old 1\n\n" + note.replace("\n\n", "\nx\n\n"), 403),
                         ("old 99999999\n\n" + note, 400), ("old 1\n\n" + note, 409), ("\0" * 100, 400), ("old 0\n" + "A" * 70000, 400)):
        assert witness.add(body)[0] == status, body[:60]
    assert witness.ask("GET", "/add-checkpoint")[0] == 405
    assert witness.ask("POST", "/etc/passwd", "x")[0] == 404
    add(site.auditd)
    site.wait_cosigned()
