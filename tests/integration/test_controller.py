"""The real enclaved against fakes of log, key service, scheduler and agents (tests/fakes): its API, its engine, its answers to bad input.

What is proven here is the controller's half; the lab's tests prove the same with everything real."""
import json
import pathlib
import re
import socket
import ssl
import sys
import time

import pytest
import yaml
from prometheus_client.openmetrics import parser as openmetrics

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests"))
from fakes.site import ADMIN, AUDITOR, MEMBER, OFFICER, OUTSIDER, OWNER, STEWARD, Site  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
ROWS = ["authorise", "reserve", "drain", "detach", "isolate", "clean", "services", "keys", "storage", "scheduler", "join", "login", "prove", "open"]


@pytest.fixture(scope="module")
def site():
    s = Site()
    try:
        s.start()
        s.enroll_all()
        yield s
        s.wait(s.spool_empty, "all records in the log")
        assert not [e for a in s.agents.values() for e in a.errors]
    finally:
        print(s.stop())


@pytest.fixture(scope="module")
def spare():
    """One for tests that kill or starve it."""
    s = Site(nodes=("n1", "n2"), services=("s1", "s2", "s3", "s4"), observers=())
    try:
        s.start()
        s.enroll_all()
        yield s
    finally:
        print(s.stop())


@pytest.fixture(autouse=True)
def tidy(request):
    """What a failed test leaves must not fail the next one."""
    yield
    for name in {"site", "spare"} & set(request.fixturenames):
        s = request.getfixturevalue(name)
        s.mend()


def acts(site):
    """What the key service was asked to do; its state is asked for all the time, for the figures."""
    return [call for call in site.keys.server.calls if call["op"] != "status"]


def refused(site, before, status):
    """Exactly one new record of a refusal, with that status."""
    found = site.wait(lambda: site.log.find("api", "refused")[before:], "a record of the refusal")
    assert len(found) == 1 and found[0]["data"]["status"] == status, found


# ---- the story ----

def test_create_opens_and_destroy_returns_everything(site):
    done = site.create()
    assert done["state"] == "done", done["error"]
    e = done["result"]
    assert e["state"] == "open" and e["step"] is None and e["door"] == "open" and e["partition"] == "protected"
    assert [n["name"] for n in e["nodes"]] == ["n1", "n2"] and {n["pool"] for n in e["nodes"]} == {"enclave"}
    assert {s["role"] for s in e["services"]} == {"scheduler", "login"} and e["login"]["port"]
    assert e["evidence"]["state"] == "fresh" and e["evidence"]["probes"] == e["evidence"]["as_expected"] > 0
    assert {(v["name"], v["kind"], v["state"]) for v in e["volumes"]} == {("scratch", "scratch", "open"), ("cxr-data", "project", "open")}
    assert [s["step"] for s in e["steps"]] == ROWS and {s["outcome"] for s in e["steps"]} == {"ok"}
    assert site.agents["s2"].members, "the login node has the member document"
    listed = site.get("/v1/enclaves")["enclaves"]
    assert [x["name"] for x in listed] == ["cxr"] and listed[0]["nodes"] == ["n1", "n2"] and listed[0]["members"] == 1
    gone = site.destroy()
    assert gone["state"] == "done", gone["error"]
    r = gone["result"]
    assert r["state"] == "closed" and {v["name"]: v["state"] for v in r["volumes"]} == {"scratch": "erased", "cxr-data": "locked"}
    assert all(isinstance(n["certificate"], int) for n in r["nodes"])
    site.is_clean()
    cert = site.get("/v1/nodes/n1/certificate")
    assert cert["attest"] == {"equal": True} and cert["items"] and cert["proof"] and site.log.records[cert["record"]]["action"] == "return"
    assert site.get("/v1/enclaves")["enclaves"] == []


def test_invariant_04_the_door_opens_last_and_shuts_first(site):
    start = {n: len(a.documents) for n, a in site.agents.items()}
    assert site.create("door")["state"] == "done"
    login = site.agents[site.get("/v1/enclaves/door")["login"]["host"]]
    mine = login.documents[start[login.name]:]
    assert mine[-1]["door"] == 1 and not any(d["door"] for d in mine[:-1])
    before = {n: len(a.documents) for n, a in site.agents.items()}
    assert site.destroy("door")["state"] == "done"
    first = login.documents[before[login.name]]
    assert first["door"] == 0 and first["roles"] and first["fence"] == 2, "the first act of the way down is the door, and only that"
    site.is_clean()


def test_a_locked_volume_comes_back_to_its_owner(site):
    key = next(k for k, state in site.keys.keys.items() if state == "locked")
    assert site.create()["state"] == "done"
    assert site.keys.keys[key] == "live"
    assert site.destroy()["state"] == "done"
    assert site.keys.keys[key] == "locked"


def test_destroy_again_is_the_same_answer(site):
    first, again = site.destroy("cxr"), site.destroy("cxr")
    assert first["result"]["state"] == again["result"]["state"] == "closed"


def test_invariant_05_each_loosening_act_stands_in_the_log_before_it_is_done(site):
    for grant in site.keys.grants:
        orders = [r for r in site.log.find("node", "order", "intent") if r["head"]["node"] == grant["node"]]
        assert any(r["head"]["generation"] == grant["generation"] for r in orders)
    steps = site.log.find("step", "do", "intent")
    assert {r["data"]["step"] for r in steps} == set(ROWS)


def test_nothing_of_the_enclave_is_in_what_observers_and_the_scheduler_see(site):
    text = json.dumps(site.schedd.server.calls) + json.dumps([{**d, "peers": [{**p, "overlay_key": None} for p in d["peers"]]}
                                                             for d in site.agents["head"].documents])
    for word in ("cxr", "chest", OWNER + '"', "BAA-17"):
        assert word not in text, word


def test_an_observer_is_in_no_pool_and_is_not_lent(site):
    listed = site.get("/v1/nodes")
    assert [n["name"] for n in listed["nodes"]] == ["n1", "n2", "n3", "s1", "s2"] and {n["pool"] for n in listed["nodes"]} == {"general", "service"}
    assert [(n["name"], n["pool"]) for n in listed["observers"]] == [("head", None)]
    assert site.get("/v1/nodes/head")["nodes"][0]["pool"] is None
    status, answer = site.call(ADMIN, "POST", "/v1/enclaves", order(nodes="head"))
    assert status == 404 and "lend" in answer["error"]["text"], answer


def test_a_cluster_of_more_than_one_page_is_read_whole(site):
    site.schedd.page = 1
    try:
        assert {n["name"]: n["slurm_state"] for n in site.get("/v1/nodes")["nodes"] if n["pool"] == "general"} == {"n1": "idle", "n2": "idle", "n3": "idle"}
        status, plan = site.call(ADMIN, "POST", "/v1/enclaves/plan", order(nodes="n3"))
        assert status == 200 and plan["allowed"] and [n["name"] for n in plan["nodes"]] == ["n3"], plan
        done = site.create("paged", nodes="n[2-3]")
        assert done["state"] == "done", done["error"]
        assert site.destroy("paged")["state"] == "done"
        site.is_clean()
    finally:
        site.schedd.page = 1000


def test_a_create_right_after_a_destroy_waits_for_the_nodes_and_the_plan_says_when(spare):
    assert spare.create("first")["state"] == "done"
    status, plan = spare.call(ADMIN, "POST", "/v1/enclaves/plan", order(name="next", on_busy="wait"))
    assert status == 200 and not plan["allowed"], "an open enclave is no promise"
    _, gone = spare.call(ADMIN, "DELETE", "/v1/enclaves/first")
    spare.wait(lambda: spare.get("/v1/enclaves/first")["state"] == "closing", "the way down")
    status, plan = spare.call(ADMIN, "POST", "/v1/enclaves/plan", order(name="next", on_busy="wait"))
    assert plan["allowed"] and {n["why"] for n in plan["nodes"]} == {"on its way back"} and plan["ready_at"]["wait"], plan
    status, refused = spare.call(ADMIN, "POST", "/v1/enclaves", order(name="next", on_busy="fail"))
    assert status == 409, "who does not want to wait is told at once"
    done = spare.create("next", on_busy="wait")
    assert done["state"] == "done", done["error"]
    assert spare.finish(gone["operation"])["state"] == "done"
    assert spare.destroy("next")["state"] == "done"
    spare.is_clean()


# ---- bad input: one line, nothing changed, one record ----

def order(**change):
    body = {"name": "cxr", "nodes": 2, "agreement": "BAA-17", "purpose": "x", "owner": OWNER}
    body.update(change)
    return {k: v for k, v in body.items() if v is not None}


BAD = [
    ("bad name", ADMIN, order(name="Bad_Name"), 400, "usage", "/name"),
    ("name ends in a dash", ADMIN, order(name="cxr-"), 400, "usage", "/name"),
    ("no name", ADMIN, order(name=None), 400, "usage", "/name"),
    ("zero nodes", ADMIN, order(nodes=0), 400, "usage", "/nodes"),
    ("negative nodes", ADMIN, order(nodes=-1), 400, "usage", "/nodes"),
    ("nodes of a wrong type", ADMIN, order(nodes=[1]), 400, "usage", "/nodes"),
    ("bad host list", ADMIN, order(nodes="n[1-"), 400, "usage", "/nodes"),
    ("unknown option", ADMIN, order(color="red"), 400, "usage", "/color"),
    ("bad duration", ADMIN, order(ttl_s="soon"), 400, "usage", "/ttl_s"),
    ("bad choice", ADMIN, order(on_busy="kill"), 400, "usage", "/on_busy"),
    ("control characters", ADMIN, order(purpose="a\u001b[31m"), 400, "usage", "/purpose"),
    ("caller without the role", OWNER, order(), 403, "denied", None),
    ("caller without any role", OUTSIDER, order(), 403, "denied", None),
    ("root has no role", "root", order(), 403, "denied", None),
    ("lapsed agreement", ADMIN, order(agreement="BAA-3"), 403, "denied", None),
    ("unknown agreement", ADMIN, order(agreement="BAA-99"), 403, "denied", None),
    ("longer than the policy allows", ADMIN, order(ttl_s=40 * 86400), 403, "denied", None),
    ("owner without training", ADMIN, order(owner=OUTSIDER), 403, "denied", None),
    ("unknown owner", ADMIN, order(owner="nosuchuser"), 404, "not_found", None),
    ("unknown owner and no role", OUTSIDER, order(owner="nosuchuser"), 403, "denied", None),
    ("unknown member", ADMIN, order(members=[{"user": "nosuchuser"}]), 404, "not_found", None),
    ("unknown node", ADMIN, order(nodes="n1,n99"), 404, "not_found", None),
    ("a service node", ADMIN, order(nodes="s1"), 404, "not_found", None),
    ("more nodes than there are", ADMIN, order(nodes=4), 409, "busy", None),
]


@pytest.mark.parametrize("what,user,body,status,code,pointer", BAD, ids=[b[0].replace(" ", "_") for b in BAD])
def test_a_bad_order_is_refused(site, what, user, body, status, code, pointer):
    before, calls = len(site.log.find("api", "refused")), len(acts(site))
    generations = {n["name"]: n["generation"] for n in site.get("/v1/nodes")["nodes"]}
    got, answer = site.call(user, "POST", "/v1/enclaves", body)
    assert got == status and answer["error"]["code"] == code, answer
    assert set(answer["error"]) >= {"code", "step", "object", "text", "next"} and answer["error"]["text"] and "\n" not in answer["error"]["text"]
    if pointer:
        assert answer["error"]["pointer"] == pointer, answer
    refused(site, before, status)
    assert len(acts(site)) == calls and site.get("/v1/enclaves")["enclaves"] == []
    assert {n["name"]: n["generation"] for n in site.get("/v1/nodes")["nodes"]} == generations


MALFORMED = [
    ("not JSON", "{", None), ("trailing text", '{"name":"cxr"} x', None), ("duplicate key", '{"name":"a","name":"b"}', "/name"),
    ("deep", "[" * 40 + "]" * 40, None), ("empty", "", None), ("not an object", "[]", None), ("lone surrogate", '{"name":"\\ud800"}', None),
    ("over-long", '{"name":"' + "a" * 70000 + '"}', None),
]


@pytest.mark.parametrize("what,text,pointer", MALFORMED, ids=[m[0].replace(" ", "_") for m in MALFORMED])
def test_a_malformed_body_is_refused(site, what, text, pointer):
    before = len(site.log.find("api", "refused"))
    status, answer = site.call(ADMIN, "POST", "/v1/enclaves", text=text)
    assert 400 <= status < 500 and answer["error"]["code"] == "usage", answer
    if pointer:
        assert answer["error"]["pointer"] == pointer
    refused(site, before, status)


def test_names_and_nodes_in_use_conflict(site):
    assert site.create("held", "n1")["state"] == "done"
    try:
        assert site.order("held", "n2")[1]["error"]["code"] == "conflict"
        status, answer = site.order("other", "n1")
        assert status == 409 and answer["error"]["code"] == "busy" and answer["error"]["object"] == "n1"
        assert site.order("other", "n2")[1]["error"]["code"] == "busy", "no service nodes are left"
    finally:
        assert site.destroy("held")["state"] == "done"
    site.is_clean()


def test_invariant_11_unknown_and_not_yours_are_the_same_answer(site):
    assert site.create("secret", 1)["state"] == "done"
    try:
        for method, path in (("GET", "/v1/enclaves/%s"), ("DELETE", "/v1/enclaves/%s"), ("GET", "/v1/enclaves/%s/members"), ("GET", "/v1/enclaves/%s/jobs"),
                             ("DELETE", "/v1/enclaves/%s/members/man"), ("GET", "/v1/enclaves/%s/sessions")):
            answers = [site.call(user, method, path % name) for user in (OUTSIDER, MEMBER) for name in ("secret", "nosuch")]
            assert all(a == answers[0] for a in answers), answers
            assert answers[0][0] == 404
        assert site.get("/v1/enclaves", OUTSIDER)["enclaves"] == []
        assert [e["name"] for e in site.get("/v1/enclaves", OWNER)["enclaves"]] == ["secret"]
        assert site.call(OUTSIDER, "GET", "/v1/nodes")[0] == 403
    finally:
        assert site.destroy("secret", OWNER)["state"] == "done", "an owner may end his own"
    site.is_clean()


def test_invariant_08_waiting_shows_for_what_and_the_next_command(site):
    site.schedd.nodes["n1"]["jobs"] = [17]
    status, answer = site.order("busy", "n1")
    assert status == 202
    w = site.wait(lambda: site.get("/v1/enclaves/busy")["waiting"], "it says what it waits for")
    assert "1 jobs" in w["for"] and w["next"] and w["until"]
    assert site.get("/v1/enclaves/busy")["step"] == "drain" and site.get("/v1/enclaves/busy")["state"] == "creating"
    site.schedd.nodes["n1"]["jobs"] = []
    assert site.finish(answer["operation"])["state"] == "done"
    assert site.destroy("busy")["state"] == "done"


def test_destroy_gives_up_a_create_that_waits(site):
    site.schedd.nodes["n1"]["jobs"] = [18]
    status, answer = site.order("early", "n1")
    site.wait(lambda: site.get("/v1/enclaves/early")["waiting"], "it waits")
    assert site.destroy("early")["state"] == "done"
    assert site.finish(answer["operation"])["state"] == "failed"
    assert site.schedd.nodes["n1"]["jobs"] == [18], "nobody's job was ended"
    site.schedd.nodes["n1"]["jobs"] = []
    site.is_clean()


@pytest.mark.parametrize("how,ended", [("requeue", [(19, "requeue")]), ("cancel", [(19, "cancel")])])
def test_jobs_are_ended_as_asked(site, how, ended):
    site.schedd.nodes["n1"]["jobs"], site.schedd.ended = [19], []
    assert site.create("ended", "n1", on_busy=how)["state"] == "done"
    assert site.schedd.ended == ended
    assert site.destroy("ended")["state"] == "done"


def test_on_busy_fail_and_a_deadline_end_it(site):
    site.schedd.nodes["n1"]["jobs"] = [20]
    assert site.create("fails", "n1", on_busy="fail")["error"]["code"] == "busy"
    late = site.create("late", "n1", deadline_s=1)
    assert late["error"]["code"] == "timeout" and late["error"]["step"] == "drain" and late["steps"]
    site.schedd.nodes["n1"]["jobs"] = []
    site.is_clean()


def test_plan_changes_nothing_and_says_what_would_be_refused(site):
    generations = {n["name"]: n["generation"] for n in site.get("/v1/nodes")["nodes"]}
    status, plan = site.call(ADMIN, "POST", "/v1/enclaves/plan", order())
    assert status == 200 and plan["allowed"] and [n["name"] for n in plan["nodes"]] == ["n1", "n2"] and plan["steps"] == ROWS
    status, plan = site.call(ADMIN, "POST", "/v1/enclaves/plan", order(nodes=9))
    assert status == 200 and not plan["allowed"] and plan["refusals"][0]["code"] == "busy"
    assert site.call(OWNER, "POST", "/v1/enclaves/plan", order())[0] == 403
    assert {n["name"]: n["generation"] for n in site.get("/v1/nodes")["nodes"]} == generations


# ---- members ----

def test_members_are_added_and_removed_with_a_new_document_on_every_node(site):
    assert site.create("team", 1)["state"] == "done"
    login = site.agents[site.get("/v1/enclaves/team")["login"]["host"]]
    first = login.members
    status, answer = site.call(OWNER, "POST", "/v1/enclaves/team/members", {"user": MEMBER})
    assert status == 202 and {m["user"] for m in answer["members"]} == {OWNER, MEMBER}, answer
    second = login.members
    assert second != first
    assert site.call(STEWARD, "POST", "/v1/enclaves/team/members", {"user": "nosuchuser"})[0] == 404
    assert site.call(OWNER, "POST", "/v1/enclaves/team/members", {"user": OUTSIDER})[0] == 403, "no training"
    assert site.call(MEMBER, "POST", "/v1/enclaves/team/members", {"user": MEMBER})[0] == 403
    assert site.get("/v1/enclaves/team", MEMBER)["state"] == "open"
    start = time.monotonic()
    status, answer = site.call(OFFICER, "DELETE", "/v1/enclaves/team/members/" + MEMBER)
    assert status == 202 and {m["user"] for m in answer["members"]} == {OWNER} and time.monotonic() - start < 10
    assert login.members not in (first, second)
    assert site.call(MEMBER, "GET", "/v1/enclaves/team")[0] == 404
    assert site.call(OFFICER, "DELETE", "/v1/enclaves/team/members/" + MEMBER)[0] == 404
    record = site.wait(lambda: site.log.find("member", "remove"), "the record of the removal")[-1]
    assert record["data"]["ms"] < 10000 and record["obj"]["user"] == MEMBER
    assert site.destroy("team")["state"] == "done"


def test_a_member_sees_his_own_jobs_and_the_owner_all(site):
    assert site.create("jobs", 1, members=[{"user": MEMBER, "role": "member"}])["state"] == "done"
    scheduler = next(x["node"] for x in site.get("/v1/enclaves/jobs")["services"] if x["role"] == "scheduler")
    jobs = [{"id": i, "user": u, "state": "running"} for i, u in enumerate((OWNER, MEMBER, OWNER), 1)]
    site.agents[scheduler].evidence["slurm"]["jobs"] = jobs
    site.wait(lambda: site.get("/v1/enclaves/jobs/jobs")["jobs"] == jobs, "the jobs in a report")
    assert [j["id"] for j in site.get("/v1/enclaves/jobs/jobs", MEMBER)["jobs"]] == [2]
    assert site.get("/v1/enclaves/jobs/jobs", OWNER)["jobs"] == site.get("/v1/enclaves/jobs/jobs", AUDITOR)["jobs"] == jobs
    assert site.destroy("jobs")["state"] == "done"


def test_nodes_of_an_open_enclave_are_measured_again(site):
    assert site.create("long", 1)["state"] == "done"
    first = site.agents["n1"].areas["measure"]
    site.wait(lambda: site.agents["n1"].areas["measure"] != first, "another measurement", 20)
    site.wait(lambda: site.agents["n1"].areas["door"] == "shut" and site.get("/v1/enclaves/long")["door"] == "open", "it is still open")
    assert site.destroy("long")["state"] == "done"
    site.is_clean()


# ---- agents ----

def test_no_or_a_foreign_certificate_is_a_tls_alert(site):
    node = site.agents["n1"]
    raw = socket.create_connection(("127.0.0.1", site.port), timeout=10)
    with pytest.raises(ssl.SSLError):
        tls = node._context(node.ca, False).wrap_socket(raw, server_hostname="enclave-controller")
        tls.sendall(b"GET /v1/agent/document?after=0 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert tls.recv(1000) == b"never"
    site.keys._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", site.dir / "f.key", "-out",
                       site.dir / "f.crt", "-days", "2", "-subj", "/CN=n1")
    context = node._context(node.ca, False)
    context.load_cert_chain(site.dir / "f.crt", site.dir / "f.key")
    raw = socket.create_connection(("127.0.0.1", site.port), timeout=10)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        tls = context.wrap_socket(raw, server_hostname="enclave-controller")
        tls.sendall(b"GET /v1/agent/document?after=0 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert tls.recv(1000) == b"never"


def test_tokens_are_for_one_node_one_time_and_the_enrolment_name_opens_nothing_else(site):
    from fakes.agent import Agent
    new = Agent("n9", site.dir, site.port)
    token = site.call(ADMIN, "POST", "/v1/nodes/n9/enroll", {})[1]["token"]
    other = Agent("n8", site.dir, site.port)
    assert other.request(token, site.ca)[0] == 403, "another node's token"
    assert new.request("0" * 48, site.ca)[0] == 403, "no token of ours"
    site.keys.sealed = True
    assert new.request(token, site.ca)[0] == 503
    site.keys.sealed = False
    assert new.request(token, site.ca)[0] == 200, "a key service that was away costs no token"
    assert new.request(token, site.ca)[0] == 403, "used"
    c = new.connect(enrol=True, ca=site.ca)
    assert new.call(c, "GET", "/v1/agent/document?after=0")[0] == 403
    assert site.call(OWNER, "POST", "/v1/nodes/n9/enroll", {})[0] == 403
    assert token not in json.dumps(site.log.records)


@pytest.mark.parametrize("change", [{"node": "n2"}, {"generation": 9999}, {"identity": "f" * 64}], ids=["for_another", "a_generation_never_given", "another_identity"])
def test_an_agent_that_lies_is_refused(site, change):
    a = site.agents["n3"]
    c = a.connect()
    before = site.get("/v1/nodes/n2")["nodes"][0]["observed"]
    body = {"node": "n3", "version": 1, "generation": a.generation, "areas": {"fence": "enclave"}, "facts": {}, **change}
    assert a.call(c, "POST", "/v1/agent/report", body)[0] == 403
    assert site.get("/v1/nodes/n2")["nodes"][0]["observed"] == before


def test_events_of_a_node_are_acknowledged_once_they_are_in_the_log(site):
    a = site.agents["n3"]
    a.events = [{"counter": i, "class": "node", "action": "tighten", "outcome": "ok", "obj": {"node": "n3"}, "data": {"area": "fence"}} for i in (1, 2)]
    site.wait(lambda: not a.events, "they are acknowledged")
    found = [r for r in site.log.find("node", "tighten") if r["src"]["node"] == "n3"]
    assert [r["src"]["counter"] for r in found] == [1, 2] and all(r["obj"]["node"] == "n3" for r in found)
    site.log.server.close()
    a.events = [{"counter": 3, "class": "node", "action": "tighten", "outcome": "ok"}]
    time.sleep(2.5)
    assert a.events, "not acknowledged while the log is away"
    site.log.server.open()
    site.wait(lambda: not a.events, "acknowledged when it is back")


def tell(site, node, *events):
    """Events as root of that node could make its agent send them: the new records of the log, refusals among them."""
    a, before = site.agents[node], len(site.log.records)
    first = getattr(a, "told", 100)
    a.events = [{"counter": first + i, "outcome": "ok", "time": "2027-01-01T00:00:00Z", **e} for i, e in enumerate(events)]
    a.told = first + len(events)
    site.wait(lambda: not a.events, "they are acknowledged")
    site.wait(site.spool_empty, "all records in the log")
    return [r for r in site.log.records[before:] if r["obj"].get("node") == node and (r["action"] == "refused" or r.get("src", {}).get("node") == node)]


def test_a_node_puts_nothing_into_the_log_but_its_own_doings(site):
    """Root of a node has its certificate: a false clean return, a key's end or an admin's act in the log would be the log's word."""
    lies = [("node", "return", "of-a-kind-that-is-not-a-node-s-to-tell"), ("node", "clean", "of-a-kind-that-is-not-a-node-s-to-tell"),
            ("node", "order", "of-a-kind-that-is-not-a-node-s-to-tell"), ("key", "destroy", "of-a-kind-that-is-not-a-node-s-to-tell"),
            ("enclave", "evidence", "of-a-kind-that-is-not-a-node-s-to-tell"), ("member", "add", "of-a-kind-that-is-not-a-node-s-to-tell"),
            ("audit", "search", "of-a-kind-that-is-not-a-node-s-to-tell"), ("x y", "\n", "of-a-kind-that-is-not-a-node-s-to-tell"),
            ("session", "start", "of-no-enclave"), ("auth", "failed", "of-no-enclave"), ("job", "end", "of-no-enclave")]
    got = tell(site, "n3", *({"class": c, "action": a, "actor": {"user": ADMIN}, "obj": {"node": "n3"}} for c, a, _ in lies))
    assert [(r["class"], r["action"], r["data"]["reason"]) for r in got] == [("node", "refused", why) for _, _, why in lies]
    assert [r["data"]["kind"] for r in got[:3]] == ["node.return", "node.clean", "node.order"] and got[7]["data"]["kind"] == "unknown"
    got = tell(site, "n3", {"class": "node", "action": "tighten", "obj": {"node": "n1"}})
    assert [(r["action"], r["data"]["reason"]) for r in got] == [("refused", "of-another-node")]
    got = tell(site, "n3", {"class": "node", "action": "tamper", "obj": {"node": "n3", "enclave": "cxr", "user": OWNER}, "actor": {"user": ADMIN},
                            "head": {"verb": "node.grant"}, "policy": {"rule": "x"}, "text": "free", "data": {"area": "fence"}})
    assert len(got) == 1 and set(got[0]) == {"class", "action", "outcome", "src", "data", "obj"} and set(got[0]["obj"]) == {"node"}, got


def test_a_node_tells_of_its_own_enclave_members_and_sessions_alone(spare):
    assert spare.create("mine", 1)["state"] == "done" and spare.create("other", 1)["state"] == "done"
    mine, other = spare.get("/v1/enclaves/mine"), spare.get("/v1/enclaves/other")
    login, theirs, compute = mine["login"]["host"], other["login"]["host"], mine["nodes"][0]["name"]

    def session(action, ident, enclave, user=OWNER):
        return {"class": "session", "action": action, "actor": {"user": user, "session": ident, "role": "admin"}, "peer": {"ip": "198.51.100.7"},
                "obj": {"enclave_id": enclave["id"], "enclave": "other"}, "data": {}}

    own, foreign = "m" + "a" * 25, "f" + "a" * 25
    got = tell(spare, login, session("start", own, mine))
    assert [(r["action"], r["obj"]["enclave"]) for r in got] == [("start", "mine")] and "role" not in got[0]["actor"]
    assert [r["action"] for r in tell(spare, theirs, session("start", foreign, other))] == ["start"]
    wrong = [(login, session("start", "n" + "a" * 25, other), "of-another-enclave"), (login, session("start", "n" + "a" * 25, mine, OUTSIDER), "of-somebody-who-is-no-member"),
             (login, session("start", foreign, mine), "of-a-session-that-is-not-its-own"), (login, session("end", foreign, mine), "of-a-session-that-is-not-its-own"),
             (login, session("end", own, mine, ADMIN), "of-a-session-that-is-not-its-own"), (login, session("end", "never", mine), "of-no-session"),
             (compute, session("start", "n" + "a" * 25, mine), "not-from-the-login-node"), (compute, session("end", own, mine), "of-a-session-that-is-not-its-own"),
             (login, {"class": "auth", "action": "login", "actor": {"user": OUTSIDER}, "obj": {"enclave_id": mine["id"]}}, "of-somebody-who-is-no-member")]
    for node, event, why in wrong:
        got = tell(spare, node, event)
        assert [(r["action"], r["data"]["reason"]) for r in got] == [("refused", why)], event
    assert [s["id"] for s in spare.get("/v1/enclaves/mine/sessions")["sessions"]] == [own]
    assert [s["id"] for s in spare.get("/v1/enclaves/other/sessions")["sessions"]] == [foreign]
    assert [r["action"] for r in tell(spare, login, session("end", own, mine))] == ["end"]
    assert spare.get("/v1/enclaves/mine/sessions")["sessions"] == []
    for name in ("mine", "other"):
        assert spare.destroy(name)["state"] == "done"
    got = tell(spare, theirs, session("end", foreign, other))
    assert [r["action"] for r in got] == ["end"], "what it told late is still its own"


def test_sessions_of_a_boot_that_is_over_end_in_the_log_although_nobody_tells_of_it(spare):
    assert spare.create("boots", 1)["state"] == "done"
    e = spare.get("/v1/enclaves/boots")
    login = e["login"]["host"]
    for ident in ("b" + "a" * 25, "c" + "a" * 25):
        got = tell(spare, login, {"class": "session", "action": "start", "actor": {"user": OWNER, "session": ident}, "peer": {"ip": "198.51.100.7"},
                                  "obj": {"enclave_id": e["id"], "enclave": "boots"}, "data": {}})
        assert [r["action"] for r in got] == ["start"]
    spare.agents[login].restarted()
    spare.wait(lambda: spare.get("/v1/enclaves/boots/sessions")["sessions"] == [], "the sessions to be over")
    spare.wait(spare.spool_empty, "all records in the log")
    ended = [r for r in spare.log.find("session", "end", "failed") if r["data"]["reason"] == "the-node-was-rebooted"]
    assert sorted(r["actor"]["session"][0] for r in ended) == ["b", "c"] and {r["obj"]["node"] for r in ended} == {login}
    spare.wait(lambda: spare.get("/v1/enclaves/boots")["waiting"] is None, "the node to be led back", 60)
    assert spare.destroy("boots")["state"] == "done"


def places(site):
    """Connections that the controller holds."""
    return len(list(pathlib.Path(f"/proc/{site.process.pid}/fd").iterdir()))


def test_strangers_who_open_connections_without_end_do_not_take_the_places_of_nodes(site):
    from fakes.agent import Agent
    before, held, stranger = places(site), [], Agent("n9", site.dir, site.port)
    try:
        for _ in range(200):
            held.append(stranger.connect(enrol=True, ca=site.ca))
        site.wait(lambda: places(site) < before + 80, "the oldest to be shown out")
        seen = site.agents["n3"].report()
        assert seen[0] == 200
        token = site.call(ADMIN, "POST", "/v1/nodes/n9/enroll", {})[1]["token"]
        assert stranger.request(token, site.ca)[0] == 200, "one who comes last is served"
    finally:
        for c in held:
            c.close()


def test_a_node_that_opens_connections_without_end_has_a_few(site):
    before, held, a = places(site), [], site.agents["n3"]
    try:
        for _ in range(60):
            held.append(a.connect())
            assert a.call(held[-1], "POST", "/v1/agent/report", {"node": "n3"})[0] == 400
        site.wait(lambda: places(site) < before + 30, "the oldest to be shown out")
        assert site.agents["n2"].report()[0] == 200
    finally:
        for c in held:
            c.close()


def test_two_agents_with_one_identity_are_an_alarm(site):
    twin = site.agents["n3"]
    for _ in range(4):
        c = twin.connect()
        c.request("GET", "/v1/agent/document?after=9999")
        time.sleep(0.4)
    site.wait(lambda: site.log.find("node", "twin"), "the alarm")


# ---- faults on the way ----

def test_a_node_that_differs_is_quarantined_with_the_row_named(site):
    site.keys.differs["n2"] = ["packages"]
    failed = site.create("bad", "n2")
    assert failed["error"]["code"] == "integrity" and failed["error"]["text"] == "n2 differs from its baseline: packages", failed["error"]
    assert failed["error"]["step"] == "clean" and failed["error"]["object"] == "n2"
    node = site.get("/v1/nodes/n2")["nodes"][0]
    assert node["pool"] == "quarantine" and "packages" in node["why"] and node["next"] == "enclavectl node release n2"
    assert site.agents["n2"].areas["fence"] == "airlock" and site.schedd.nodes["n2"]["state"] == "drained"
    assert site.order("again", "n2")[1]["error"]["code"] == "busy"
    assert site.call(ADMIN, "POST", "/v1/nodes/n2/release", {})[0] == 422, "still different"
    site.keys.differs.clear()
    status, answer = site.call(ADMIN, "POST", "/v1/nodes/n2/release", {})
    assert status == 202 and answer["nodes"][0]["pool"] == "general", answer
    site.is_clean()


AREAS = [("units", "down"), ("fence", "_fence"), ("clean", "_clean"), ("measure", "_measure"), ("overlay", "up"), ("volumes", "up"), ("roles", "up"),
         ("door", "up"), ("probe", "_probe")]


@pytest.mark.parametrize("area,way", AREAS, ids=[a for a, _ in AREAS])
def test_an_area_that_fails_on_the_way_up_ends_in_a_clean_pool(site, area, way):
    for name in ("n1", "s2"):
        site.agents[name].fail = {area: (way, "told to fail")}
    status, answer = site.order("fails", "n1")
    failed = []
    def mended():
        for n in ("n1", "s2"):
            if site.agents[n].failed:
                failed.append(n)
                site.agents[n].fail = {}
        return failed
    site.wait(mended, "the failure was met")
    for n in ("n1", "s2"):
        site.agents[n].fail = {}
    done = site.finish(answer["operation"])
    assert done["state"] == "failed" and "told to fail" in done["error"]["text"], done
    site.is_clean()


def test_invariant_02_a_node_that_does_not_clean_goes_to_quarantine_and_it_alone(site):
    assert site.create("two", "n1,n2")["state"] == "done"
    site.agents["n1"].fail = {"clean": ("_clean", "residue is left")}
    gone = site.destroy("two")
    assert gone["state"] == "done"
    assert {n["name"]: n["pool"] for n in gone["result"]["nodes"]} == {"n1": "quarantine", "n2": "general", "s1": "service", "s2": "service"}
    assert site.agents["n1"].areas["fence"] == "airlock" and not site.agents["n1"].areas["volumes"]
    assert site.schedd.nodes["n1"]["state"] == "drained" and site.schedd.nodes["n2"]["state"] == "idle"
    assert site.wait(lambda: site.log.find("node", "quarantine"), "the alarm")[-1]["obj"]["node"] == "n1"
    site.agents["n1"].fail = {}
    assert site.call(ADMIN, "POST", "/v1/nodes/n1/release", {})[0] == 202
    site.is_clean()


def test_sealed_keys_take_an_enclave_apart_but_give_nothing_back(spare):
    assert spare.create("vault", "n1")["state"] == "done"
    spare.keys.sealed = True
    status, answer = spare.call(ADMIN, "DELETE", "/v1/enclaves/vault")
    assert status == 202
    n1 = spare.agents["n1"]
    spare.wait(lambda: n1.areas["fence"] == "airlock" and not n1.areas["volumes"] and not n1.areas["roles"], "the node is in the airlock")
    spare.wait(lambda: "sealed" in (spare.get("/v1/enclaves/vault")["waiting"] or {"for": ""})["for"], "it says that it waits for the key service")
    assert spare.pools()["n1"] != "general" and spare.schedd.nodes["n1"]["state"] == "drained"
    spare.keys.sealed = False
    assert spare.finish(answer["operation"])["state"] == "done"
    spare.is_clean()


def test_invariant_05_without_the_log_nothing_is_loosened_and_the_door_shuts_at_once(spare):
    assert spare.create("dark", "n1")["state"] == "done"
    login = spare.agents[spare.get("/v1/enclaves/dark")["login"]["host"]]
    spare.log.server.close()
    assert spare.call(ADMIN, "POST", "/v1/enclaves", order(name="more", nodes="n2"))[0] == 503
    status, answer = spare.call(ADMIN, "DELETE", "/v1/enclaves/dark")
    start = time.monotonic()
    assert status == 202
    spare.wait(lambda: login.areas["door"] == "shut", "the door is shut")
    assert time.monotonic() - start < 5
    assert spare.agents["n1"].areas["fence"] != "none" and spare.pools()["n1"] != "general"
    spare.log.server.open()
    assert spare.finish(answer["operation"])["state"] == "done"
    spare.is_clean()
    spare.wait(spare.spool_empty, "what was put aside is in the log")
    assert spare.log.find("door", "shut") and spare.log.find("enclave", "destroy")


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("where", ["after_intent", "after_do"])
def test_a_kill_on_the_way_up_ends_open(spare, row, where):
    spare.kill()
    spare.start("step.%s.%s kill\n" % (row, where))
    spare.wait(spare.ready, "agents are back")
    status, answer = spare.order("crash", "n1")
    assert status == 202
    spare.process.wait(30)
    spare.start()
    done = spare.finish(answer["operation"])
    assert done["state"] == "done", done["error"]
    assert spare.get("/v1/enclaves/crash")["state"] == "open"
    assert spare.destroy("crash")["state"] == "done"
    spare.is_clean()


@pytest.mark.parametrize("row", ROWS)
def test_a_kill_on_the_way_down_ends_clean(spare, row):
    spare.kill()
    spare.start("step.%s.after_undo kill\n" % row)
    spare.wait(spare.ready, "agents are back")
    assert spare.create("crash", "n1")["state"] == "done"
    status, answer = spare.call(ADMIN, "DELETE", "/v1/enclaves/crash")
    spare.process.wait(30)
    spare.start()
    assert spare.finish(answer["operation"])["state"] == "done"
    spare.is_clean()


def test_a_kill_while_members_change_ends_with_the_new_document_on_every_node(spare):
    spare.kill()
    spare.start("members.signed kill 2\n")          # the first one is the create's
    spare.wait(spare.ready, "agents are back")
    assert spare.create("crash", "n1")["state"] == "done"
    login = spare.agents[spare.get("/v1/enclaves/crash")["login"]["host"]]
    before = login.members
    with pytest.raises(OSError):
        spare.call(OWNER, "POST", "/v1/enclaves/crash/members", {"user": MEMBER})
    spare.process.wait(30)
    spare.start()
    spare.wait(lambda: login.members != before, "the new document arrives")
    assert {m["user"] for m in spare.get("/v1/enclaves/crash/members")["members"]} == {OWNER, MEMBER}
    spare.wait(lambda: spare.get("/v1/enclaves/crash")["operation"] is None, "the operation has ended")
    assert spare.destroy("crash")["state"] == "done"
    spare.is_clean()


def test_a_lease_is_extended_for_keyd_members_and_nodes(spare):
    assert spare.create("long", "n1", ttl_s=3600)["state"] == "done"
    e = spare.get("/v1/enclaves/long")
    before = spare.agents["n1"].documents[-1]["not_after"]
    assert spare.call(ADMIN, "POST", "/v1/enclaves/long/extend", {"ttl_s": 40 * 86400})[0] == 403
    assert spare.call(OWNER, "POST", "/v1/enclaves/long/extend", {"ttl_s": 7200})[0] == 403
    assert spare.call(ADMIN, "POST", "/v1/enclaves/long/extend", {"ttl_s": 600})[0] == 409, "shorter"
    status, answer = spare.call(ADMIN, "POST", "/v1/enclaves/long/extend", {"ttl_s": 7200})
    assert status == 202 and answer["expires_at"] > e["expires_at"], answer
    assert spare.agents["n1"].documents[-1]["not_after"] >= before + 3500
    assert spare.keys.leases[e["id"]] >= before + 3500
    assert spare.destroy("long")["state"] == "done"
    spare.is_clean()


def test_an_enclave_ends_with_its_lease(spare):
    assert spare.create("short", "n1", ttl_s=5)["state"] == "done"
    spare.wait(lambda: not spare.get("/v1/enclaves")["enclaves"], "it ended by itself", 30)
    spare.is_clean()
    assert spare.log.find("enclave", "expire")


# ---- the rest of the API ----

def spec():
    return yaml.safe_load((REPO / "docs/openapi.yaml").read_text())


def test_the_description_and_the_route_table_name_the_same_routes():
    table = {(m.lower(), re.sub(r"\{[^}]*\}", "{}", p)) for m, p in
             re.findall(r'^\t\{ "([A-Z]+)", "([^"]+)", dispatch', (REPO / "controller/enclaved/api.c").read_text(), re.M)}
    described = {(m, re.sub(r"\{[^}]*\}", "{}", p)) for p, row in spec()["paths"].items() for m in row if m != "parameters"}
    assert table == described


@pytest.mark.parametrize("path", [p for p, row in spec()["paths"].items() if "$ref" in row.get("get", {}).get("responses", {}).get("200", {})])
def test_answers_have_the_members_that_are_described(site, path):
    described = spec()
    values = {"name": "cxr", "node": "n1", "question": "head", "operation": "0"}
    if site.call(ADMIN, "GET", "/v1/enclaves/cxr")[0] == 404:
        assert site.create()["state"] == "done" and site.destroy()["state"] == "done"
    if "{operation}" in path:
        values["operation"] = site.call(ADMIN, "DELETE", "/v1/enclaves/cxr")[1]["operation"]
    elif path in ("/v1/enclaves/{name}/members", "/v1/enclaves/{name}/jobs", "/v1/enclaves/{name}/sessions"):
        if not site.get("/v1/enclaves")["enclaves"]:
            assert site.create("alive", 1)["state"] == "done"
        values["name"] = "alive"
    answer = site.get(path.format(**values))
    name = described["paths"][path]["get"]["responses"]["200"]["$ref"].rsplit("/", 1)[1]
    schema = described["components"]["responses"][name]["content"]["application/json"]["schema"]
    assert set(schema.get("required", [])) <= set(answer), set(schema["required"]) - set(answer)


def test_agreements_are_added_and_ended(site):
    assert site.call(ADMIN, "POST", "/v1/agreements/BAA-50", {"until": "2099-01-01"})[0] == 403
    status, answer = site.call(STEWARD, "POST", "/v1/agreements/BAA-50", {"until": "2099-01-01"})
    assert status == 200 and answer["agreements"][0]["state"] == "valid"
    assert site.call(ADMIN, "POST", "/v1/enclaves/plan", order(agreement="BAA-50"))[1]["allowed"]
    assert site.call(STEWARD, "DELETE", "/v1/agreements/BAA-50")[0] == 200
    assert site.call(ADMIN, "POST", "/v1/enclaves/plan", order(agreement="BAA-50"))[0] == 403
    assert {a["id"]: a["state"] for a in site.get("/v1/agreements")["agreements"]} == {"BAA-50": "ended", "BAA-17": "valid", "BAA-3": "lapsed"}
    assert site.call(STEWARD, "POST", "/v1/agreements/BAA-51", {"until": "tomorrow"})[1]["error"]["pointer"] == "/until"


def test_the_log_is_read_by_those_who_may(site):
    assert site.get("/v1/audit/search?user=" + OUTSIDER, AUDITOR)["complete"] is True
    assert site.call(OWNER, "GET", "/v1/audit/search")[0] == 403
    assert site.call(AUDITOR, "GET", "/v1/audit/secrets")[0] == 404
    assert site.call(AUDITOR, "GET", "/v1/audit/search?limit=many")[0] == 400


def figures(site, user=ADMIN):
    """{(sample, labels as text): value} of /metrics, by the reference parser of the format, and the text itself."""
    got = site.raw(user, b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    head, _, text = got.decode().partition("\r\n\r\n")
    assert " 200 " in head.split("\r\n")[0] and "application/openmetrics-text; version=1.0.0" in head
    return {(s.name, ",".join(s.labels.values())): s.value for family in openmetrics.text_string_to_metric_families(text) for s in family.samples}, text


def test_metrics_follow_an_enclave_and_name_none(site):
    before, _ = figures(site)
    assert before["enclave_enclaves", "open"] == 0 and before["enclave_nodes", "enclave"] == 0
    assert {before["enclave_service_up", s] for s in ("log", "keys", "scheduler")} == {1} and before["enclave_keys_unsealed", ""] == 1
    done = site.create(name="unnamed")
    assert done["state"] == "done", done["error"]
    during, text = figures(site, "root")
    assert during["enclave_enclaves", "open"] == 1 and during["enclave_nodes", "enclave"] >= 2
    assert during["enclave_node", "n1,enclave,yes"] == 1
    assert 0 < during["enclave_lease_left_seconds", ""] and during["enclave_evidence_age_seconds", ""] < 60
    assert during["enclave_step_seconds_count", "isolate,up"] == before.get(("enclave_step_seconds_count", "isolate,up"), 0) + 1
    assert during["enclave_log_records", ""] > before["enclave_log_records", ""]
    for secret in ("unnamed", done["result"]["id"], OWNER, "res1", "BAA-17"):
        assert secret not in text, f"figures name {secret}"
    assert site.destroy(name="unnamed")["state"] == "done"
    assert figures(site)[0]["enclave_certificates_total", ""] > before["enclave_certificates_total", ""]


def test_metrics_count_refusals_and_are_refused_to_others(site):
    before, _ = figures(site)
    assert site.call(OUTSIDER, "GET", "/metrics")[0] == 403 and site.call(MEMBER, "GET", "/metrics")[0] == 403
    assert figures(site)[0]["enclave_refusals_total", "403"] == before["enclave_refusals_total", "403"] + 2


def test_the_file_of_figures_is_whole_and_not_for_everybody(site):
    path = site.dir / "state/metrics.prom"
    site.wait(path.exists, "the file of figures")
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.read_text().endswith("# EOF\n")
    old = path.stat().st_ino
    site.wait(lambda: path.stat().st_ino != old, "a new file in its place")


def test_doctor_keys_policies_and_users_answer(site):
    assert {c["state"] for c in site.get("/v1/doctor", "root")["checks"]} <= {"ok", "warn"}
    assert site.get("/v1/key")["state"] == "unsealed"
    assert [p["name"] for p in site.get("/v1/policies")["policies"]] == ["lab"]
    assert {u["user"]: u["role"] for u in site.get("/v1/users")["users"]}[ADMIN] == "admin"
    assert site.call(ADMIN, "POST", "/v1/policies/explain", order(agreement="BAA-3"))[1]["rule"] == "agreement-holds"
    assert site.call(OUTSIDER, "GET", "/v1/doctor")[0] == 403
