"""enclave-schedd against the lab's general cluster: every op, what it refuses, and what happens when Slurm or the helper's own child fails.

The tests run an instance of their own beside the product's: other socket, other list, same binary and sandbox."""
import datetime
import json
import time

import pytest
from conftest import wait_until

SOCKET = "/run/enclave/schedd-test.sock"
LIST = "/etc/enclave/lendable-test"
POINTS = "/run/enclave/points/enclave-schedd"
UNIT = "schedd-test"
LEND = "n[1-3]\ngeneral never below 2 schedulable nodes\n"
CLIENT = """
import json, socket, struct, sys
def get(s, n):
    data = b""
    while len(data) < n:
        part = s.recv(n - len(data))
        if not part:
            sys.exit("closed")
        data += part
    return data
s = socket.socket(socket.AF_UNIX)
s.settimeout(40)
s.connect(sys.argv[1])
for body in json.loads(sys.argv[2]):
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    s.sendall(struct.pack(">I", len(raw)) + raw)
    print(get(s, struct.unpack(">I", get(s, 4))[0]).decode())
"""


def later(hours=1):
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Schedd:
    def __init__(self, lab, host="ctl", role="general", user="enclave", socket=SOCKET, unit=UNIT):
        self.lab, self.host, self.role, self.user, self.socket, self.unit = lab, host, role, user, socket, unit

    def start(self, lend=LEND, points="", **conf):
        conf = {"socket": self.socket, "lendable": LIST, "callers": [self.user], "refresh_ms": 100, "call_timeout_s": 4, **conf}
        script = (f"set -e; mkdir -p /run/enclave /run/enclave/points /etc/enclave; systemctl stop {self.unit} 2>/dev/null || true; systemctl reset-failed {self.unit} 2>/dev/null || true\n"
                  f"printf %s '{json.dumps(conf)}' > /etc/enclave/{self.unit}.json; printf %s '{lend}' > {LIST}; chmod 644 {LIST}\n"
                  + (f"printf %s '{points}' > {POINTS}\n" if points else f"rm -f {POINTS}\n") +
                  f"systemd-run -q --unit={self.unit} --service-type=notify -p SystemCallFilter='@system-service seccomp' -p NoNewPrivileges=yes "
                  f"/usr/sbin/enclave-schedd --role {self.role} --config /etc/enclave/{self.unit}.json")
        self.lab.run(self.host, "bash", "-c", script)
        self.lab.run(self.host, "rm", "-f", POINTS)  # read once, at the start

    def stop(self):
        self.lab.run(self.host, "bash", "-c", f"systemctl stop {self.unit}; rm -f {LIST} /etc/enclave/{self.unit}.json {POINTS} {self.socket}", check=False)

    def calls(self, *bodies, user=None):
        done = self.lab.run(self.host, "runuser", "-u", user or self.user, "--", "python3", "-c", CLIENT, self.socket, json.dumps(bodies), timeout=50, check=False)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def ask(self, op, **members):
        return self.calls({"op": op, **members})[0]

    def ok(self, op, **members):
        answer = self.ask(op, **members)
        assert answer.get("ok") is True, answer
        return answer

    def refused(self, code, op, **members):
        answer = self.ask(op, **members)
        assert answer.get("error", {}).get("code") == code, answer
        assert answer["error"]["text"]
        return answer["error"]

    def node(self, name):
        return {n["name"]: n for n in self.ok("nodes")["nodes"]}[name]

    def sees(self, name, **want):
        wait_until(lambda: all(self.node(name)[k] == v for k, v in want.items()), 10, f"{name} with {want}")

    def ready(self):
        wait_until(lambda: self.ask("health").get("scheduler"), 15, "the first look at the scheduler")


def slurm(lab, *words, check=True):
    return lab.run("head", *words, check=check).stdout


def restore(lab):
    """The cluster as it was: no reservation of ours, no job, all nodes up."""
    script = ("for r in $(scontrol -o show res | sed -n 's/^ReservationName=\\([^ ]*\\).*/\\1/p'); do scontrol delete reservation=$r; done\n"
              "scancel --full -u res1; scontrol update nodename=n1,n2,n3,n4 state=resume 2>/dev/null; true")
    lab.run("head", "bash", "-c", script)
    wait_until(lambda: slurm(lab, "sinfo", "-h", "-N", "-o", "%t").split().count("idle") == 4, 30, "four idle nodes")


@pytest.fixture(scope="module")
def running(lab):
    schedd = Schedd(lab)
    schedd.start()
    schedd.ready()
    yield schedd
    schedd.stop()
    restore(lab)


@pytest.fixture
def schedd(lab, running):
    restore(lab)
    yield running


@pytest.fixture
def own(lab):
    """An instance that a test starts itself, in its own way."""
    restore(lab)
    made = Schedd(lab, socket="/run/enclave/schedd-own.sock", unit="schedd-own")
    yield made
    made.stop()
    restore(lab)


def submit(lab, *options, seconds=300):
    out = lab.run("login", "sbatch", "--parsable", "-o", "/dev/null", "-t", "10", *options, "--wrap", f"sleep {seconds}", user="res1").stdout
    job = int(out.strip().split(";")[0])
    wait_until(lambda: slurm(lab, "squeue", "-h", "-j", str(job), "-o", "%T").strip() == "RUNNING", 20, "a running job")
    return job


# ---- reading ----

def test_nodes_come_at_once_with_their_age(schedd):
    answer = schedd.ok("nodes")
    assert [n["name"] for n in answer["nodes"]] == ["n1", "n2", "n3", "n4"] and answer["pages"] == 1
    assert 0 <= answer["age_s"] < 2
    one = answer["nodes"][0]
    assert one["schedulable"] and one["partitions"] == ["general"] and one["cpus"] == 2 and one["jobs"] == [] and one["held"] is None


def test_a_node_is_free_when_its_job_ends(lab, schedd):
    job = submit(lab, "-w", "n2")
    wait_until(lambda: schedd.node("n2")["jobs"], 10, "the job in the snapshot")
    node = schedd.node("n2")
    assert node["jobs"][0]["id"] == job and node["jobs"][0]["user"] == "res1" and node["jobs"][0]["requeueable"]
    assert node["free_at"] == node["jobs"][0]["end_time"] > later(0.1)
    assert [j["id"] for j in schedd.ok("jobs", nodes=["n2"])["jobs"]] == [job]
    assert schedd.ok("jobs", nodes=["n1"])["jobs"] == []


# ---- acting ----

def test_reserving_is_idempotent_and_keeps_new_jobs_off(lab, schedd):
    end = later()
    for _ in range(2):
        schedd.ok("reserve", name="k3", nodes=["n1"], end_time=end)
    schedd.sees("n1", held="k3", schedulable=False)
    assert slurm(lab, "scontrol", "-o", "show", "res").count("ReservationName=") == 1
    assert lab.run("login", "srun", "--immediate=1", "-w", "n1", "true", user="res1", check=False).returncode != 0
    assert lab.run("login", "srun", "--immediate=1", "-w", "n1", "--reservation=reserved_k3", "true", user="res1", check=False).returncode != 0
    for _ in range(2):
        schedd.ok("release", name="k3")
    schedd.sees("n1", held=None, schedulable=True)


def test_a_reservation_can_be_moved_and_extended(lab, schedd):
    schedd.ok("reserve", name="k3", nodes=["n1"], end_time=later(1))
    schedd.ok("reserve", name="k3", nodes=["n1", "n2"], end_time=later(2))
    schedd.sees("n2", held="k3")
    schedd.ok("reserve", name="k3", nodes=["n2"], end_time=later(2))
    schedd.sees("n1", held=None)


def test_two_reservations_cannot_hold_one_node(lab, schedd):
    schedd.ok("reserve", name="k3", nodes=["n1"], end_time=later())
    schedd.refused("conflict", "reserve", name="k4", nodes=["n1"], end_time=later())
    schedd.ok("reserve", name="k4", nodes=["n2"], end_time=later())
    schedd.ok("release", name="k4")
    schedd.sees("n1", held="k3")


def test_a_reservation_of_the_site_is_left_alone(lab, schedd):
    slurm(lab, "scontrol", "create", "reservation=maint", "starttime=now", "duration=60", "nodes=n1", "users=root")
    schedd.sees("n1", reservation="maint", held=None)
    schedd.refused("conflict", "reserve", name="k3", nodes=["n1"], end_time=later())
    schedd.ok("release", name="maint")
    assert "ReservationName=maint" in slurm(lab, "scontrol", "-o", "show", "res")


def test_running_jobs_go_on_in_a_reserved_and_drained_node(lab, schedd):
    job = submit(lab, "-w", "n1")
    schedd.ok("reserve", name="k3", nodes=["n1"], end_time=later())
    schedd.ok("drain", node="n1", reason="reserved k3")
    assert slurm(lab, "squeue", "-h", "-j", str(job), "-o", "%T").strip() == "RUNNING"
    assert schedd.ok("away", node="n1")["away"] is False
    schedd.refused("busy", "away", node="n1", mark=True)


@pytest.mark.parametrize("how", ["requeue", "cancel"])
def test_a_job_on_a_held_node_can_be_ended(lab, schedd, how):
    job = submit(lab, "-w", "n1")
    schedd.ok("reserve", name="k3", nodes=["n1"], end_time=later())
    for _ in range(2):
        schedd.ok("end", job=job, how=how)
    wait_until(lambda: schedd.ok("jobs", nodes=["n1"])["jobs"] == [], 20, "the node to be free")
    state = slurm(lab, "squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T").strip()
    assert state in (("PENDING",) if how == "requeue" else ("CANCELLED", "COMPLETING"))


def test_a_job_elsewhere_is_not_ended(lab, schedd):
    job = submit(lab, "-w", "n2")
    schedd.refused("denied", "end", job=job, how="cancel")
    outside = submit(lab, "-w", "n4")
    schedd.refused("denied", "end", job=outside, how="cancel")
    assert slurm(lab, "squeue", "-h", "-o", "%T").split() == ["RUNNING", "RUNNING"]


def test_a_job_that_cannot_be_requeued_says_so(lab, schedd):
    job = submit(lab, "-w", "n1", "--no-requeue")
    schedd.ok("reserve", name="k3", nodes=["n1"], end_time=later())
    assert "cancel" in schedd.refused("conflict", "end", job=job, how="requeue")["next"]
    assert slurm(lab, "squeue", "-h", "-j", str(job), "-o", "%T").strip() == "RUNNING"


def test_a_node_goes_away_and_comes_back(lab, schedd):
    for _ in range(2):
        schedd.ok("drain", node="n1", reason="reserved k3")
    assert schedd.ok("away", node="n1")["away"] is False
    lab.run("n1", "systemctl", "stop", "slurmd")
    for _ in range(2):
        assert schedd.ok("away", node="n1", mark=True)["away"] is True
    lab.run("n1", "systemctl", "start", "slurmd")
    schedd.ok("resume", node="n1")
    schedd.sees("n1", schedulable=True, reason=None)
    schedd.ok("resume", node="n1")


def test_a_node_that_was_not_drained_for_us_is_not_set_down(lab, schedd):
    schedd.refused("conflict", "away", node="n1", mark=True)
    slurm(lab, "scontrol", "update", "nodename=n1", "state=drain", "reason=bad disk")
    schedd.refused("conflict", "away", node="n1", mark=True)


def test_a_drain_of_the_site_is_neither_taken_over_nor_undone(lab, schedd):
    slurm(lab, "scontrol", "update", "nodename=n1", "state=drain", "reason=bad disk")
    assert "bad disk" in schedd.refused("conflict", "drain", node="n1")["text"]
    schedd.refused("conflict", "resume", node="n1")
    assert "bad disk" in slurm(lab, "scontrol", "show", "node", "n1")


def test_invariant_10_general_users_read_reserved_and_no_more(lab, schedd):
    schedd.refused("usage", "drain", node="n1", reason="chest x-rays of cxr")
    schedd.ok("drain", node="n1")
    assert lab.run("login", "sinfo", "-h", "-n", "n1", "-o", "%E", user="res1").stdout.strip() == "reserved"


# ---- the root-owned list ----

def test_a_node_outside_the_list_is_never_touched(lab, schedd):
    for op, members in (("drain", {"node": "n4"}), ("resume", {"node": "n4"}), ("away", {"node": "n4"}), ("away", {"node": "n4", "mark": True}),
                        ("reserve", {"name": "k3", "nodes": ["n4"], "end_time": later()}), ("reserve", {"name": "k3", "nodes": ["n1", "n4"], "end_time": later()})):
        assert schedd.refused("denied", op, **members)["object"] == "n4"
    assert slurm(lab, "scontrol", "-o", "show", "res").count("ReservationName=") == 0
    schedd.sees("n1", schedulable=True)


def test_general_never_falls_below_its_floor(lab, schedd):
    schedd.refused("busy", "reserve", name="k3", nodes=["n1", "n2", "n3"], end_time=later())
    schedd.ok("reserve", name="k3", nodes=["n1"], end_time=later())
    schedd.ok("drain", node="n2")
    assert "floor" in schedd.refused("busy", "drain", node="n3")["text"]
    schedd.refused("busy", "reserve", name="k4", nodes=["n3"], end_time=later())
    schedd.ok("drain", node="n1")     # is out already
    assert slurm(lab, "sinfo", "-h", "-N", "-o", "%t").split().count("idle") >= 2


def test_the_floor_counts_only_nodes_that_take_jobs(lab, schedd):
    slurm(lab, "scontrol", "update", "nodename=n4", "state=drain", "reason=bad disk")
    schedd.refused("busy", "reserve", name="k3", nodes=["n1", "n2"], end_time=later())
    schedd.ok("reserve", name="k3", nodes=["n1"], end_time=later())


def test_two_callers_at_once_do_not_pass_the_floor_together(lab, schedd):
    script = " & ".join(f"runuser -u enclave -- python3 -c '{CLIENT}' {SOCKET} '{json.dumps([dict(op='drain', node=n)])}'" for n in ("n1", "n2", "n3")) + " & wait"
    out = lab.run("ctl", "bash", "-c", script).stdout
    assert out.count('"ok":true') == 2 and out.count('"busy"') == 1, out


def test_a_change_of_the_list_counts_at_once(lab, schedd):
    lab.run("ctl", "bash", "-c", f"echo n2 > {LIST}")
    try:
        schedd.refused("denied", "drain", node="n1")
        schedd.ok("drain", node="n2")
        lab.run("ctl", "rm", LIST)
        assert "exist" in schedd.refused("denied", "drain", node="n3")["text"]
        lab.run("ctl", "bash", "-c", f"echo n3 > {LIST}; chmod 666 {LIST}")
        schedd.refused("denied", "drain", node="n3")
        lab.run("ctl", "bash", "-c", f"echo 'n[3' > {LIST}; chmod 644 {LIST}")
        assert "line 1" in schedd.refused("usage", "drain", node="n3")["text"]
    finally:
        lab.run("ctl", "bash", "-c", f"printf %s '{LEND}' > {LIST}; chmod 644 {LIST}")


# ---- bad input ----

@pytest.mark.parametrize("body, code", [
    ({"op": "drain", "node": "n9"}, "not_found"), ({"op": "jobs", "nodes": ["n1", "n9"]}, "not_found"), ({"op": "end", "job": 999999, "how": "cancel"}, "not_found"),
    ({"op": "drain"}, "usage"), ({"op": "drain", "node": "n1;reboot"}, "usage"), ({"op": "drain", "node": 7}, "usage"), ({"op": "drain", "node": "n1", "force": True}, "usage"),
    ({"op": "jobs", "nodes": []}, "usage"), ({"op": "end", "job": 0, "how": "cancel"}, "usage"), ({"op": "end", "job": 1, "how": "kill"}, "usage"), ({"op": "end", "job": 1}, "usage"),
    ({"op": "reserve", "name": "K3", "nodes": ["n1"], "end_time": "2099-01-01T00:00:00Z"}, "usage"), ({"op": "reserve", "name": "k3", "nodes": ["n1"], "end_time": "2001-01-01T00:00:00Z"}, "usage"),
    ({"op": "reserve", "name": "k3", "nodes": ["n1"], "end_time": "tomorrow"}, "usage"), ({"op": "reserve", "name": "x" * 41, "nodes": ["n1"], "end_time": "2099-01-01T00:00:00Z"}, "usage"),
    ({"op": "reserve", "name": "k3", "nodes": [], "end_time": "2099-01-01T00:00:00Z"}, "usage"), ({"op": "reserve", "name": "k3", "nodes": "n[1-2]", "end_time": "2099-01-01T00:00:00Z"}, "usage"),
    ({"op": "nodes", "page": 9}, "usage"), ({"op": "nodes", "page": -1}, "usage"), ({"op": "snapshot"}, "usage"), ({"op": "fly"}, "usage"), ({}, "usage"),
])
def test_bad_input_changes_nothing_and_says_what_is_wrong(lab, schedd, body, code):
    answer = schedd.calls(body)[0]
    assert answer["error"]["code"] == code and answer["error"]["text"], answer
    assert slurm(lab, "scontrol", "-o", "show", "res").count("ReservationName=") == 0
    assert set(slurm(lab, "sinfo", "-h", "-N", "-o", "%t").split()) == {"idle"}


def test_only_the_callers_named_may_connect(schedd):
    for user in ("enclave-agent", "root"):
        done = schedd.lab.run("ctl", "runuser", "-u", user, "--", "python3", "-c", CLIENT, SOCKET, '[{"op":"health"}]', check=False)
        assert done.returncode != 0 and "ok" not in done.stdout


# ---- faults ----

def test_a_child_killed_in_a_call_costs_that_call_alone(own):
    own.start(points="schedd.drain kill\n")
    own.ready()
    assert "not known" in own.refused("unavailable", "drain", node="n1")["text"]
    wait_until(lambda: own.ask("health")["worker"]["up"], 10, "the next child")
    assert own.ask("health")["worker"]["started"] >= 2
    own.sees("n1", schedulable=True)
    own.ok("reserve", name="k3", nodes=["n1"], end_time=later())


def test_invariant_08_a_child_that_hangs_is_replaced_within_the_deadline(own):
    own.start(points="schedd.drain stall\n", call_timeout_s=1)
    own.ready()
    begin = time.monotonic()
    own.refused("timeout", "drain", node="n1")
    assert time.monotonic() - begin < 5
    wait_until(lambda: own.ask("health")["worker"]["up"], 10, "the next child")
    assert own.ask("health")["worker"]["killed"] == 1
    own.ok("reserve", name="k3", nodes=["n1"], end_time=later())


def test_the_child_ended_from_outside_is_replaced(lab, own):
    own.start()
    own.ready()
    lab.run("ctl", "bash", "-c", f"pkill -9 -x schedd-worker -P $(pgrep -x schedd-super -P $(systemctl show -p MainPID --value {own.unit}))")
    wait_until(lambda: own.ask("health")["worker"]["started"] == 2, 10, "a second child")
    assert own.ask("health")["worker"]["killed"] == 0
    own.sees("n1", schedulable=True)


def test_without_slurmctld_reading_goes_on_and_acting_says_unavailable(lab, own):
    own.start(call_timeout_s=20)
    own.ready()
    lab.run("head", "systemctl", "stop", "slurmctld")
    try:
        wait_until(lambda: not own.ask("health")["scheduler"], 40, "the loss to be noticed")
        answer = own.ok("nodes")
        assert len(answer["nodes"]) == 4 and answer["age_s"] > 1
        assert own.refused("unavailable", "drain", node="n1")["next"]
    finally:
        lab.run("head", "systemctl", "start", "slurmctld")
    wait_until(lambda: own.ask("health")["scheduler"], 60, "the scheduler to be back")
    own.sees("n1", schedulable=True)


def test_invariant_08_a_scheduler_that_hangs_is_a_timeout(lab, own):
    own.start(call_timeout_s=2)
    own.ready()
    lab.run("head", "bash", "-c", "kill -STOP $(pgrep -x slurmctld)")
    try:
        begin = time.monotonic()
        assert own.ask("drain", node="n1")["error"]["code"] in ("timeout", "unavailable")
        assert time.monotonic() - begin < 8
        assert own.ok("nodes")["nodes"]
    finally:
        lab.run("head", "bash", "-c", "kill -CONT $(pgrep -x slurmctld)")
    wait_until(lambda: own.ask("health")["scheduler"], 60, "the scheduler to be back")


def test_a_wrong_list_stops_the_start(lab, own):
    with pytest.raises(AssertionError):
        own.start(lend="n[1-\n")
