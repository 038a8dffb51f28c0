"""enclave-keyd as a process of its own, without a lab: start, passphrases by descriptor, crash, rights. Needs root, for a mount namespace in
which the user enclave-key exists; the machine itself gets none."""
import contextlib
import fcntl
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import tempfile
import time

import pytest

BUILD = pathlib.Path(os.environ.get("ENCLAVE_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build/release"))
KEYD = BUILD / "controller/keyd/enclave-keyd"
PASSPHRASE = b"correct horse battery staple"
UID = 61321
F_ADD_SEALS, SEALS = 1033, 0xF

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a mount namespace")


def vkey():
    """A verifier key with a right key id: nothing is signed by it here."""
    import base64
    import hashlib
    key = bytes([1]) + bytes.fromhex("03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8")
    return f"lab/log+{hashlib.sha256(b'lab/log' + bytes([10]) + key).hexdigest()[:8]}+{base64.b64encode(key).decode()}\n"


def secret_fd(data=PASSPHRASE):
    """crypto/secretfd.h: u32 length | bytes, 4100 bytes, sealed."""
    fd = os.memfd_create("secret", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4100)
    os.pwrite(fd, struct.pack("<I", len(data)) + data, 0)
    fcntl.fcntl(fd, F_ADD_SEALS, SEALS)
    return fd


class Keyd:
    def __init__(self, folder):
        self.folder, self.process, self.socket = folder, None, folder / "run/keyd.sock"
        self.notify, self.stored, self.store_name = None, None, None
        for name in ("run", "state", "etc"):
            (folder / name).mkdir(mode=0o755)
        os.chown(folder / "state", UID, UID)
        os.chmod(folder / "state", 0o700)
        (folder / "etc/log.vkey").write_text(vkey())
        self.configure()
        passwd, group = pathlib.Path("/etc/passwd").read_text(), pathlib.Path("/etc/group").read_text()
        (folder / "etc/passwd").write_text(passwd + f"enclave-key:x:{UID}:{UID}::/:/usr/sbin/nologin\n")
        (folder / "etc/group").write_text(group + f"enclave-key:x:{UID}:\n")

    def configure(self, **more):
        conf = {"state": str(self.folder / "state"), "socket": str(self.socket), "log_vkey": str(self.folder / "etc/log.vkey"), "argon2_mib": 8,
                "callers": [{"uid": 4711, "ops": ["nonce"]}], **more}
        (self.folder / "etc/keyd.json").write_text(json.dumps(conf))

    def command(self, *options):
        etc = self.folder / "etc"
        return ["unshare", "-m", "--propagation", "private", "sh", "-c",
                f'mount --bind {etc}/passwd /etc/passwd && mount --bind {etc}/group /etc/group && LISTEN_PID=$$ exec "$@"', "sh",
                *self.prefix, str(KEYD), "--config", str(etc / "keyd.json"), *options]

    prefix = ()

    def start(self, wait=True, keep=None):
        """`keep`: a descriptor handed over as systemd's descriptor store does."""
        notify = self.folder / "run/notify"
        notify.unlink(missing_ok=True)
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(str(notify))
        os.chmod(notify, 0o666)
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "NOTIFY_SOCKET": str(notify)}
        place = {}
        if keep is not None:
            env |= {"LISTEN_FDS": "1", "LISTEN_FDNAMES": "root-key"}
            place = {"pass_fds": (3,), "preexec_fn": lambda: os.dup2(keep, 3) if keep != 3 else None}
        self.process = subprocess.Popen(self.command(), env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **place)
        if wait:
            self.until("READY=1")

    def until(self, word, seconds=20):
        """Reads notifications up to the one that has `word`; keeps a descriptor that comes along."""
        self.notify.settimeout(0.2)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}: {self.process.stderr.read().decode()}")
            with contextlib.suppress(TimeoutError):
                data, fds, _, _ = socket.recv_fds(self.notify, 4096, 4)
                text = data.decode()
                for fd in fds:
                    if self.stored is not None:
                        os.close(self.stored)
                    self.stored, self.store_name = fd, text
                if "FDSTOREREMOVE=1" in text and self.stored is not None:
                    os.close(self.stored)
                    self.stored = None
                if word in text:
                    return text
        raise AssertionError(f"no {word} within {seconds} s")

    def call(self, op, fds=(), **members):
        body = json.dumps({"op": op, **members}).encode()
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(20)
            s.connect(str(self.socket))
            socket.send_fds(s, [struct.pack(">I", len(body)) + body], list(fds))
            head = s.recv(4, socket.MSG_WAITALL)
            return json.loads(s.recv(struct.unpack(">I", head)[0], socket.MSG_WAITALL))

    def secret_call(self, op, data=PASSPHRASE):
        fd = secret_fd(data)
        try:
            return self.call(op, [fd])
        finally:
            os.close(fd)

    def state(self):
        return self.call("status")["state"]

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.end()

    def end(self):
        if self.process:
            if self.process.poll() is None:
                self.process.terminate()
            self.process.communicate(timeout=20)
            self.process = None
        if self.notify:
            self.notify.close()
            self.notify = None

    def status_of(self, key):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(key + ":"):
                return line.split(":", 1)[1].split()
        return None


@pytest.fixture
def keyd():
    # Folders that nobody else can write, as /tmp is not, and that the service's own user reaches, as a build below /root is not.
    folder = pathlib.Path(tempfile.mkdtemp(prefix="enc-keyd-test-", dir="/var/lib"))
    folder.chmod(0o755)
    k = Keyd(folder)
    yield k
    k.end()
    if k.stored is not None:
        os.close(k.stored)
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def test_init_seal_and_unseal_over_the_socket(keyd):
    keyd.start()
    assert keyd.state() == "uninitialised"
    made = keyd.secret_call("init")
    assert made["ok"] is True and made["state"] == "unsealed"
    assert (keyd.folder / "state/keyd.vkey").read_text().strip() == made["keyd_vkey"]
    assert (keyd.folder / "state/ca.pem").read_text() == made["ca"]
    assert keyd.call("seal")["state"] == "sealed"
    assert keyd.secret_call("unseal", b"another passphrase")["error"]["code"] == "denied"
    assert keyd.state() == "sealed"
    assert keyd.secret_call("unseal")["state"] == "unsealed"
    assert keyd.secret_call("init")["error"]["code"] == "conflict"


def test_a_crash_without_the_descriptor_store_seals(keyd):
    keyd.start()
    keyd.secret_call("init")
    keyd.kill()
    keyd.start()
    assert keyd.state() == "sealed"
    assert keyd.secret_call("unseal")["state"] == "unsealed"


def test_the_root_key_outlives_a_crash_in_the_descriptor_store(keyd):
    keyd.start()
    keyd.secret_call("init")
    assert "FDNAME=root-key" in keyd.until("FDSTORE=1")
    keyd.kill()
    keyd.start(keep=keyd.stored)
    assert keyd.state() == "unsealed"
    # Sealing on purpose gives the kept one up.
    keyd.call("seal")
    keyd.until("FDSTOREREMOVE=1")
    assert keyd.stored is None


def test_a_kept_key_of_another_store_is_not_taken(keyd):
    keyd.start()
    keyd.secret_call("init")
    keyd.kill()
    wrong = secret_fd(bytes(32))
    keyd.start(keep=wrong)
    os.close(wrong)
    assert keyd.state() == "sealed"


def test_invariant_06_start_fails_when_memory_cannot_be_locked(keyd):
    keyd.prefix = ("setpriv", "--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock", "prlimit", "--memlock=65536:65536")
    keyd.start(wait=False)
    out, err = keyd.process.communicate(timeout=20)
    assert keyd.process.returncode != 0
    assert b"lock" in err
    assert not keyd.socket.exists()


def test_invariant_06_no_secret_in_arguments_environment_or_core(keyd):
    keyd.start()
    keyd.secret_call("init")
    proc = pathlib.Path(f"/proc/{keyd.process.pid}")
    for name in ("cmdline", "environ"):
        assert PASSPHRASE not in (proc / name).read_bytes()
    assert "0 " in next(line for line in (proc / "limits").read_text().splitlines() if line.startswith("Max core file size")).replace("Max core file size", "")
    for path in (keyd.folder / "state").iterdir():
        assert PASSPHRASE not in path.read_bytes()
    # The passphrase was in memory for a moment and is gone: wiped, not only freed.
    memory = memory_of(keyd.process.pid)
    assert b"enclave/keyd+" in memory, "the search sees the process's memory"
    assert PASSPHRASE not in memory


def memory_of(pid):
    """All readable private memory of a process, as root can read it."""
    found = bytearray()
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
        for line in maps:
            span, rights, *_ = line.split()
            start, stop = (int(x, 16) for x in span.split("-"))
            if rights[0] != "r" or "[v" in line:
                continue
            with contextlib.suppress(OSError, OverflowError, ValueError):
                mem.seek(start)
                found += mem.read(stop - start)
    return bytes(found)


def test_it_runs_as_its_user_without_rights_and_filtered(keyd):
    keyd.start()
    assert keyd.status_of("Uid") == [str(UID)] * 4
    assert keyd.status_of("Gid") == [str(UID)] * 4
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(keyd.status_of(name)[0], 16) == 0, name
    assert keyd.status_of("NoNewPrivs") == ["1"]
    assert keyd.status_of("Seccomp") == ["2"]
    assert os.stat(keyd.folder / "state/keys.db").st_uid == UID
    assert os.stat(keyd.folder / "state/keys.db").st_mode & 0o777 == 0o600


def test_a_user_that_is_not_listed_cannot_even_connect(keyd):
    keyd.start()
    script = ("import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.settimeout(10)\ns.connect(sys.argv[1])\n"
              "try:\n s.sendall(b'\\0\\0\\0\\x0f{\"op\":\"status\"}')\n d=s.recv(100)\nexcept OSError: d=b''\nprint(len(d))")
    who = lambda uid: subprocess.run(["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "/usr/bin/python3", "-c", script, str(keyd.socket)],
                                     capture_output=True, text=True, timeout=30)
    assert who(4712).stdout.strip() == "0"
    assert int(who(4711).stdout) > 0


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"op":"status","op":"seal"}', b'{"op":"' + b"x" * 70000 + b'"}', b'{"op":null}', b"\xff\xfe"])
def test_bad_requests_change_nothing(keyd, body):
    keyd.start()
    keyd.secret_call("init")
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(10)
        s.connect(str(keyd.socket))
        s.sendall(struct.pack(">I", len(body)) + body)
        with contextlib.suppress(ConnectionError):
            answer = s.recv(65536)
            assert b'"ok":true' not in answer.replace(b" ", b"")
    assert keyd.state() == "unsealed"


def test_check_config_names_what_is_wrong(keyd):
    run = lambda: subprocess.run(keyd.command("--check-config"), capture_output=True, text=True, timeout=20)
    good = run()
    assert good.returncode == 0 and json.loads(good.stdout)["argon2_mib"] == 8
    keyd.configure(unknown=1)
    bad = run()
    assert bad.returncode == 2 and "unknown" in bad.stderr
    keyd.configure(argon2_mib=1)
    assert run().returncode == 2
