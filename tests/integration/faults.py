"""What test_faults.py stands on: arming fault points (base/point.h) in daemons of lab hosts, watching pools from three sides meanwhile, and judging how it ended.

A point file is read when a process starts. So: write the file, kill the daemon, wait until the new one is ready, remove the file, give the order. The next
process of that daemon then starts without points (or, in a chain, with the next one).
"""
import json
import os
import pathlib
import re
import subprocess
import threading
import time

from conftest import LAB, REPO, wait_until

NAME = "cxr"
HELD = {"airlock", "enclave", "quarantine"}
POOLS = HELD | {"general", "service"}
SETTLE_S = 120
NODES = ("n1", "n2", "n3", "n4", "s1", "s2")
# process: (the host it is armed on, its unit; None: privd starts it)
DAEMONS = {"enclaved": ("ctl", "enclaved"), "enclave-schedd": ("ctl", "enclave-schedd"), "enclave-auditd": ("vault", "enclave-auditd"),
           "enclave-keyd": ("vault", "enclave-keyd"), "enclave-privd": ("n1", "enclave-privd"), "enclave-agentd": ("n1", None)}

# Runs on the controller as an admin; a line for each look.
SAMPLER = """
import http.client, json, socket, sys, time
class Local(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(5)
        self.sock.connect("/run/enclave/enclaved.sock")
def get(path):
    c = Local("localhost", timeout=5)
    c.request("GET", path)
    answer = c.getresponse()
    body = json.loads(answer.read())
    c.close()
    return body if answer.status == 200 else {"status": answer.status}
known = False
while True:
    try:
        # Asked by name only once it was there: a refusal is a record.
        known = known or any(e["name"] == sys.argv[1] for e in get("/v1/enclaves")["enclaves"])
        line = {"nodes": get("/v1/nodes").get("nodes"), "enclave": get("/v1/enclaves/" + sys.argv[1]) if known else None}
    except (OSError, ValueError, http.client.HTTPException) as e:
        line = {"error": str(e)}
    print(json.dumps(line), flush=True)
    time.sleep(0.15)
"""

# Runs on the controller as root: what the store holds that should not be there once all is settled.
LEFT = """
import json, sqlite3, sys
db = sqlite3.connect("file:/var/lib/enclave/store.db?mode=ro", uri=True)
rows = db.execute("SELECT row, dir FROM journal j WHERE phase='intent' AND id=(SELECT max(id) FROM journal WHERE enclave_id=j.enclave_id AND row=j.row)").fetchall()
print(json.dumps({"intents": rows, "spool": db.execute("SELECT count(*) FROM spool").fetchone()[0],
                  "operations": db.execute("SELECT count(*) FROM operations WHERE state='running'").fetchone()[0]}))
"""


def steps():
    """Names of the rows, from the table itself: a row added there gets its tests."""
    found = re.findall(r'^\t\{ "(\w+)", enc_row_', (REPO / "controller/enclaved/steps.c").read_text(), re.M)
    assert len(found) >= 14 and found[0] == "authorise" and found[-1] == "open", found
    return found


def processes(init, comm):
    """Pids (on this machine) of the processes of that name in the PID namespace of a host."""
    space = os.readlink(f"/proc/{init}/ns/pid")
    found = set()
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "comm").read_text().strip() == comm[:15] and os.readlink(entry / "ns/pid") == space and "\nState:\tZ" not in (entry / "status").read_text():
                found.add(int(entry.name))
        except OSError:
            continue
    return found


class Watch:
    """Samples pools while tests run: the controller's API, the nodes' processes, and the general scheduler. `broken` lists violations of invariant 1."""

    def __init__(self, faults):
        self.faults, self.last, self.broken, self.looks = faults, {}, [], 0
        self.samples = 0
        self.process = None
        self.stopping = threading.Event()
        self.threads = []

    def start(self):
        self.stopping.clear()
        self.process = subprocess.Popen([str(LAB), "run", "ctl", "--user", "admin1", "--", "python3", "-u", "-c", SAMPLER, NAME], text=True, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env={**os.environ, "LAB_DIR": str(self.faults.lab.dir)})
        self.threads = [threading.Thread(target=self._read, daemon=True), threading.Thread(target=self._look, daemon=True)]
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.stopping.set()
        if self.process:
            self.process.terminate()
            self.process.wait(20)
        for thread in self.threads:
            thread.join(10)

    def _read(self):
        for line in self.process.stdout:
            try:
                sample = json.loads(line)
            except ValueError:
                continue
            sample["at"] = time.monotonic()
            self.last = sample
            self.samples += 1
            self._pools(sample)

    def _pools(self, sample):
        nodes = sample.get("nodes") or []
        names = [n["name"] for n in nodes]
        if len(names) != len(set(names)) or any(n["pool"] not in POOLS for n in nodes):
            self.broken.append(f"the API shows a node twice or in no pool: {[(n['name'], n['pool']) for n in nodes]}")

    def pools(self):
        return {n["name"]: n["pool"] for n in self.last.get("nodes") or []}

    def _look(self):
        """A node runs the slurmd of one pool at a time, and while it is held the general scheduler gives it no job."""
        while not self.stopping.wait(0.5):
            try:
                self._look_once()
            except (OSError, KeyError, subprocess.SubprocessError):
                continue                          # a host is just being rebooted

    def _look_once(self):
        before = self.pools()
        for node in NODES[:4]:
            which = set()
            for pid in processes(self.faults.pids[node], "slurmd"):
                which.add("enclave" if b"/run/enclave/slurm" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() else "general")
            if len(which) > 1:
                self.broken.append(f"{node} runs the slurmd of both pools")
        said = subprocess.run(["nsenter", "-t", str(self.faults.pids["head"]), "-a", "--", "/usr/bin/sinfo", "-h", "-N", "-o", "%N %T"],
                              capture_output=True, text=True, timeout=10).stdout
        after = self.pools()
        self.looks += 1
        for node, state in (line.split() for line in said.splitlines()):
            if before.get(node) in HELD and after.get(node) in HELD and state in ("idle", "mixed", "allocated"):
                self.broken.append(f"{node} is {after[node]} and {state} in the general scheduler")


class Faults:
    """One lab, the watch over it, the log as it was last seen, and the table of how each cell ended."""

    def __init__(self, lab):
        self.lab, self.known, self.table, self.pids = lab, [], [], {}
        self.refresh()
        self.watch = Watch(self)
        self.watch.start()

    def refresh(self):
        self.pids = {h["name"]: h["pid"] for h in self.lab.status()["hosts"]}

    # --- points -------------------------------------------------------------------------------------------------------

    def _file(self, host, process):
        return pathlib.Path(f"/proc/{self.pids[host]}/root/run/enclave/points/{process}")

    def write(self, process, line, host=None):
        file = self._file(host or DAEMONS[process][0], process)
        file.parent.mkdir(mode=0o755, exist_ok=True)
        new = file.with_name(file.name + ".new")
        new.write_text(line + "\n")
        new.rename(file)

    def clear(self, process, host=None):
        self._file(host or DAEMONS[process][0], process).unlink(missing_ok=True)

    def alive(self, process, host=None):
        # The points of schedd are passed by its worker, which is started anew by itself.
        name = "schedd-worker" if process == "enclave-schedd" else process
        return processes(self.pids[host or DAEMONS[process][0]], name)

    def active(self, host, unit):
        return self.lab.run(host, "systemctl", "is-active", unit, check=False).stdout.strip() == "active"

    def arm(self, process, line, host=None):
        """From its next start on the daemon has this point, for one life. Returns its pids."""
        host, unit = host or DAEMONS[process][0], DAEMONS[process][1]
        old = self.alive(process, host)
        self.write(process, line, host)
        if unit:
            self.lab.run(host, "systemctl", "kill", "-s", "KILL", unit)
        else:
            for pid in old:
                os.kill(pid, 9)
        wait_until(lambda: self.alive(process, host) and not self.alive(process, host) & old, 30, f"{process} on {host} to start again")
        # Taken away before it was read, it would arm nobody; /run keeps times of access.
        file = self._file(host, process)
        wait_until(lambda: file.stat().st_atime_ns > file.stat().st_mtime_ns, 30, f"{process} on {host} to read its points")
        if unit:
            wait_until(lambda: self.active(host, unit), 30, f"{unit} on {host} to be ready")
        self.answers()
        armed = self.alive(process, host)
        self.clear(process, host)
        return armed

    def answers(self, seconds=60):
        """The controller is there and has all agents, log and keys."""
        start = time.monotonic()

        def good():
            last = self.watch.last
            if last.get("at", 0) < start or "error" in last:
                return False
            nodes = {n["name"]: n for n in last.get("nodes") or []}
            return all(n in nodes and nodes[n]["agent"]["connected"] for n in NODES)
        wait_until(good, seconds, "the controller with all its agents")
        wait_until(lambda: self.lab.run("vault", "enclavectl", "key", "status", "--json", check=False).stdout.find('"unsealed"') > 0, 30, "keyd to be unsealed")

    def cursor(self, host):
        return self.lab.run(host, "journalctl", "-q", "-n", "0", "--show-cursor").stdout.split("cursor: ")[-1].strip()

    def reached(self, host, unit, cursor):
        """Points at which processes of a unit were killed since then, in order."""
        said = self.lab.run(host, "journalctl", "-q", "-o", "cat", "-u", unit, "--after-cursor", cursor, check=False).stdout
        return re.findall(r"^fault point (\S+): kill$", said, re.M)

    # --- orders -------------------------------------------------------------------------------------------------------

    def order(self, *words):
        """Gives an order without waiting for it; again while the controller is away. Returns the enclave's id, None if refused for good."""
        end = time.monotonic() + 30
        while True:
            done = self.lab.run("ctl", "enclavectl", *words, "--no-wait", "--json", user="admin1", check=False)
            answer = json.loads(done.stdout) if done.stdout.strip() else {}
            if done.returncode == 0:
                return answer.get("id") or self.enclave().get("id")  # destroying what is closed answers the end
            # Killed while it answered: the order may have been taken all the same.
            if words[0] == "create" and done.returncode == 5 and self.enclave().get("state") not in (None, "closed"):
                return self.enclave()["id"]
            if words[0] == "destroy" and done.returncode in (4, 5):
                return self.enclave().get("id")
            assert done.returncode in (1, 8) and time.monotonic() < end, f"{words}: {done.returncode} {done.stdout}"
            time.sleep(0.2)

    def create(self, *more):
        # By name: n1 is where points are armed.
        return self.order("create", NAME, "--nodes", "n1,n2", "--agreement", "BAA-17", "--purpose", "x", "--owner", "res1", *more)

    def destroy(self):
        return self.order("destroy", NAME)

    def enclave(self):
        return self.watch.last.get("enclave") or {}

    # --- how it ended -------------------------------------------------------------------------------------------------

    def unclean(self):
        """Why the pool is not clean; None when it is."""
        if "error" in self.watch.last or not self.watch.last.get("nodes"):
            return f"the controller does not answer: {self.watch.last.get('error')}"
        for n in self.watch.last["nodes"]:
            if n["name"] not in NODES:
                continue
            home = "general" if n["name"].startswith("n") else "service"
            if (n["pool"], n["fence"], n["agent"]["connected"]) != (home, "none", True):
                return f"{n['name']}: pool {n['pool']}, fence {n['fence']}, connected {n['agent']['connected']}, why {n['why']}, next {n['next']}"
            if home == "general" and n["slurm_state"] not in ("idle", "mixed", "allocated"):
                return f"{n['name']}: {n['slurm_state']} in the general scheduler"
        return None

    def unopened(self):
        e = self.enclave()
        if e.get("door") != "open" or e.get("waiting"):
            return f"door {e.get('door')}, waiting {e.get('waiting')}"
        others = [f"{n['name']} {n['pool']}" for n in e["nodes"] if n["pool"] != "enclave"]
        return f"not all inside: {others}" if others or len(e["nodes"]) != 2 else None

    def settle(self, enclave, wanted=("open", "closed"), seconds=SETTLE_S):
        """Waits until the enclave is open, or closed with a clean pool; returns which."""
        start, why = time.monotonic(), "no sample"
        while time.monotonic() < start + seconds:
            e = self.enclave()
            if self.watch.last.get("at", 0) > start and e.get("id") == enclave and e.get("state") in wanted:
                why = self.unopened() if e["state"] == "open" else self.unclean()
                if not why:
                    return e["state"]
            else:
                why = f"state {e.get('state')}, step {e.get('step')}, waiting {e.get('waiting')}, {self.unclean()}"
            time.sleep(0.1)
        raise AssertionError(f"not {' or '.join(wanted)} with all in order after {seconds} s: {why}")

    def left(self):
        return json.loads(self.lab.run("ctl", "python3", "-c", LEFT).stdout)

    def log(self):
        done = self.lab.run("ctl", "enclavectl", "audit", "export", user="auditor1", timeout=60)
        return done.stdout.splitlines()

    def check_log(self):
        """Complete, unaltered, and still with every record that was ever seen in it."""
        verify = json.loads(self.lab.run("ctl", "enclavectl", "audit", "verify", "--json", user="auditor1", check=False, timeout=120).stdout)
        assert verify.get("result") == "complete", verify
        now = self.log()
        assert now[:len(self.known)] == self.known, "records that were in the log are not there any more, or are others"
        assert len(now) <= verify["size"] or len(now) - verify["size"] < 50
        self.known = now
        return [json.loads(line) for line in now]

    def check(self, enclave):
        """After a cell, whatever its end: nothing half done is left in the store, and the log holds together."""
        wait_until(lambda: self.left() == {"intents": [], "spool": 0, "operations": 0} or None, 20, f"an empty spool and no intent without an outcome: {self.left()}")
        records = [r for r in self.check_log() if r["enclave_id"] == enclave]
        acts = [r for r in records if r["class"] == "step"]
        assert acts and acts[-1]["outcome"] != "intent", "the log ends with an intent"
        assert not self.watch.broken, self.watch.broken

    def note(self, cell, ended, start):
        self.table.append((cell, ended, time.monotonic() - start))

    def print_table(self, write):
        width = max([len(c) for c, _, _ in self.table], default=10)
        write(f"\n{'cell':{width}}  ended                 seconds\n")
        for cell, ended, seconds in self.table:
            write(f"{cell:{width}}  {ended:20}  {seconds:6.1f}\n")
        write(f"{len(self.table)} cells; pools were looked at {self.watch.samples} times through the API, {self.watch.looks} times on the nodes and in the scheduler\n")

    def journals(self, lines=120):
        """What a person would look at first."""
        parts = [json.dumps(self.watch.last, indent=1)]
        for host in ("ctl", "vault", "head", *NODES):
            said = self.lab.run(host, "journalctl", "--no-pager", "-q", "-o", "short-precise", "-n", lines, check=False).stdout
            parts.append(f"===== journal of {host}\n{said}")
        return "\n".join(parts)

    def repair(self):
        """After a cell that ended badly the next one starts from a clean pool all the same."""
        for process, (host, _) in DAEMONS.items():
            self.clear(process, host)
        try:
            self.answers(30)
            if self.enclave().get("state") not in (None, "closed"):
                self.destroy()
            for n in self.watch.last.get("nodes") or []:
                if n["pool"] == "quarantine":
                    self.lab.run("ctl", "enclavectl", "node", "release", n["name"], "--json", user="admin1", check=False)
            wait_until(lambda: not self.unclean() and self.enclave().get("state") in (None, "closed"), 45, "a clean pool")
        except Exception:                         # whatever it is, a fresh lab is the answer
            self.fresh()

    def fresh(self):
        self.watch.stop()
        self.lab.lab("down", check=False)
        self.lab.lab("up", timeout=300)
        self.refresh()
        self.known = []
        self.watch.start()
