"""enclave-auditd and enclave-verify as processes: what is acknowledged stays, what is done to the files is found."""
import base64
import hashlib
import json
import os
import shutil
import subprocess
import threading

import pytest

from audit_daemon import AUDITD, UID, VERIFY, Auditd, Client, Gone, Refused, event

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to set up the daemon's place")


@pytest.fixture
def auditd(request):
    made = Auditd(**getattr(request, "param", {}))
    yield made
    made.done()


def add(auditd, n=20, **members):
    client = auditd.client()
    indexes = [client.append(event(**members))["index"] for _ in range(n)]
    client.close()
    return indexes


# ---- the sunny side ----

def test_acknowledged_records_verify_and_receipts_hold(auditd, tmp_path):
    auditd.start()
    add(auditd, 30)
    answer = auditd.client().append(event(text="why"), receipt=True)
    (tmp_path / "proof").write_text(answer["proof"])
    (tmp_path / "record").write_text(answer["record"])
    command = [VERIFY, "proof", tmp_path / "proof", "--record", tmp_path / "record", "--vkey", auditd.state / "log.vkey", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0 and json.loads(done.stdout)["index"] == answer["index"]
    (tmp_path / "record").write_text(answer["record"].replace('"n1"', '"n2"'))
    assert subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 7
    assert auditd.stop() == 0
    status, report = auditd.verify()
    assert (status, report["result"]) == (0, "complete")
    assert report["size"] == len(auditd.bodies()) and report["first_bad"] is None
    record = auditd.records()[answer["index"]]
    assert record["src"]["name"] == "tester" and record["origin"] == "test.example/log" and record["idx"] == answer["index"]


def test_bodies_are_canonical_json(auditd):
    auditd.start()
    add(auditd, 3, actor={"user": "jörg \U0001f600", "uid": 5}, text="x")
    auditd.stop()
    for body in auditd.bodies().values():
        value = json.loads(body)
        assert json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() == body


def test_free_text_stays_out_of_the_log_and_is_bound_by_its_hash(auditd):
    secret = "patient-canary-4711"
    auditd.start()
    client = auditd.client()
    index = client.append(event(text=secret))["index"]
    answer = client.call("text", index=index)
    assert answer["text"] == secret
    found = client.call("search", node="n1")["records"]
    assert [row["text"] for row in found if row["index"] == index] == [secret]
    auditd.stop()
    assert all(secret.encode() not in path.read_bytes() for path in auditd.log.rglob("*") if path.is_file())
    salted = base64.b64decode(answer["salt"]) + secret.encode()
    assert auditd.records()[index]["text_hash"] == hashlib.sha256(salted).hexdigest()


def test_search_answers_in_the_contracts_shape(auditd):
    auditd.start()
    client = auditd.client()
    client.append({"class": "auth", "action": "login", "outcome": "ok", "actor": {"user": "res1", "role": "researcher", "mfa": True, "session": "s1"},
                   "peer": {"ip": "10.0.0.9"}, "obj": {"enclave": "cxr", "enclave_id": "abc"}})
    client.append({"class": "member", "action": "add", "outcome": "ok", "actor": {"user": "admin1"}, "obj": {"user": "res1", "enclave_id": "abc"}})
    client.append({"class": "auth", "action": "login", "outcome": "denied", "actor": {"user": "outsider1"}})
    answer = client.call("search", user="res1")
    assert {"origin", "size", "root", "witnesses", "records", "matched", "complete"} <= set(answer)
    assert {"index", "time", "class", "action", "outcome", "user", "role", "mfa", "session", "ip", "enclave", "dataset", "job", "node", "object",
            "text"} <= set(answer["records"][0])
    assert [row["action"] for row in answer["records"]] == ["login", "add"] and answer["complete"] is True
    row = answer["records"][0]
    assert (row["user"], row["mfa"], row["ip"], row["enclave"], row["dataset"]) == ("res1", True, "10.0.0.9", "cxr", None)
    assert client.call("search", outcome="denied")["matched"] == 1
    assert client.call("search", action="auth.login", limit=1)["complete"] is False
    assert client.call("search", enclave="abc")["matched"] == 2
    assert client.call("search", since="2020-01-01", until="2020-01-02")["matched"] == 0
    assert client.call("search", user="' OR 1=1 --")["matched"] == 0
    for bad in ({"since": "soon"}, {"limit": 5000}, {"limit": -1}, {"colour": "red"}, {"user": 5}):
        with pytest.raises(Refused) as refusal:
            client.call("search", **bad)
        assert refusal.value.code == "usage"


def test_a_name_finds_all_of_its_enclaves_and_shows_each(auditd):
    auditd.start()
    client = auditd.client()

    def add(cls, action, obj, **members):
        return client.append({"class": cls, "action": action, "outcome": "ok", "actor": {"user": "admin1"}, "obj": obj, **members})["index"]

    first = add("enclave", "create", {"enclave": "cxr", "enclave_id": "aaa"})
    step = add("step", "do", {"enclave_id": "aaa"}, data={"step": "reserve"})
    order = add("node", "order", {"node": "n1"}, head={"verb": "node.grant", "enclave": "aaa"})
    door = add("door", "open", {"enclave_id": "aaa"})
    add("enclave", "create", {"enclave": "other", "enclave_id": "ooo"})
    add("door", "open", {"enclave_id": "ooo"})
    again = add("enclave", "create", {"enclave": "cxr", "enclave_id": "bbb"})
    shut = add("door", "shut", {"enclave_id": "bbb"})
    answer = client.call("search", enclave="cxr")
    assert [row["index"] for row in answer["records"]] == [first, step, order, door, again, shut]
    assert {row["enclave"] for row in answer["records"]} == {"cxr"}, "a record that has the id alone is shown with the name"
    assert answer["enclaves"] == [{"name": "cxr", "id": "aaa", "first": first}, {"name": "cxr", "id": "bbb", "first": again}]
    one = client.call("search", enclave="bbb")
    assert [row["index"] for row in one["records"]] == [again, shut] and [e["id"] for e in one["enclaves"]] == ["bbb"]
    assert client.call("search", enclave="nothing")["enclaves"] == []
    auditd.stop()
    (auditd.state / "index.db").unlink()
    auditd.start()
    assert auditd.client().call("search", enclave="cxr")["matched"] == 6, "made again, it answers the same"


def test_a_user_brings_his_jobs_and_what_became_of_their_nodes(auditd):
    auditd.start()
    client = auditd.client()

    def add(cls, action, outcome="ok", **members):
        return client.append({"class": cls, "action": action, "outcome": outcome, **members})["index"]

    own = add("session", "start", actor={"user": "res1"}, obj={"enclave_id": "aaa"})
    submit = add("job", "submit", actor={"user": "res1"}, obj={"enclave_id": "aaa", "job": "7"})
    start = add("job", "start", obj={"enclave_id": "aaa", "job": "7", "node": "n1"})
    touched = add("file", "access", obj={"enclave_id": "aaa", "job": "7", "node": "n1", "path_hmac": "0" * 64})
    add("job", "start", obj={"enclave_id": "bbb", "job": "7", "node": "n1"})      # the same number in another enclave
    add("job", "submit", actor={"user": "res2"}, obj={"enclave_id": "aaa", "job": "8"})
    add("job", "start", obj={"enclave_id": "aaa", "job": "8", "node": "n2"})
    back = add("node", "return", obj={"enclave_id": "aaa", "node": "n1"})
    add("node", "return", obj={"enclave_id": "aaa", "node": "n2"})
    add("node", "return", obj={"enclave_id": "bbb", "node": "n1"})
    answer = client.call("search", user="res1")
    assert [row["index"] for row in answer["records"]] == [own, submit, start, touched, back]
    assert answer["matched"] == 5


def test_a_search_in_a_burst_finds_what_was_acknowledged_and_holds_nobody_up(auditd):
    auditd.conf["segment_bytes"] = 1 << 20
    auditd.start()
    writer, reader, sent, got = auditd.client(), auditd.client(), 0, 0
    for round_ in range(8):
        for _ in range(500):
            writer.send("append", record=event(req=f"r{sent}"), receipt=False)
            sent += 1
        while got < sent - 100:                            # some are always under way
            writer.receive()
            got += 1
        reader.send("search", node="n1", limit=1)          # waits for the index; the next append does not wait for it
        other = auditd.client()
        assert other.append()["index"] >= got
        other.close()
        answer = reader.receive()
        assert answer["matched"] >= got and answer["searched"] >= got
    while got < sent:
        writer.receive()
        got += 1
    assert reader.call("search", node="n1", limit=1)["matched"] == sent + 8
    assert reader.call("receipt", index=sent)["record"]


def test_the_side_index_is_made_again_when_it_is_lost_or_damaged(auditd):
    auditd.start()
    add(auditd, 50)
    auditd.stop()
    (auditd.state / "index.db").write_bytes(b"not a database" * 100)
    auditd.start()
    assert auditd.client().call("search", node="n1")["matched"] == 50


def test_a_copy_made_through_the_socket_verifies_elsewhere(auditd, tmp_path):
    auditd.start()
    add(auditd, 200)
    copy = auditd.copy(tmp_path / "copy")
    assert auditd.verify(folder=copy, *("--tail-age", "3600"))[0] == 0
    # In a root that holds nothing but the verifier, the copy and the key.
    cell = tmp_path / "cell"
    shutil.copytree(copy, cell / "log")
    shutil.copy(VERIFY, cell / "verify")
    shutil.copy(auditd.state / "log.vkey", cell / "vkey")
    done = subprocess.run(["chroot", cell, "/verify", "/log", "--vkey", "/vkey", "--tail-age", "3600"], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0 and done.stdout.startswith("complete")


def test_only_the_logs_own_files_can_be_read(auditd):
    auditd.start()
    client = auditd.client()
    for name in ("../key", "../text.db", "/etc/passwd", "tile/../../key", "tile/../../index.db", "", "seg-1.log", "."):
        with pytest.raises(Refused) as refusal:
            client.call("read", file=name, offset=0, length=10)
        assert refusal.value.code in ("not_found", "usage", "denied")


def test_receipts_of_old_records_are_made_again(auditd):
    auditd.conf["segment_bytes"] = 4096
    auditd.start()
    indexes = add(auditd, 300)
    auditd.restart()
    client = auditd.client()
    for index in (indexes[0], indexes[100], indexes[-1]):
        answer = client.call("receipt", index=index)
        assert answer["record"].encode() == auditd.bodies()[index] and answer["proof"].startswith("c2sp.org/tlog-proof@v1\n")
    with pytest.raises(Refused) as refusal:
        client.call("receipt", index=10**6)
    assert refusal.value.code == "not_found"


# ---- bad input ----

def test_bad_records_change_nothing_and_name_what_was_wrong(auditd):
    auditd.start()
    client = auditd.client()
    before = client.call("head")["records"]
    for record, pointer in (({}, "/class"), (event(action="dance"), "/action"), (event(outcome="fine"), "/outcome"), (event(extra=1), "/extra"),
                            (event(idx=0), "/idx"), (event(obj={}), "/obj/node"), (event(obj={"node": "n1", "x": 1}), "/obj/x"),
                            (event(obj={"node": "a\nb"}), "/obj/node"), (event(obj={"node": "a\u202eb"}), "/obj/node"), (event(data={"left": 1}), "/data/left"),
                            (event(text="x" * 20000), "/text"), (event(via="x" * 65536), "/via")):
        with pytest.raises(Refused) as refusal:
            client.append(record)
        assert refusal.value.code == "usage" and refusal.value.error.get("pointer") == pointer, refusal.value.error
    for raw in (b"{", b"[]", b'"x"', b'{"op":"append","op":"head"}', b'{"op":"dance"}', b'{"op":"append"}', b'{"op":"append","record":[]}',
                b'{"op":"append","record":{},"receipt":"yes"}', b'{"op":"append","record":{"class":"node","class":"job"}}', b"\xff"):
        client.send_raw(raw)
        with pytest.raises((Refused, Gone)):
            client.receive()
        client = auditd.client()
    client.append()
    assert client.call("head")["records"] <= before + 4  # what was refused is counted, once a second, in records of its own
    auditd.stop()
    records = auditd.records().values()
    assert sum(r["data"]["count"] for r in records if r["action"] == "dropped") >= 12
    assert [r["action"] for r in records if r["class"] == "node"] == ["lost"]


def test_records_of_the_log_about_itself_cannot_be_forged(auditd):
    auditd.start()
    with pytest.raises(Refused) as refusal:
        auditd.client().append({"class": "audit", "action": "recovery", "outcome": "ok"})
    assert refusal.value.code == "denied"


def test_a_stranger_is_not_heard_and_a_reader_cannot_write(auditd):
    auditd.conf["peers"] = [{"name": "reader", "user": "root", "read": True}]
    auditd.start()
    client = auditd.client()
    assert client.call("head")["size"] >= 1
    with pytest.raises(Refused) as refusal:
        client.append()
    assert refusal.value.code == "denied"
    auditd.conf["peers"] = [{"name": "writer", "user": "daemon", "append": True}]
    auditd.stop()
    auditd.start(wait=False)
    auditd_socket_gone = False
    for _ in range(200):
        try:
            stranger = Client(auditd.socket)
            stranger.call("head")
        except Gone:
            auditd_socket_gone = True
            break
        except OSError:
            threading.Event().wait(0.05)
    assert auditd_socket_gone, "a uid that is not listed was served"


# ---- crashes ----

POINTS = ["audit.before_commit", "audit.before_write", "audit.fsync", "audit.after_fsync", "audit.before_sign", "audit.sign", "audit.before_ack",
          "audit.rotate"]


@pytest.mark.parametrize("point", POINTS)
def test_invariant_05_no_acknowledged_record_is_lost_by_a_kill_at(auditd, point):
    auditd.conf["segment_bytes"] = 4096
    auditd.start(points=[f"{point} kill 9"])
    acknowledged, client = [], auditd.client()
    with pytest.raises(Gone):
        for i in range(400):
            acknowledged.append((client.append(event(req=f"r{i}"), receipt=i % 3 == 0)["index"], f"r{i}"))
    assert auditd.wait() == -9
    assert acknowledged, "the point was met before the first acknowledgement"
    auditd.start()
    records = auditd.records()
    for index, req in acknowledged:
        assert records[index]["req"] == req
    auditd.stop()
    assert auditd.verify()[0] == 0


def test_invariant_05_no_acknowledged_record_is_lost_by_kills_under_load(auditd):
    auditd.conf["segment_bytes"] = 65536
    for _ in range(5):
        acknowledged, lock = [], threading.Lock()
        auditd.start()

        def write(who):
            try:
                client = auditd.client()
                for i in range(100000):
                    index = client.append(event(req=f"{who}-{i}"))["index"]
                    with lock:
                        acknowledged.append((index, f"{who}-{i}"))
            except (Gone, OSError):
                pass

        threads = [threading.Thread(target=write, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        while len(acknowledged) < 200:
            threading.Event().wait(0.01)
        auditd.kill()
        for thread in threads:
            thread.join()
        auditd.start()
        records = auditd.records()
        for index, req in acknowledged:
            assert records[index]["req"] == req
        auditd.stop()
        assert auditd.verify()[0] == 0


def test_a_torn_tail_is_set_aside_and_recorded(auditd):
    auditd.start()
    add(auditd, 10)
    auditd.stop()
    with open(auditd.segments()[-1], "ab") as segment:
        segment.write(b"ENL1\x01\x00 torn")
    auditd.start()
    auditd.stop()
    recovery = [r for r in auditd.records().values() if r["action"] == "recovery"]
    assert len(recovery) == 1 and recovery[0]["data"]["bytes"] == 11
    kept = list((auditd.state / "quarantine").iterdir())
    assert [k.name for k in kept] == [recovery[0]["data"]["name"]]
    assert hashlib.sha256(kept[0].read_bytes()).hexdigest() == recovery[0]["data"]["hash"]
    assert auditd.verify()[0] == 0


def test_a_failed_fsync_is_never_acknowledged_and_the_log_reads_itself_again(auditd):
    auditd.start()
    kept = add(auditd, 5)
    auditd.stop()
    auditd.start(points=["audit.fsync fail 3"])
    client, refused = auditd.client(), 0
    for _ in range(5):
        try:
            kept.append(client.append()["index"])
        except Refused as refusal:
            assert refusal.code == "unavailable"
            refused += 1
    assert refused >= 3 and auditd.process.poll() is None
    assert "opened again" in auditd.output()
    auditd.restart()
    client = auditd.client()
    kept.append(client.append()["index"])
    auditd.stop()
    assert set(kept) <= set(auditd.bodies()) and auditd.verify()[0] == 0


def test_a_full_disk_stops_all_but_urgent_records(auditd):
    auditd.conf.update(reserve_bytes="2M", full_bytes="512K")
    auditd.tmpfs("6M")
    auditd.start()
    filler = auditd.state / "filler"
    client = auditd.client()
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 65536)
        except OSError:
            pass
    refused = None
    for _ in range(2000):
        try:
            client.append(event(via="x" * 60))
        except Refused as refusal:
            refused = refusal
            break
    # `node lost` may use the reserve, an ordinary order may not.
    ordinary = {"class": "api", "action": "call", "outcome": "ok", "actor": {"user": "admin1"}, "req": "r1"}
    for _ in range(2000):
        try:
            client.append(ordinary)
        except Refused as refusal:
            refused = refusal
            break
    assert refused and refused.code == "unavailable" and refused.error["next"]
    urgent = {"class": "breakglass", "action": "open", "outcome": "ok", "actor": {"user": "officer1"}, "obj": {"enclave_id": "abc"}}
    for _ in range(100):
        assert client.append(urgent, receipt=True)["proof"]
    filler.unlink()
    end = 0
    while end < 100:
        try:
            client.append(ordinary)
            break
        except Refused:
            threading.Event().wait(0.1)
            end += 1
    assert end < 100, "the log did not open again when there was room"
    auditd.stop()
    assert auditd.verify()[0] == 0
    assert any(r["action"] == "full" for r in auditd.records().values())


# ---- attacks ----

def test_a_second_sequencer_is_refused(auditd):
    auditd.start()
    second = subprocess.run(["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", AUDITD, "--config", auditd.home / "auditd.json", "--foreground"],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=20)
    assert second.returncode == 5, second.stdout
    add(auditd, 3)


def flip(auditd, index):
    data = bytearray(auditd.segments()[0].read_bytes())
    data[data.find(auditd.bodies()[index]) + 5] ^= 1
    auditd.segments()[0].write_bytes(data)


def cut(auditd, index):
    data = auditd.segments()[0].read_bytes()
    auditd.segments()[0].write_bytes(data[:data.find(auditd.bodies()[index])])


def rewrite_last_head(auditd, size):
    """The last checkpoint with another size, under its old signature."""
    heads = auditd.log / "checkpoints"
    head, at = heads.read_bytes(), heads.read_bytes().rfind(b"test.example/log\n", 0, -150)
    lines = head[at:].split(b"\n", 2)
    heads.write_bytes(head[:at] + lines[0] + size + lines[2])


ATTACKS = {
    "edited": (lambda a: flip(a, 10), "altered"),
    "truncated": (lambda a: cut(a, 10), "incomplete"),
    "emptied": (lambda a: a.segments()[0].write_bytes(b""), "incomplete"),
    "removed": (lambda a: a.segments()[0].unlink(), "incomplete"),
    "unsealed": (lambda a: (a.log / "checkpoints").unlink(), "unsigned"),
    "sealed_by_nobody": (lambda a: (a.log / "checkpoints").write_bytes(b""), "unsigned"),
    "resized": (lambda a: rewrite_last_head(a, b"\n7\n"), "altered"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_on_the_files_is_found_and_the_log_stays_shut(auditd, attack):
    auditd.start()
    client = auditd.client()
    for _ in range(30):
        client.append(receipt=True)
    auditd.stop()
    assert auditd.verify()[0] == 0
    do, result = ATTACKS[attack]
    do(auditd)
    status, report = auditd.verify()
    assert (status, report["result"]) == (7, result) and report["first_bad"]
    before = {p: p.read_bytes() for p in auditd.log.rglob("*") if p.is_file() and "tile" not in p.parts}
    auditd.start(wait=False)
    assert auditd.wait() == 7, auditd.output()
    assert {p: p.read_bytes() for p in auditd.log.rglob("*") if p.is_file() and "tile" not in p.parts} == before


def test_a_rolled_back_log_is_found_by_a_head_the_auditor_kept(auditd, tmp_path):
    auditd.start()
    add(auditd, 10)
    auditd.stop()
    shutil.copytree(auditd.log, tmp_path / "old")
    auditd.start()
    add(auditd, 10)
    (tmp_path / "head").write_text(auditd.client().call("head")["checkpoint"])
    auditd.stop()
    shutil.copy(auditd.log / "checkpoint", tmp_path / "head")
    assert auditd.verify("--seen", tmp_path / "head")[0] == 0
    # Whole in itself: without the head nothing is wrong with it.
    assert auditd.verify(folder=tmp_path / "old")[0] == 0
    assert auditd.verify("--seen", tmp_path / "head", folder=tmp_path / "old")[1]["result"] == "incomplete"


def test_the_wrong_key_never_passes(auditd, tmp_path):
    other = Auditd()
    try:
        for a in (auditd, other):
            a.start()
            add(a, 5)
            a.stop()
        done = subprocess.run([VERIFY, auditd.log, "--vkey", other.state / "log.vkey"], stdout=subprocess.PIPE, text=True)
        assert done.returncode == 7
        (tmp_path / "empty").write_text("")
        assert subprocess.run([VERIFY, auditd.log, "--vkey", tmp_path / "empty"], stderr=subprocess.DEVNULL).returncode == 8
        assert subprocess.run([VERIFY, tmp_path / "nothing", "--vkey", other.state / "log.vkey"], stdout=subprocess.DEVNULL).returncode == 8
        assert subprocess.run([VERIFY, auditd.log], stderr=subprocess.DEVNULL).returncode == 2
    finally:
        other.done()
