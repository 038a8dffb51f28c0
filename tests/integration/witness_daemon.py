"""Real enclave-witness and enclave-cosignd of a test's own, beside an Auditd (audit_daemon.py), over Unix sockets and without a lab."""
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from audit_daemon import BUILD, Auditd

WITNESS = BUILD / "controller/witness/enclave-witness"
COSIGND = BUILD / "controller/auditd/enclave-cosignd"
WITNESS_UID, COSIGN_UID = 65534, 1


class Daemon:
    """A program under a uid of its own, in a mount namespace with an empty /run, with fault points of its own."""

    def __init__(self, program, uid, home):
        self.program, self.uid, self.home, self.process = program, uid, pathlib.Path(home), None
        self.points = self.home / "points"
        self.points.mkdir(mode=0o755, exist_ok=True)

    def start(self, conf, points=()):
        config = self.home / f"{self.program.name}.json"
        config.write_text(json.dumps(conf))
        (self.points / self.program.name).write_text("".join(f"{line}\n" for line in points))
        script = ("mount -t tmpfs -o mode=755 none /run && mkdir -p /run/enclave/points && mount --bind \"$1\" /run/enclave/points && shift && "
                  f"exec setpriv --reuid={self.uid} --regid={self.uid} --clear-groups --bounding-set=-all \"$@\"")
        with open(self.home / "out", "ab") as out:
            self.process = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "--", "/bin/sh", "-ec", script, "sh", str(self.points),
                                             str(self.program), "--config", str(config), "--foreground"], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        return self

    def output(self):
        return (self.home / "out").read_text(errors="replace")

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            return self.process.wait(20)
        return None

    def kill(self):
        self.process.kill()
        return self.process.wait(20)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=20)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(20)
        self.sock.connect(self.path)


def wait(condition, seconds=20, what="the condition"):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)


class Witness(Daemon):
    def __init__(self, name, vkeys):
        home = pathlib.Path(tempfile.mkdtemp(prefix="enc-witness-test-", dir="/var/lib"))
        home.chmod(0o755)
        super().__init__(WITNESS, WITNESS_UID, home)
        self.name = name
        for part in ("state", "run"):
            (home / part).mkdir(mode=0o755)
            os.chown(home / part, WITNESS_UID, WITNESS_UID)
        self.socket, self.logs = home / "run/witness.sock", []
        for i, vkey in enumerate(vkeys):
            (home / f"log{i}.vkey").write_text(vkey)
            self.logs.append(str(home / f"log{i}.vkey"))

    def up(self, points=()):
        self.start({"name": self.name, "state": str(self.home / "state"), "socket": str(self.socket), "logs": self.logs}, points)
        wait(lambda: self.process.poll() is not None or self.answers(), what=f"the witness: {self.output()}")
        assert self.process.poll() is None, self.output()
        return self

    def answers(self):
        try:
            return self.ask("GET", "/checkpoint/none")[0] == 404
        except OSError:
            return False

    def ask(self, method, path, body=None):
        """(status, content type, body) of one request."""
        connection = UnixConnection(self.socket)
        connection.request(method, path, body=body, headers={"Content-Type": "text/plain"} if body is not None else {})
        answer = connection.getresponse()
        got = answer.status, answer.getheader("Content-Type"), answer.read().decode()
        connection.close()
        return got

    def add(self, body):
        return self.ask("POST", "/add-checkpoint", body.encode())

    @property
    def vkey(self):
        return (self.home / "state/witness.vkey").read_text().strip()

    def done(self):
        if self.process and self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.home)


class Witnessed:
    """An auditd with two witnesses and cosignd between them, all real."""

    def __init__(self, quorum="all", **conf):
        self.auditd = Auditd(**conf)
        self.auditd.conf["peers"].append({"name": "cosignd", "user": "daemon", "cosign": True})
        self.policy = self.auditd.home / "witnesses"
        self.auditd.conf["witnesses"] = str(self.policy)
        self.quorum = quorum
        self.auditd.start()
        self.log_vkey = (self.auditd.state / "log.vkey").read_text()
        self.witnesses = [Witness(f"w{i}.example", [self.log_vkey]).up() for i in (1, 2)]
        self.write_policy()
        self.auditd.restart()
        self.cosignd = None

    def write_policy(self):
        lines = [f"log {self.log_vkey.strip()}"]
        lines += [f"witness w{i + 1} {w.vkey} unix:{w.socket}" for i, w in enumerate(self.witnesses)]
        self.policy.write_text("\n".join([*lines, f"group both {self.quorum} w1 w2", "quorum both", ""]))

    def start_cosignd(self, refresh_s=1):
        home = self.auditd.home / "cosignd"
        home.mkdir(exist_ok=True)
        self.cosignd = Daemon(COSIGND, COSIGN_UID, home)
        self.cosignd.start({"auditd": str(self.auditd.socket), "witnesses": str(self.policy), "refresh_s": refresh_s})
        return self.cosignd

    def shown(self):
        client = self.auditd.client()
        answer = client.call("witness")
        client.close()
        return answer

    def states(self):
        return [w["state"] for w in self.shown()["list"]]

    def wait_cosigned(self, size=None):
        """Until a quorum has cosigned all that is signed now."""
        client = self.auditd.client()
        size = size or client.call("search", limit=1)["size"]
        client.close()
        wait(lambda: self.shown()["witnesses"]["size"] >= size, what=f"a quorum at {size}: {self.cosignd.output()}")
        return size

    def done(self):
        if self.cosignd and self.cosignd.process.poll() is None:
            self.cosignd.kill()
        for witness in self.witnesses:
            witness.done()
        self.auditd.done()
