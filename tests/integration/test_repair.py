"""Nodes of an open enclave that start again or fall silent: the real enclaved against fakes (tests/fakes) for what it shows and decides, and the lab for a
node that really boots. Invariants 8 and 9."""
import pathlib
import sqlite3
import sys
import time

import pytest
from conftest import wait_until
from faults import Faults

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests"))
from fakes.site import Site  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def site():
    s = Site(nodes=("n1", "n2", "n3"), observers=())
    try:
        s.start()
        s.enroll_all()
        assert s.create()["state"] == "done"
        yield s
        assert not [e for a in s.agents.values() for e in a.errors]
    finally:
        print(s.stop())


def store(site, sql, *values):
    with sqlite3.connect(site.dir / "state/store.db", timeout=20) as db:
        return db.execute(sql, values).fetchall()


def shown(site):
    return site.get("/v1/enclaves/cxr")


def node(site, name):
    return next(n for n in site.get("/v1/nodes")["nodes"] if n["name"] == name)


def doctor(site):
    return {c["id"]: c for c in site.get("/v1/doctor")["checks"]}


def noticed(site, word):
    """In all three places: what is wrong, until when it may be, and what to do next."""
    waiting = site.wait(lambda: (w := shown(site)["waiting"]) and word in w["for"] and w, "show to say what is wrong")
    assert waiting["next"] and waiting["until"], waiting
    listed = site.get("/v1/enclaves")["enclaves"][0]["waiting"]
    assert listed and word in listed["for"]
    assert doctor(site)["repair"]["state"] == "bad" and doctor(site)["repair"]["next"]
    return waiting


def as_before(site):
    site.wait(lambda: shown(site)["waiting"] is None, "the enclave to be as before", 60)
    e = shown(site)
    assert e["state"] == "open" and e["door"] == "open" and e["step"] is None and e["evidence"]["state"] == "fresh"
    assert {s["outcome"] for s in e["steps"]} == {"ok"}, "the enclave's own rows are not touched"
    assert doctor(site)["repair"]["state"] == "ok"
    return e


@pytest.mark.parametrize("name", ["n1", "s1", "s2"])
def test_a_node_that_has_started_again_is_led_through_its_rows_alone_invariant_09(site, name):
    agents = site.agents
    others = {n: (len(a.documents), list(a.areas["roles"]), list(a.areas["volumes"])) for n, a in agents.items() if n not in (name, "n3")}
    start = len(agents[name].documents)
    # As long as the vault is away the node waits, and says so.
    site.keys.server.close()
    agents[name].restarted()
    noticed(site, name)
    assert site.wait(lambda: node(site, name)["why"], "the node to say why")
    site.keys.server.open()
    as_before(site)
    mine = agents[name].documents[start:]
    assert mine[0]["pool"] == 2 and mine[0]["fence"] == 1 and not mine[0]["roles"], "the airlock first"
    assert any(d["clean_id"] and d["challenge"] for d in mine), "cleaned and measured again"
    assert agents[name].areas["roles"] and agents[name].areas["overlay"] == "up" and agents[name].areas["volumes"]
    for n, (_, roles, volumes) in others.items():
        assert agents[n].areas["roles"] == roles and agents[n].areas["volumes"] == volumes
        assert all(d["pool"] == 3 and d["roles"] and d["overlay"] for d in agents[n].documents[others[n][0]:]), f"{n} has never left the enclave"
    assert site.log.find("node", "reboot", "failed")
    assert site.destroy()["state"] == "done"
    site.is_clean()


def test_a_node_that_cannot_be_put_right_goes_to_quarantine_by_name_and_the_rest_stays_open(site):
    site.agents["n1"].fail["clean"] = ("_clean", "a file could not be removed")
    site.agents["n1"].restarted()
    site.wait(lambda: node(site, "n1")["pool"] == "quarantine", "quarantine", 60)
    assert "a file could not be removed" in node(site, "n1")["why"] and "release n1" in node(site, "n1")["next"]
    e = shown(site)
    assert e["state"] == "open" and "n1 is in quarantine" in e["waiting"]["for"] and "release n1" in e["waiting"]["next"]
    assert node(site, "n2")["pool"] == "enclave" and site.log.find("node", "quarantine", "ok")
    site.agents["n1"].fail.clear()


def test_a_node_that_has_vanished_is_named_and_set_apart_when_its_time_is_over(site):
    site.agents["n2"].stop()
    time.sleep(1.5)                                # its last report is on the way
    store(site, "UPDATE observed SET last_seen=last_seen-100 WHERE node='n2'")
    waiting = noticed(site, "n2")
    assert "silent" in waiting["for"] and site.log.find("node", "lost", "failed")
    store(site, "UPDATE nodes SET trouble_at=trouble_at-100000 WHERE name='n2'")
    site.wait(lambda: node(site, "n2")["pool"] == "quarantine", "quarantine")
    assert shown(site)["state"] == "open" and "silent" in node(site, "n2")["why"]
    assert node(site, "n1")["pool"] == "enclave"


def test_a_repair_that_the_controller_does_not_survive_is_begun_anew(site):
    site.kill()
    site.start(points="step.storage.after_do kill")
    site.wait(lambda: node(site, "n1")["agent"]["connected"], "the agents")
    site.agents["n1"].restarted()
    site.wait(lambda: site.process.poll() is not None, "the kill")
    site.start()
    as_before(site)
    assert "compute" in site.agents["n1"].areas["roles"]


def test_destroy_takes_a_node_that_is_being_repaired(site):
    site.agents["n1"].restarted()
    site.wait(lambda: shown(site)["waiting"], "the trouble to be seen")
    assert site.destroy()["state"] == "done"
    site.is_clean()


def test_a_real_node_rebooted_inside_is_seen_and_comes_back_by_itself_invariant_09(lab):
    faults = Faults(lab)
    try:
        enclave = faults.create()
        assert faults.settle(enclave) == "open"
        before = {n["name"]: n["generation"] for n in faults.enclave()["nodes"]}
        name = sorted(before)[0]
        other = next(n for n in before if n != name)
        lab.lab("reboot", name)
        faults.refresh()
        waiting = wait_until(lambda: faults.enclave().get("waiting"), 30, "show to say so", every=0.1)
        assert name in waiting["for"] and waiting["next"], waiting
        start = time.monotonic()
        wait_until(lambda: not faults.enclave().get("waiting") and faults.enclave()["evidence"]["state"] == "fresh", 90, "the node to be back")
        print(f"back after {time.monotonic() - start:.1f} s")
        areas = {n["name"]: n["observed"]["areas"] for n in faults.enclave()["nodes"]}
        assert areas[name]["roles"] == ["compute"] and areas[name]["fence"] == "enclave" and areas[name]["volumes"] == areas[other]["volumes"]
        faults.destroy()
        assert faults.settle(enclave, ("closed",)) == "closed"
        faults.check(enclave)
    finally:
        faults.watch.stop()
