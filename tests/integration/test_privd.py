"""privd on real hosts, with a driver in the place of its agent and of the key service: what it obeys, what it refuses, and what then is true of the host."""
import json
import pathlib
import secrets
import socket
import struct

import pytest

from conftest import own_lab, wait_until
from node import (AIRLOCK, CONFLICT, DENIED, DOWN, ENCLAVE, FAILED, FENCE_AIRLOCK, GENERAL, INTEGRITY, MUNGE_KEY, NONE, SCHEDULER, SITE, VERBS, Node, inside_network, new_id)

PROJECT = {"name": "cxr-data", "key": "volume" + "a" * 20, "kind": 2, "driver": "fscrypt", "owner_gid": 10008}
KEYS = {MUNGE_KEY: "11" * 64, PROJECT["key"]: "22" * 64}


@pytest.fixture(scope="module")
def site():
    """Two nodes and a host that plays the controller, in a lab of their own."""
    with own_lab("privd", "--only", "n1,s1,ext") as small:
        yield small


@pytest.fixture(scope="module")
def nodes(site):
    n1 = Node(site, "n1", controller="ext")
    n1.units = ["site-agent.service", "ssh.service"]
    n1.put("/etc/systemd/system/site-agent.service", "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n")
    n1.run("systemctl", "enable", "site-agent")
    n1.start()
    s1 = Node(site, "s1", seed_from=n1, controller="ext")
    s1.start()
    return n1, s1


@pytest.fixture
def n1(nodes):
    node = nodes[0]
    yield node
    if node.run("cat", "/etc/enclave/privd.json").stdout.count("no_clean"):
        node.start()
    node.leave()


@pytest.fixture
def inside(n1):
    """n1 in an enclave of its own as login node, with scratch and a project volume, everything up, the door shut."""
    n1.airlock()
    n1.enclave(volumes=[{"name": "scratch", "kind": 1, "driver": "fscrypt", "id": new_id()}, {**PROJECT, "id": new_id()}])
    n1.good("fence")
    n1.good("overlay")
    assert n1.members(("res1", 10008), ("res2", 10009))["code"] == 0
    n1.good("volume", sealed=KEYS)
    n1.good("role", sealed=KEYS)
    return n1


def open_door(node, **grant):
    node.next(door=1)
    return node.order("door", grant=grant, sealed=KEYS)


def areas(node):
    return node.state()["areas"]


def table(node):
    return node.run("nft", "list", "table", "inet", "enclave", check=False).returncode == 0


# --- what is refused --------------------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("verb", ["fence", "overlay", "volume", "role"])
def test_loosening_without_a_grant_is_refused(n1, verb):
    n1.airlock()
    n1.enclave(volumes=[{"name": "scratch", "kind": 1, "driver": "fscrypt", "id": new_id()}])
    before = n1.state()
    answer = n1.order(verb, grant=None)
    assert answer["code"] == DENIED and "grant" in answer["text"]
    assert n1.state() == before


@pytest.mark.parametrize("wrong", [{"node": "n2"}, {"boot": "00" * 16}, {"generation": 1}, {"generation": 99999}, {"document": "00" * 32}, {"pool": GENERAL},
                                   {"enclave": "z" * 26}, {"not_after": -1}, {"not_before": 3600, "not_after": 7200}], ids=lambda w: next(iter(w)))
def test_a_grant_for_something_else_is_refused(n1, wrong):
    n1.airlock()
    n1.enclave()
    before = n1.state()
    answer = n1.order("fence", grant=wrong)
    assert answer["code"] == DENIED, answer
    assert n1.state() == before
    assert areas(n1)["fence"] == "airlock"


def test_a_grant_signed_by_another_key_is_refused(n1):
    n1.airlock()
    n1.enclave()
    n1.run("/usr/local/sbin/node_driver", "keygen", "/etc/enclave-test/other", "/etc/enclave-test/other.vkey")
    answer = n1.order("fence", seed="/etc/enclave-test/other")
    assert answer["code"] == INTEGRITY
    assert areas(n1)["fence"] == "airlock"


def test_an_earlier_generation_cannot_be_replayed(n1):
    n1.airlock()
    loose = dict(n1.enclave())
    n1.good("fence")
    n1.next(pool=AIRLOCK, fence=FENCE_AIRLOCK, overlay=0, roles=0, peers=[])
    n1.good("fence", grant=None)
    n1.document = loose
    assert n1.order("fence")["code"] == DENIED
    assert areas(n1)["fence"] == "airlock"


def test_one_generation_is_one_document(n1):
    n1.airlock()
    n1.document = {**n1.document, "clean_id": new_id()}
    assert n1.order("clean", grant=None)["code"] == DENIED


@pytest.mark.parametrize("raw", ["ffffffff", "00000000", "0c000000" + "01" * 12, "20000000" + "00" * 32, "ffff0100" + "41" * 100, secrets.token_hex(4000)],
                         ids=["huge", "empty", "short", "zeros", "cut", "noise"])
def test_garbage_ends_the_connection_and_changes_nothing(n1, raw):
    before = n1.state()
    # Whoever waits for the rest of a message is not answered; a message that cannot be is the end of the connection.
    s = socket.socket(socket.AF_UNIX)
    s.connect(str(n1.root / "run/enclave-test.sock"))
    s.sendall(json.dumps({"raw": raw}).encode() + b"\n")
    s.settimeout(3)
    try:
        answer = s.recv(4096)
        assert answer == b"" or json.loads(answer).get("lost")
    except socket.timeout:
        n1.run("pkill", "-x", "node_driver")
    except ConnectionError:
        pass
    s.close()
    after = wait_until(n1.state, 20, "a new agent")
    assert after == before


# --- the fence --------------------------------------------------------------------------------------------------------------------------------------

def tcp(server, client, address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET

    def listen():
        s = socket.create_server((address, 0), family=family)
        s.settimeout(3)
        return s

    def connect():
        s = socket.socket(family)
        s.settimeout(3)
        s.connect((address, port))
        return s

    listening = inside_network(server.pid, listen)
    port = listening.getsockname()[1]
    one = inside_network(client.pid, connect)
    two, _ = listening.accept()
    listening.close()
    return one, two


def udp(server, client, address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET

    def make(bind):
        s = socket.socket(family, socket.SOCK_DGRAM)
        s.bind((bind, 0))
        return s

    own = client.address6 if ":" in address else client.address
    one, two = inside_network(client.pid, lambda: make(own)), inside_network(server.pid, lambda: make(address))
    one.connect(two.getsockname()[:2])
    two.connect(one.getsockname()[:2])
    return one, two


def passes(one, two, seconds=3.0):
    """Does a word arrive?"""
    two.settimeout(seconds)
    word = secrets.token_bytes(8)
    try:
        one.send(word)
        return word in two.recv(4096)
    except OSError:
        return False


def ping(node, address):
    return node.run("ping", "-c1", "-W1", address, check=False).returncode == 0


def test_connections_from_before_are_dead_within_a_second_and_come_back_at_home(nodes, n1):
    s1 = nodes[1]
    pairs = {}
    for kind in (tcp, udp):
        for address in ("address", "address6"):
            pairs[kind.__name__, address, "in"] = kind(n1, s1, getattr(n1, address))
            pairs[kind.__name__, address, "out"] = kind(s1, n1, getattr(s1, address))
    for name, (one, two) in pairs.items():
        assert passes(one, two) and passes(two, one), name
    assert ping(s1, n1.address) and ping(s1, n1.address6) and ping(n1, s1.address)

    n1.next(pool=AIRLOCK, units=DOWN, fence=FENCE_AIRLOCK)
    n1.good("units", grant=None)
    evidence = n1.good("fence", grant=None)
    assert evidence["routes_left"] == 0 and evidence["connections_cut"] >= 4
    for name, (one, two) in pairs.items():
        assert not passes(one, two, 0.9) and not passes(two, one, 0.9), name
    assert not ping(s1, n1.address) and not ping(s1, n1.address6) and not ping(n1, s1.address) and not ping(n1, s1.address6)
    for one, two in pairs.values():
        one.close()
        two.close()

    n1.leave()
    one, two = tcp(n1, s1, n1.address)
    assert passes(one, two) and passes(two, one)
    assert ping(n1, s1.address6)
    assert not table(n1)


def test_the_controller_stays_reachable_and_nothing_else_of_it(nodes, n1):
    ext = Node(n1.lab, "ext", controller="ext")
    n1.airlock()
    for address in (ext.address, ext.address6):
        listening = inside_network(ext.pid, lambda a=address: socket.create_server((a, 7443), family=socket.AF_INET6 if ":" in a else socket.AF_INET))
        other = inside_network(ext.pid, lambda a=address: socket.create_server((a, 7444), family=socket.AF_INET6 if ":" in a else socket.AF_INET))
        try:
            assert n1.run("nc", "-z", "-w2", address, 7443, check=False).returncode == 0
            assert n1.run("nc", "-z", "-w1", address, 7444, check=False).returncode != 0
        finally:
            listening.close()
            other.close()
    assert not ping(n1, ext.address)


def test_a_flushed_fence_is_put_back_at_once_and_recorded(n1):
    n1.airlock()
    assert table(n1)
    n1.run("nft", "flush", "ruleset")
    wait_until(lambda: table(n1), 1, "the fence to be back", every=0.02)
    events = wait_until(lambda: [e for e in n1.state()["events"] if e["action"] == "tamper"], 5, "a record")
    assert events[-1]["data"]["area"] == "fence"
    # Weakened is as bad as gone.
    n1.run("nft", "insert", "rule", "inet", "enclave", "input", "accept")
    wait_until(lambda: "accept" not in n1.out("nft", "list", "chain", "inet", "enclave", "input").split("policy drop;")[1].split("iifname")[0], 1, "the rule to be gone",
               every=0.02)


def test_the_overlay_carries_what_the_underlay_refuses(nodes, n1):
    s1 = nodes[1]
    for node in (n1, s1):
        node.airlock()
    name = new_id()
    n1.enclave([(s1, SCHEDULER)], enclave_id=name)
    peers = n1.document["peers"]
    s1.enclave([], roles=SCHEDULER, enclave_id=name)
    s1.document["peers"] = peers
    for node in (n1, s1):
        node.good("fence")
        node.good("overlay")
    assert wait_until(lambda: ping(n1, "10.78.4.2"), 10, "the overlay") and ping(s1, "10.78.4.1")
    assert not ping(n1, s1.address)
    s1.leave()
    n1.leave()
    assert n1.run("ip", "link", "show", "encov0", check=False).returncode != 0


# --- pools ------------------------------------------------------------------------------------------------------------------------------------------

def test_invariant_01_a_node_is_in_one_pool_and_no_pool_is_skipped(n1):
    assert n1.state()["pool"] == "general"
    n1.next(pool=AIRLOCK, units=DOWN, fence=FENCE_AIRLOCK)
    n1.document = {**n1.document, "pool": ENCLAVE, "enclave_id": new_id(), "enclave_name": "cxr", "not_after": 4000000000}
    assert n1.order("fence")["code"] == CONFLICT
    assert n1.state()["pool"] == "general" and not table(n1)


def test_invariant_02_no_way_home_without_a_passed_clean(n1):
    n1.next(pool=AIRLOCK, units=DOWN, fence=FENCE_AIRLOCK)
    n1.good("units", grant=None)
    n1.good("fence", grant=None)
    n1.next(pool=GENERAL, units=SITE, fence=NONE)
    for verb in ("fence", "units"):
        answer = n1.order(verb)
        assert answer["code"] in (DENIED, CONFLICT), answer
    assert table(n1) and n1.state()["pool"] == "airlock"
    assert "clean" in n1.order("fence")["text"]


def test_invariant_02_a_clean_before_the_stay_does_not_count(inside):
    inside.next(pool=AIRLOCK, fence=FENCE_AIRLOCK, overlay=0, roles=0, volumes=[], peers=[])
    for verb in ("role", "volume", "overlay", "fence"):
        inside.good(verb, grant=None)
    inside.next(pool=GENERAL, units=SITE, fence=NONE, enclave_id="", enclave_name="", not_after=0)
    assert inside.order("fence")["code"] == DENIED


def test_quarantine_needs_nothing_and_is_left_by_grant_alone(inside):
    assert open_door(inside)["code"] == 0
    answer = inside.ask(verb=VERBS["quarantine"], text="failed a check")
    assert answer["code"] == 0, answer
    state = inside.state()
    assert state["pool"] == "quarantine"
    assert state["areas"]["door"] == "shut" and state["areas"]["roles"] == [] and state["areas"]["volumes"] == [] and state["areas"]["fence"] == "airlock"
    inside.next(pool=AIRLOCK, fence=FENCE_AIRLOCK, overlay=0, roles=0, door=0, volumes=[], peers=[])
    assert inside.order("fence", grant=None)["code"] == DENIED
    assert inside.order("fence")["code"] == 0


def test_the_way_back_mounts_what_was_unmounted_and_nothing_else(n1):
    fstab, units = n1.out("cat", "/etc/fstab"), n1.out("cat", "/etc/enclave/units.json")
    n1.run("sh", "-ec", "mkdir -p /srv/work /mnt/work; echo '/srv/work /mnt/work none bind,noauto 0 0' >> /etc/fstab; mount /mnt/work")
    n1.put("/etc/enclave/units.json", json.dumps({**json.loads(units), "unmount": ["/mnt/work", "/srv/other-nodes-only"]}))
    try:
        n1.airlock()
        assert n1.run("mountpoint", "-q", "/mnt/work", check=False).returncode
        n1.leave()
        n1.run("mountpoint", "-q", "/mnt/work")
        # Known to nobody: a node whose general file system does not come back is not given back in silence.
        n1.airlock()
        n1.put("/etc/fstab", fstab)
        with pytest.raises(AssertionError, match="/mnt/work"):
            n1.leave()
        n1.run("mount", "--bind", "/srv/work", "/mnt/work")
        n1.good("units")
    finally:
        n1.put("/etc/fstab", fstab)
        n1.put("/etc/enclave/units.json", units)
        n1.run("umount", "/mnt/work", check=False)


# --- the door ---------------------------------------------------------------------------------------------------------------------------------------

def test_invariant_04_the_door_opens_last(n1):
    n1.airlock()
    n1.enclave(volumes=[{"name": "scratch", "kind": 1, "driver": "fscrypt", "id": new_id()}])
    n1.good("fence")
    n1.document["door"] = 1
    n1.next()
    for verb in ("overlay", None, "volume", "role"):
        assert n1.order("door")["code"] == CONFLICT, verb
        if verb:
            n1.good(verb, sealed=KEYS)
        else:
            assert n1.members(("res1", 10008))["code"] == 0
    assert n1.order("door")["code"] == 0
    assert areas(n1)["door"] == "open"


def test_invariant_04_the_door_shuts_first_and_ends_sessions(inside):
    assert open_door(inside)["code"] == 0
    inside.run("systemd-run", "--slice=user-10008.slice", "--uid=10008", "--unit=session-of-res1", "sleep", "600")
    assert inside.run("pgrep", "-u", "10008", "-x", "sleep", check=False).returncode == 0
    inside.next(door=0, roles=0)
    inside.good("role", grant=None)   # the agent forgets the door; privd does not
    assert areas(inside)["door"] == "shut"
    assert inside.run("pgrep", "-u", "10008", "-x", "sleep", check=False).returncode != 0


def test_invariant_09_at_the_end_of_its_grant_a_node_tightens_by_itself(n1):
    n1.start(grace_s=2)
    n1.airlock()
    n1.enclave(volumes=[{"name": "scratch", "kind": 1, "driver": "fscrypt", "id": new_id()}])
    for verb in ("fence", "overlay", "volume"):
        n1.good(verb, sealed=KEYS)
    assert n1.members(("res1", 10008))["code"] == 0
    n1.good("role", sealed=KEYS)
    assert open_door(n1, not_after=3)["code"] == 0
    wait_until(lambda: areas(n1)["door"] == "shut", 8, "the door to shut")
    wait_until(lambda: areas(n1)["volumes"] == [] and areas(n1)["fence"] == "airlock", 15, "the volumes to be locked")
    reasons = [e["data"]["reason"] for e in n1.state()["events"] if e["action"] == "tighten"]
    assert any("grant has ended" in r for r in reasons)
    n1.leave()
    n1.start()


# --- boots ------------------------------------------------------------------------------------------------------------------------------------------

def test_invariant_09_rebooted_while_held_it_comes_up_fenced_and_without_keys(inside, nodes):
    unit = inside.units[0]
    old = inside.state()
    inside.reboot()
    state = inside.state()
    assert state["pool"] == "airlock" and state["boot"] != old["boot"] and state["identity"] == old["identity"]
    assert state["areas"]["fence"] == "airlock" and state["areas"]["volumes"] == [] and state["areas"]["roles"] == [] and state["areas"]["door"] == "shut"
    assert table(inside) and not ping(nodes[1], inside.address)
    assert inside.out("systemctl", "is-active", unit, check=False).strip() != "active"
    assert inside.run("ls", "/enclave/data", check=False).stdout == ""
    # The grant of the old boot is worth nothing in this one.
    assert inside.order("fence", grant={"boot": old["boot"]})["code"] in (DENIED, CONFLICT)


def test_invariant_09_a_node_that_is_not_held_boots_as_if_we_were_not_there(n1, nodes):
    n1.reboot()
    assert n1.state()["pool"] == "general"
    assert not table(n1) and ping(nodes[1], n1.address)
    assert n1.out("systemctl", "is-active", n1.units[0], check=False).strip() == "active"


# --- faults -----------------------------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("family", ["fence", "volume", "unit", "clean", "probe", "watch"])
def test_a_killed_family_shuts_the_door_ends_sessions_and_is_told(inside, family):
    assert open_door(inside)["code"] == 0
    inside.run("systemd-run", "--slice=user-10008.slice", "--uid=10008", "sleep", "600")
    assert inside.run("pgrep", "-u", "10008", "-x", "sleep", check=False).returncode == 0
    pid = inside.out("pgrep", "-x", f"privd-{family}").split()[0]
    main = inside.out("systemctl", "show", "-p", "MainPID", "--value", "enclave-privd").strip()
    inside.run("kill", "-KILL", pid)
    wait_until(lambda: inside.out("systemctl", "show", "-p", "MainPID", "--value", "enclave-privd").strip() not in ("0", main), 15, "privd to be back")
    state = wait_until(inside.state, 20, "an answer")
    assert state["areas"]["door"] == "shut" and state["areas"]["fence"] == "enclave" and state["pool"] == "enclave"
    assert table(inside)
    assert inside.run("pgrep", "-u", "10008", "-x", "sleep", check=False).returncode != 0
    assert [e for e in state["events"] if e["action"] == "tighten" and e["data"]["area"] == family]


def test_a_fence_that_cannot_be_looked_at_in_time_is_no_reason_for_quarantine(inside):
    pid = inside.out("pgrep", "-x", "privd-fence").split()[0]
    inside.run("kill", "-STOP", pid)
    wait_until(lambda: pid not in inside.out("pgrep", "-x", "privd-fence", check=False).split(), 30, "a family that does not answer to be ended")
    wait_until(lambda: inside.out("pgrep", "-x", "privd-fence", check=False).strip(), 10, "another one")
    inside.run("nft", "flush", "ruleset")           # and that one does its work
    wait_until(lambda: "drop" in inside.out("nft", "list", "ruleset"), 15, "the fence to be put back")
    assert inside.state()["pool"] == "enclave" and inside.state()["areas"]["fence"] == "enclave"


def test_a_killed_privd_finds_its_node_as_it_was(inside):
    before = inside.state()
    main = inside.out("systemctl", "show", "-p", "MainPID", "--value", "enclave-privd").strip()
    inside.run("kill", "-KILL", main)
    wait_until(lambda: inside.out("systemctl", "show", "-p", "MainPID", "--value", "enclave-privd").strip() not in ("0", main), 15, "privd to be back")
    after = wait_until(inside.state, 20, "an answer")
    assert after["areas"] == before["areas"] and after["pool"] == before["pool"] and after["overlay_key"] == before["overlay_key"]
    inside.run("nft", "flush", "ruleset")
    wait_until(lambda: table(inside), 2, "the fence to be watched again", every=0.02)


def test_a_killed_agent_is_started_again(n1):
    old = n1.out("pgrep", "-x", "node_driver").split()[0]
    n1.run("kill", "-KILL", old)
    wait_until(lambda: n1.run("pgrep", "-x", "node_driver", check=False).stdout.split() not in ([], [old]), 15, "another agent")
    assert n1.state()["pool"] == "general"


# --- storage ----------------------------------------------------------------------------------------------------------------------------------------

def test_a_closed_volume_is_ciphertext_and_a_closed_scratch_is_gone(inside):
    canary = f"CANARY-{secrets.token_hex(16)}"
    volume = inside.document["volumes"][1]
    inside.run("bash", "-c", f"echo {canary} > /enclave/data/{canary}; echo {canary} > /enclave/scratch/a; echo {canary} > /tmp/a; sync")
    for where in ("/tmp", "/var/tmp", "/enclave/data", "/enclave/home", "/enclave/scratch", "/var/spool/slurmd"):
        options = inside.out("findmnt", "-no", "OPTIONS", "--target", where)
        assert "nosuid" in options and "nodev" in options, where
    again = inside.document
    inside.next(pool=AIRLOCK, fence=FENCE_AIRLOCK, overlay=0, roles=0, volumes=[], peers=[], clean=1, clean_id=new_id())
    for verb in ("role", "volume", "overlay", "fence", "clean"):
        inside.good(verb, grant=None)
    names = inside.out("find", f"/srv/enclave-shared/{volume['id']}")
    assert "data" not in names.splitlines() and canary not in names and len(names.splitlines()) >= 3
    assert inside.out("ls", "/var/lib/enclave/disk").split() == ["lost+found"]
    assert inside.run("grep", "-raq", canary, "/var/lib/enclave/disk", "/srv/enclave-shared", "/tmp", "/var/tmp", "/enclave", check=False).returncode != 0
    # The other key does not open it; the right one does, and what was written is there.
    inside.document = again
    inside.next(volumes=[volume])
    inside.good("fence")
    inside.good("overlay")
    wrong = inside.order("volume", sealed={**KEYS, PROJECT["key"]: "33" * 64})
    assert wrong["code"] == INTEGRITY, wrong
    inside.good("volume", sealed=KEYS)
    assert inside.out("cat", f"/enclave/data/{canary}").strip() == canary


def test_a_project_volume_without_its_key_stays_shut(n1):
    n1.airlock()
    n1.enclave(volumes=[{**PROJECT, "id": new_id()}])
    n1.good("fence")
    n1.good("overlay")
    answer = n1.order("volume")
    assert answer["code"] == DENIED and "key" in answer["text"]


def test_a_member_removed_loses_processes_account_and_key(inside):
    inside.run("systemd-run", "--uid=10009", "--unit=work-of-res2", "sleep", "600")
    assert inside.run("id", "res2").returncode == 0
    assert inside.members(("res1", 10008), version=2)["code"] == 0
    assert inside.run("pgrep", "-u", "10009", check=False).returncode != 0
    assert inside.run("id", "res2", check=False).returncode != 0 and inside.run("id", "res1").returncode == 0
    # An older document does not bring him back.
    assert inside.members(("res1", 10008), ("res2", 10009), version=1)["code"] != 0
    assert inside.run("id", "res2", check=False).returncode != 0


# --- clean and measure ------------------------------------------------------------------------------------------------------------------------------

PLANTS = {
    "processes": "systemd-run --uid=10010 --unit=trap sleep 600",
    "linger": "mkdir -p /var/lib/systemd/linger; touch /var/lib/systemd/linger/outsider1",
    "crontabs": "mkdir -p /var/spool/cron/crontabs; echo '* * * * * true' > /var/spool/cron/crontabs/outsider1; chown 10010 /var/spool/cron/crontabs/outsider1",
    "at-jobs": "mkdir -p /var/spool/cron/atjobs; touch /var/spool/cron/atjobs/a; chown 10010 /var/spool/cron/atjobs/a",
    "mounts": "mkdir -p /enclave/left; mount -t tmpfs left /enclave/left",
    "scratch": "mkdir /var/lib/enclave/disk/scratch-left",
    "overlay": "ip link add encov0 type veth peer name encov1",
    "enclave-files": "echo x > /run/enclave/members",
    "tmp": "mkdir -p /tmp/trap/deep; touch /tmp/trap/deep/file; chown -R 10010 /tmp/trap",
    "var-tmp": "ln -s /etc/shadow /var/tmp/trap; chown -h 10010 /var/tmp/trap",
    "shm": "touch /dev/shm/trap; chown 10010 /dev/shm/trap",
    "run-user": "mkdir -p /run/user/10010; chown 10010 /run/user/10010",
    "run-lock": "touch /run/lock/trap; chown 10010 /run/lock/trap",
    "sysv-ipc": "setpriv --reuid=10010 --regid=10010 --clear-groups ipcmk -M 4096 -S 1 -Q",
    "slurmd-spool": "mkdir -p /var/spool/slurmd/job00007",
    "site-slurmd-spool": "mkdir -p /var/lib/slurm/slurmd/job00007",
    "crash-dumps": "mkdir -p /var/crash; touch /var/crash/vmcore",
    "core-dumps": "mkdir -p /var/lib/systemd/coredump; touch /var/lib/systemd/coredump/core.1",
}


def plant_all(node):
    for name, command in PLANTS.items():
        node.run("bash", "-c", command)


def clean(node):
    node.next(pool=AIRLOCK, units=DOWN, fence=FENCE_AIRLOCK, clean=1, clean_id=new_id())
    for verb in ("units", "fence"):
        node.good(verb, grant=None)
    answer = node.order("clean", grant=None)
    return answer, {item["residue"]: item for item in answer["evidence"]["items"]}


def test_every_residue_is_found_and_then_gone(n1):
    plant_all(n1)
    answer, items = clean(n1)
    assert answer["code"] == 0 and answer["evidence"]["passed"], answer
    for name in PLANTS:
        assert items[name]["found"] >= 1 and items[name]["left"] == 0, items[name]
    assert n1.run("cat", "/etc/shadow").returncode == 0
    _, again = clean(n1)
    assert all(item["found"] == 0 for item in again.values()), again


def test_invariant_02_what_a_disabled_cleaner_leaves_is_found_and_keeps_the_node_out(n1):
    n1.start(no_clean=list(PLANTS))
    plant_all(n1)
    answer, items = clean(n1)
    assert answer["code"] == FAILED and not answer["evidence"]["passed"]
    for name in PLANTS:
        assert items[name]["left"] >= 1, items[name]
    n1.next(pool=GENERAL, units=SITE, fence=NONE, clean=0, clean_id="")
    assert n1.order("fence")["code"] == DENIED
    assert table(n1)
    n1.configure()
    n1.run("systemctl", "restart", "enclave-privd")
    assert clean(n1)[0]["code"] == 0


def measure(node):
    node.next(challenge=secrets.token_hex(16))
    return {row["name"]: row["digest"] for row in node.good("measure", grant=None)["rows"]}


def test_a_measurement_is_the_same_before_inside_and_after(n1):
    before = measure(n1)
    n1.airlock()
    inside = measure(n1)
    n1.leave()
    after = measure(n1)
    assert before == inside == after


@pytest.mark.parametrize("row,path", [("sshd-config", "/etc/ssh/sshd_config.d/x.conf"), ("pam", "/etc/pam.d/x"), ("loader", "/etc/ld.so.preload"), ("sudo", "/etc/sudoers.d/x"),
                                      ("cron", "/etc/cron.d/x"), ("units-local", "/etc/systemd/system/x.service"), ("root-keys", "/root/.ssh/x"),
                                      ("init-scripts", "/etc/profile.d/x.sh"), ("enclave-config", "/etc/enclave/log.vkey"),
                                      ("enclave-programs", "/usr/libexec/enclave/x"), ("slurm-plugins", "/usr/lib/x86_64-linux-gnu/slurm-wlm/x.so")])
def test_a_change_shows_in_its_row_and_no_other(n1, row, path):
    n1.run("mkdir", "-p", str(pathlib.PurePath(path).parent))
    before = measure(n1)
    was = n1.run("cat", path, check=False)
    n1.run("bash", "-c", f"echo '# x' >> {path}")
    try:
        after = measure(n1)
    finally:
        if was.returncode == 0:
            n1.put(path, was.stdout)
        else:
            n1.run("rm", "-f", path)
    assert {name for name in before if before[name] != after[name]} == {row}
    assert measure(n1) == before


def test_a_suid_program_and_a_second_root_show(n1):
    before = measure(n1)
    n1.run("bash", "-c", "cp /bin/true /usr/local/bin/trap; chmod 4755 /usr/local/bin/trap; cp -p /etc/passwd /root/passwd; echo 'toor:x:0:0::/root:/bin/bash' >> /etc/passwd")
    after = measure(n1)
    n1.run("bash", "-c", "rm /usr/local/bin/trap; cp -p /root/passwd /etc/passwd; rm /root/passwd")
    assert {name for name in before if before[name] != after[name]} == {"suid-programs", "root-accounts"}


# --- rights -----------------------------------------------------------------------------------------------------------------------------------------

def test_each_process_has_its_own_rights_and_no_more(n1):
    caps = {}
    for pid in n1.out("pgrep", "-f", "^/usr/sbin/enclave-privd").split():
        status = dict(line.split(":\t", 1) for line in n1.out("cat", f"/proc/{pid}/status").splitlines() if ":\t" in line)
        caps[status["Name"]] = (int(status["CapEff"], 16), int(status["CapBnd"], 16), status["Seccomp"].strip(), status["NoNewPrivs"].strip())
    assert caps["enclave-privd"][:2] == (0, 0) and caps["privd-watch"][:2] == (0, 0)
    assert caps["privd-probe"][0] == 1 << 13 and caps["privd-fence"][0] == 1 << 12
    for name, (effective, bounding, seccomp, nnp) in caps.items():
        assert effective == bounding and nnp == "1" and seccomp == "2", name


def test_any_user_may_ask_for_facts_and_nothing_else(inside):
    ask = ("import socket,struct,sys; s=socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect('/run/enclave/privd.sock'); s.settimeout(3)\n"
           "s.send(bytes.fromhex(sys.argv[1])); d=s.recv(4096); print(d.hex())")
    good = inside.out("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "python3", "-c", ask, "0101" + struct.pack("<I", 10008).hex()).strip()
    data = bytes.fromhex(good)
    assert data[0] == 1 and data[1] == ENCLAVE and data[2] == 0
    assert inside.document["enclave_id"].encode() in data
    for bad in ("", "01", "0201" + "00" * 4, "0102" + "00" * 4, "0101" + "00" * 5, "ff" * 32):
        if bad:
            assert inside.out("python3", "-c", ask, bad).strip() == "", bad


def test_a_user_who_takes_all_seats_keeps_no_login_and_no_other_user_waiting(inside):
    """The door and the job's gate ask on the same socket as everybody: one member's open connections must not shut out the rest."""
    hold = ("import socket,time\nheld=[]\n"
            "for i in range(400):\n s=socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect('/run/enclave/privd.sock'); held.append(s)\n"
            "print('held', flush=True)\nend=time.time()+8\n"
            "while time.time()<end:\n for s in held:\n  try: s.send(bytes.fromhex('010100000000'))\n  except OSError: pass\n time.sleep(1)\n")
    ask = ("import socket; s=socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect('/run/enclave/privd.sock'); s.settimeout(3)\n"
           "s.send(bytes.fromhex('010100000000')); print(len(s.recv(4096)))")
    try:
        inside.run("systemd-run", "--quiet", "--unit=hold", "--property=User=65534", "python3", "-c", hold)
        wait_until(lambda: "held" in inside.out("journalctl", "-u", "hold", "-o", "cat"), 10, "all seats to be taken")
        assert int(inside.out("python3", "-c", ask)) > 60, "root"
        assert int(inside.out("setpriv", "--reuid=65533", "--regid=65533", "--clear-groups", "python3", "-c", ask)) > 60, "another user"
    finally:
        inside.run("systemctl", "stop", "hold", check=False)
