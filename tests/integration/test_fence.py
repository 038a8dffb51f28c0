"""The fence of a node against its own root: frames that are put on a device past the packet filter, and drift of rules, interfaces and routes."""
import secrets
import socket
import struct
import time

import pytest

from conftest import own_lab, wait_until
from node import COMPUTE, Node, inside_network, lone_node

DRIFT_S = 30        # within which a change that nobody announces is found


@pytest.fixture(scope="module")
def nodes():
    with own_lab("fence", "--only", "n1,s1,ext") as small:
        n1 = lone_node(small)
        s1 = Node(small, "s1", seed_from=n1, controller="ext")
        s1.start()
        yield n1, s1


@pytest.fixture
def n1(nodes):
    yield nodes[0]
    nodes[0].leave()


@pytest.fixture
def inside(n1):
    n1.airlock()
    n1.enclave(roles=COMPUTE)
    n1.good("fence")
    n1.good("overlay")
    return n1


def device(node):
    """The one that carries the host's address."""
    return node.out("ip", "-o", "addr", "show", "to", node.address).split()[1]


def mac(node):
    return bytes.fromhex(node.out("cat", f"/sys/class/net/{device(node)}/address").strip().replace(":", ""))


def frame(to, word, kind, source, target):
    head = to + b"\x02\0\0\0\0\x07"
    if kind == "unknown":
        return head + b"\x88\xb5" + word
    udp = struct.pack("!HHHH", 4000, 4000, 8 + len(word), 0) + word
    fields = [0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0, socket.inet_aton(source), socket.inet_aton(target)]
    total = sum(struct.unpack("!10H", struct.pack("!BBHHHBBH4s4s", *fields)))
    fields[7] = 0xffff & ~((total & 0xffff) + (total >> 16))      # the lab's bridge drops what is malformed
    ip = struct.pack("!BBHHHBBH4s4s", *fields) + udp
    return head + (b"\x81\x00\0\x05" if kind == "tagged" else b"") + b"\x08\0" + ip + udp


def arrives(sender, receiver, kind, bypass=False):
    """A frame that root of the sender writes on its device: is it seen on the other host's?"""
    word = secrets.token_hex(16).encode()
    names = device(sender), device(receiver)
    data = frame(mac(receiver), word, kind, sender.address, receiver.address)
    listening = inside_network(receiver.pid, lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)))
    sending = inside_network(sender.pid, lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
    with listening, sending:
        listening.bind((names[1], 3))
        listening.settimeout(0.7)
        if bypass:
            sending.setsockopt(263, 20, 1)      # SOL_PACKET, PACKET_QDISC_BYPASS
        try:
            sending.sendto(data, (names[0], 0))
        except OSError:
            return False
        try:
            while True:
                if word in listening.recv(4096):
                    return True
        except socket.timeout:
            return False


KINDS = [("ip", False), ("ip", True), ("unknown", False), ("tagged", False)]


def test_frames_of_root_past_the_packet_filter_do_not_leave(nodes, n1):
    s1 = nodes[1]
    for kind in KINDS:
        assert arrives(n1, s1, *kind), f"positive control: {kind}"
    n1.airlock()
    for kind in KINDS:
        assert not arrives(n1, s1, *kind), kind
    n1.enclave(roles=COMPUTE)
    assert n1.good("fence")["frames_held"]
    for kind in KINDS:
        assert not arrives(n1, s1, *kind), kind
    n1.leave()
    assert n1.out("nft", "list", "tables") == "" and arrives(n1, s1, "ip")


def tampers(node):
    return [e["data"]["reason"] for e in node.state()["events"] if e["action"] == "tamper"]


def test_the_table_of_frames_is_watched_too(nodes, inside):
    before = len(tampers(inside))
    inside.run("nft", "delete", "table", "netdev", "enclave")
    wait_until(lambda: inside.run("nft", "list", "table", "netdev", "enclave", check=False).returncode == 0, 2, "the table to be back", every=0.02)
    wait_until(lambda: len(tampers(inside)) > before, 5, "a record")
    assert not arrives(inside, nodes[1], "ip")


def test_another_service_that_loads_its_own_rules_does_not_open_the_fence(nodes, inside):
    """What nftables.service does on stop and reload, and what follows."""
    inside.put("/run/site.nft", "flush ruleset\ntable inet site {\n\tchain out {\n\t\ttype filter hook output priority 0; policy accept;\n\t}\n}\n")
    for _ in range(5):
        inside.run("nft", "-f", "/run/site.nft")
        wait_until(lambda: "hook output priority" in inside.run("nft", "list", "table", "inet", "enclave", check=False).stdout, 2, "the fence to be back", every=0.02)
    assert not arrives(inside, nodes[1], "ip")
    inside.run("nft", "delete", "table", "inet", "site")


def test_a_route_that_somebody_adds_is_found_and_taken_away(inside):
    before = len(tampers(inside))
    inside.run("ip", "route", "add", "198.51.100.0/24", "dev", device(inside))
    wait_until(lambda: "198.51.100" not in inside.out("ip", "route"), DRIFT_S, "the route to go")
    assert any("routes" in reason for reason in wait_until(lambda: tampers(inside)[before:], 5, "a record"))


def test_a_route_of_the_fence_that_somebody_takes_away_comes_back(inside):
    controller = inside.controller["address"]
    inside.run("ip", "route", "del", controller)
    wait_until(lambda: controller in inside.out("ip", "route"), DRIFT_S, "the route to be back")


def test_an_interface_that_is_new_is_held_too(nodes, inside):
    inside.run("sh", "-c", "ip link add extra0 type veth peer name extra1 && ip link set extra0 up && ip link set extra1 up")
    wait_until(lambda: "extra0" in inside.out("nft", "list", "table", "netdev", "enclave"), DRIFT_S, "the interface to be fenced")
    inside.run("ip", "link", "del", "extra0")
    wait_until(lambda: "extra0" not in inside.out("nft", "list", "table", "netdev", "enclave"), DRIFT_S, "it to be forgotten")


def test_an_overlay_that_somebody_removes_is_made_again(inside):
    before = len(tampers(inside))
    inside.run("ip", "link", "del", "encov0")
    wait_until(lambda: "10.78.4.1" in inside.run("ip", "-4", "addr", "show", "encov0", check=False).stdout, DRIFT_S, "the overlay to be back")
    assert any("overlay" in reason for reason in wait_until(lambda: tampers(inside)[before:], 5, "a record"))
    assert inside.state()["pool"] == "enclave"


def test_what_cannot_be_put_back_is_quarantined(inside):
    inside.run("mv", "/usr/bin/wireguard-go", "/usr/bin/wireguard-gone")
    try:
        inside.run("ip", "link", "del", "encov0")
        wait_until(lambda: inside.state()["pool"] == "quarantine", DRIFT_S + 15, "quarantine")
    finally:
        inside.run("mv", "/usr/bin/wireguard-gone", "/usr/bin/wireguard-go")
    assert any("could not be put back" in reason for reason in tampers(inside))
    assert inside.state()["areas"]["fence"] == "airlock"


def test_a_look_at_a_fence_that_stands_changes_and_records_nothing(inside):
    before, rules = len(tampers(inside)), inside.out("nft", "-s", "-a", "list", "ruleset")
    end = time.monotonic() + 11
    wait_until(lambda: time.monotonic() > end, 20, "a look")
    assert len(tampers(inside)) == before and inside.out("nft", "-s", "-a", "list", "ruleset") == rules
