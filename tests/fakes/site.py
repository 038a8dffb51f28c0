"""A whole site of fakes around a real enclaved, on loopback. People are accounts that every Debian has, so that SO_PEERCRED is real:
each request is made by a child that has become that user. Needs root; enclaved itself runs as nobody."""
import json
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from . import agent, schedd, vault

REPO = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("ENCLAVE_BUILD", REPO / "build/release"))
ENCLAVED = BUILD / "controller/enclaved/enclaved"
NOBODY = 65534
ADMIN, OFFICER, AUDITOR, STEWARD, OWNER, MEMBER, OUTSIDER = "daemon", "bin", "sys", "games", "man", "mail", "news"


def policy():
    text = json.loads((REPO / "policies/profiles/lab.json").read_text())
    text["roles"] = [{"user": u, "role": r} for u, r in ((ADMIN, "admin"), (OFFICER, "security-officer"), (AUDITOR, "auditor"),
                                                         (STEWARD, "data-steward"), (OWNER, "researcher"), (MEMBER, "researcher"))]
    text["training"] = [{"user": u, "until": "2099-12-31T23:59:59Z"} for u in (OWNER, MEMBER)]
    return text


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Site:
    def __init__(self, nodes=("n1", "n2", "n3"), services=("s1", "s2"), observers=("head",)):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="enclaved-test-", dir="/var/lib"))
        os.chmod(self.dir, 0o755)
        self.log = vault.Log(self.dir / "auditd.sock")
        self.keys = vault.Keys(self.dir / "keyd.sock", self.dir, self.log)
        self.schedd = schedd.Scheduler(self.dir / "schedd.sock", nodes)
        self.port = free_port()
        self.names = [(n, "general") for n in nodes] + [(n, "service") for n in services] + [(n, "observer") for n in observers]
        self.agents = {n: agent.Agent(n, self.dir, self.port, self.schedd, pool == "observer") for n, pool in self.names}
        self._configure()
        self.process = None
        self.points = {}

    def _configure(self):
        (self.dir / "policy").mkdir()
        (self.dir / "policy/lab.json").write_text(json.dumps(policy()))
        (self.dir / "users.json").write_text(json.dumps([{"user": u, "uid": pwd.getpwnam(u).pw_uid + 5000, "gid": 6000, "ssh_keys": []}
                                                         for u in (OWNER, MEMBER, OUTSIDER, ADMIN)]))
        state = self.dir / "state"
        state.mkdir()
        os.chown(state, NOBODY, NOBODY)
        run = self.dir / "run"
        run.mkdir()
        os.chown(run, NOBODY, NOBODY)
        config = {"store": str(state / "store.db"), "socket": str(run / "enclaved.sock"), "auditd": str(self.dir / "auditd.sock"),
                  "keyd": str(self.dir / "keyd.sock"), "schedd": str(self.dir / "schedd.sock"), "listen": "127.0.0.1", "port": self.port,
                  "address4": "127.0.0.1", "certificate": str(state / "tls.crt"), "key": str(state / "tls.key"), "ca": str(state / "ca.crt"),
                  "users": str(self.dir / "users.json"), "measure_every": 8, "metrics_file": str(state / "metrics.prom"), "metrics_every": 1, "policies": str(self.dir / "policy"), "policy": "lab"}
        (self.dir / "enclaved.json").write_text(json.dumps(config))
        self.socket, self.ca = config["socket"], config["ca"]

    # ---- the daemon ----

    def start(self, points=None):
        """`points`: lines of base/point.h for this life. Its /run is its own, so that nobody else meets them."""
        script = "mount -t tmpfs -o mode=755 tmpfs /run; mkdir -p /run/enclave/points; printf '%s' \"$1\" > /run/enclave/points/enclaved; shift; exec \"$@\""
        self.errors = open(self.dir / "enclaved.log", "ab")
        self.process = subprocess.Popen(["unshare", "-m", "sh", "-c", script, "sh", points or "", "setpriv", "--reuid", str(NOBODY), "--regid",
                                         str(NOBODY), "--clear-groups", str(ENCLAVED), "--foreground", "--config", str(self.dir / "enclaved.json")],
                                        stdout=self.errors, stderr=self.errors)
        self.wait(lambda: self.call(ADMIN, "GET", "/v1/whoami")[0] == 200, "enclaved answers")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        for a in self.agents.values():
            a.stop()
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(10)
        text = (self.dir / "enclaved.log").read_text(errors="replace") if (self.dir / "enclaved.log").exists() else ""
        shutil.rmtree(self.dir)
        return text

    def wait(self, condition, what, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                got = condition()
                if got:
                    return got
            except OSError:
                pass
            time.sleep(0.05)
        raise AssertionError("not in time: %s\n%s" % (what, (self.dir / "enclaved.log").read_text(errors="replace")[-4000:]))

    # ---- requests ----

    def raw(self, user, data):
        """Bytes to the API as `user`, everything that comes back until the connection is idle or closed."""
        uid, gid = (pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid) if user != "root" else (0, 0)
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(r)
                os.setgroups([])
                os.setresgid(gid, gid, gid)
                os.setresuid(uid, uid, uid)
                s = socket.socket(socket.AF_UNIX)
                s.settimeout(70)
                s.connect(self.socket)
                s.sendall(data)
                got = b""
                while True:
                    part = s.recv(65536)
                    if not part:
                        break
                    got += part
                    head, sep, body = got.partition(b"\r\n\r\n")
                    length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                    if sep and length and len(body) >= int(length[0].split(b":")[1]):
                        break
                os.write(w, got) if len(got) < 60000 else os.fdopen(w, "wb").write(got)
            except OSError:
                pass
            os._exit(0)
        os.close(w)
        with os.fdopen(r, "rb") as f:
            got = f.read()
        os.waitpid(pid, 0)
        return got

    def call(self, user, method, path, body=None, text=None):
        text = json.dumps(body) if body is not None else text
        head = "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" % (method, path)
        if text is not None:
            head += "Content-Type: application/json\r\nContent-Length: %d\r\n" % len(text.encode())
        got = self.raw(user, (head + "\r\n").encode() + (text or "").encode())
        if not got:
            raise OSError("no answer")
        head, _, data = got.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(data) if data else None

    def get(self, path, user=ADMIN):
        status, answer = self.call(user, "GET", path)
        assert status == 200, answer
        return answer

    # ---- the story ----

    def enroll_all(self):
        self.wait(lambda: os.path.exists(self.ca), "the CA")
        for name, pool in self.names:
            status, answer = self.call(ADMIN, "POST", "/v1/nodes/%s/enroll" % name, {"pool": pool})
            assert status == 200, answer
            self.wait(lambda: not self.agents[name].enroll(answer["token"], self.ca), "enrolment of " + name)
            self.agents[name].start()
        self.wait(self.ready, "all nodes have a baseline")

    def ready(self):
        checks = {c["id"]: c["state"] for c in self.get("/v1/doctor")["checks"]}
        return checks["baseline"] == checks["agents"] == "ok"

    def order(self, name="cxr", nodes=2, user=ADMIN, **more):
        return self.call(user, "POST", "/v1/enclaves", {"name": name, "nodes": nodes, "agreement": "BAA-17", "purpose": "chest x-ray reports",
                                                        "owner": OWNER, **more})

    def finish(self, operation, seconds=60, user=ADMIN):
        """Follow the events until the operation ends."""
        after, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                status, answer = self.call(user, "GET", "/v1/operations/%s/events?after=%d" % (operation, after))
            except OSError:
                time.sleep(0.1)
                continue
            assert status == 200, answer
            after = answer["last"]
            if answer["done"]:
                return answer
        raise AssertionError("operation did not end\n" + (self.dir / "enclaved.log").read_text(errors="replace")[-6000:])

    def create(self, name="cxr", nodes=2, **more):
        status, answer = self.order(name, nodes, **more)
        assert status == 202, answer
        return self.finish(answer["operation"])

    def destroy(self, name="cxr", user=ADMIN):
        status, answer = self.call(user, "DELETE", "/v1/enclaves/" + name)
        assert status == 202, answer
        return self.finish(answer["operation"])

    def pools(self):
        return {n["name"]: n["pool"] for n in self.get("/v1/nodes")["nodes"]}

    def is_clean(self):
        """Everything is as before the first order."""
        assert all(p == ("general" if d == "general" else "service") for (n, d) in self.names if d != "observer" for p in [self.pools()[n]]), self.pools()
        assert all(n["state"] == "idle" and not n["reservation"] for n in self.schedd.nodes.values()), self.schedd.nodes
        assert all(a.areas["fence"] == "none" and a.areas["units"] == "site" and not a.areas["roles"] and not a.areas["volumes"]
                   for a in self.agents.values() if not a.observer)
        assert not self.keys.leases
        assert not [e for a in self.agents.values() for e in a.errors]

    def mend(self):
        """Take back whatever a test that failed has left."""
        self.keys.sealed, self.keys.differs = False, {}
        for server in (self.log.server, self.keys.server, self.schedd.server):
            if server.down:
                server.open()
        for a in self.agents.values():
            a.fail = {}
        for n in self.schedd.nodes.values():
            n["jobs"] = []
        if self.process.poll() is not None:
            self.start()
        for e in self.get("/v1/enclaves")["enclaves"]:
            self.destroy(e["name"])
        for name, pool in self.pools().items():
            if pool == "quarantine":
                self.call(ADMIN, "POST", "/v1/nodes/%s/release" % name, {})

    def spool_empty(self):
        return {c["id"]: c["state"] for c in self.get("/v1/doctor")["checks"]}["spool"] == "ok"
