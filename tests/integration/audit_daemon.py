"""A real enclave-auditd of a test's own, outside the lab: every path comes from its configuration.

It runs without root as a user that owns its state, in a mount namespace where /run is empty, so that fault points
(base/point.h) can be set for it alone. Needs root to set that up.
"""
import base64
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("ENCLAVE_BUILD", REPO / "build/release"))
AUDITD = BUILD / "controller/auditd/enclave-auditd"
VERIFY = BUILD / "controller/cli/verify/enclave-verify"
UID = 65534


class Refused(Exception):
    def __init__(self, error):
        super().__init__(error["text"])
        self.code = error["code"]
        self.error = error


class Gone(Exception):
    """The daemon closed the connection."""


class Client:
    """One connection; `send` and `receive` apart, so that requests can be pipelined."""

    def __init__(self, path, timeout=20):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(timeout)
        self.sock.connect(str(path))

    def send(self, op, **members):
        body = json.dumps({"op": op, **members}).encode()
        self.send_raw(body)

    def send_raw(self, body):
        try:
            self.sock.sendall(struct.pack(">I", len(body)) + body)
        except OSError as error:
            raise Gone from error

    def _exactly(self, n):
        data = b""
        while len(data) < n:
            try:
                part = self.sock.recv(n - len(data))
            except ConnectionError as error:
                raise Gone from error
            if not part:
                raise Gone
            data += part
        return data

    def receive(self):
        answer = json.loads(self._exactly(struct.unpack(">I", self._exactly(4))[0]))
        if "error" in answer:
            raise Refused(answer["error"])
        return answer

    def call(self, op, **members):
        self.send(op, **members)
        return self.receive()

    def append(self, record=None, receipt=False):
        return self.call("append", record=event() if record is None else record, receipt=receipt)

    def close(self):
        self.sock.close()


def event(cls="node", action="lost", outcome="ok", **members):
    """A small valid record."""
    return {"class": cls, "action": action, "outcome": outcome, "obj": {"node": "n1"}, **members}


class Auditd:
    def __init__(self, **conf):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="enc-audit-test-", dir="/var/lib"))
        self.home.chmod(0o755)
        for name in ("state", "run"):
            (self.home / name).mkdir(mode=0o755)
            os.chown(self.home / name, UID, UID)
        self.state = self.home / "state"
        self.log = self.state / "log"
        self.socket = self.home / "run/auditd.sock"
        self.points = self.home / "points"
        self.points.mkdir(mode=0o755)
        self.conf = {"origin": "test.example/log", "state": str(self.state), "socket": str(self.socket), "reserve_bytes": "1M",
                     "full_bytes": "1M", "peers": [{"name": "tester", "user": "root", "append": True, "read": True}], **conf}
        self.process = None
        self.mounted = False

    def tmpfs(self, size):
        """Puts the state on a small file system of its own."""
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},uid={UID},gid={UID},mode=755", "enc-test", self.state], check=True)
        self.mounted = True

    def start(self, points=(), wait=True):
        config = self.home / "auditd.json"
        config.write_text(json.dumps(self.conf))
        (self.points / "enclave-auditd").write_text("".join(f"{line}\n" for line in points))
        script = ("mount -t tmpfs -o mode=755 none /run && mkdir -p /run/enclave/points && mount --bind \"$1\" /run/enclave/points && shift && "
                  f"exec setpriv --reuid={UID} --regid={UID} --clear-groups --bounding-set=-all \"$@\"")
        self.out = open(self.home / "out", "ab")
        self.process = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "--", "/bin/sh", "-ec", script, "sh", str(self.points),
                                         str(AUDITD), "--config", str(config), "--foreground"], stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.out)
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, seconds=20):
        end = time.monotonic() + seconds
        while True:
            assert self.process.poll() is None, f"auditd ended with {self.process.returncode}: {self.output()}"
            try:
                client = Client(self.socket)
                client.call("head")
                client.close()
                return
            except (OSError, Gone):
                assert time.monotonic() < end, f"auditd is not ready: {self.output()}"
                time.sleep(0.02)

    def output(self):
        return (self.home / "out").read_text(errors="replace")

    def client(self):
        return Client(self.socket)

    def wait(self, seconds=20):
        return self.process.wait(seconds)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self):
        self.process.kill()
        return self.wait()

    def restart(self, points=()):
        if self.process.poll() is None:
            self.stop()
        return self.start(points)

    def verify(self, *options, folder=None):
        """(exit status, report) of enclave-verify."""
        done = subprocess.run([VERIFY, folder or self.log, "--vkey", self.state / "log.vkey", "--json", *map(str, options)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        assert done.stderr == ""
        return done.returncode, json.loads(done.stdout)

    def segments(self):
        return sorted(self.log.glob("seg-*.log"))

    def bodies(self):
        """The records as they lie on disk, by index; only frames that are whole."""
        found = {}
        for path in self.segments():
            data, at = path.read_bytes(), 0
            while at + 24 <= len(data):
                magic, _, _, index, length, _ = struct.unpack_from("<IHHQII", data, at)
                if magic != 0x314C4E45 or at + 40 + length > len(data):
                    break
                found[index] = data[at + 24:at + 24 + length]
                at += 40 + length
        return found

    def records(self):
        return {index: json.loads(body) for index, body in self.bodies().items()}

    def copy(self, to):
        """Copies the log by the daemon's own operations, as an auditor does."""
        client, to = self.client(), pathlib.Path(to)
        to.mkdir()
        for file in client.call("files")["files"]:
            data = b""
            while len(data) < file["size"]:
                part = client.call("read", file=file["name"], offset=len(data), length=min(262144, file["size"] - len(data)))
                data += base64.b64decode(part["data"])
            (to / file["name"]).write_bytes(data)
        client.close()
        return to

    def done(self):
        if self.process and self.process.poll() is None:
            self.kill()
        if self.process:
            self.out.close()
        if self.mounted:
            subprocess.run(["umount", self.state], check=True)
        shutil.rmtree(self.home)
