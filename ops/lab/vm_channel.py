"""The lab's way into a VM, seen from this machine: one command on a free virtio-serial port. The protocol stands in vm_port.py."""
import contextlib
import fcntl
import json
import os
import secrets
import select
import signal
import socket
import struct
import sys
import time

from common import LabError

FAILED, TIMED_OUT = 125, 124
MARK = b"\x00\x01lab:"
GRACE = 2
BEGIN_S = 20                                      # how long a guest may take to take a command up


@contextlib.contextmanager
def _free(paths, deadline):
    """A connection to a port that nobody else uses."""
    while True:
        for path in paths:
            with open(f"{path}.lock", "w") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                with socket.socket(socket.AF_UNIX) as s:
                    try:
                        s.connect(str(path))
                    except OSError as e:
                        raise LabError("the VM is down") from e
                    yield s
                    return
        if time.monotonic() > deadline:
            raise LabError("all ports of the VM are busy")
        time.sleep(0.05)


def _frame(kind, data=b""):
    return kind + struct.pack(">I", len(data)) + data


class _Talk:
    """Frames from the guest; what an earlier command left in the port is dropped until ours has begun."""

    def __init__(self, s, name):
        self.s, self.data, self.begin, self.begun = s, b"", _frame(b"B", name), False

    def take(self):
        got = self.s.recv(65536)
        if not got:
            raise LabError("the VM went down")
        self.data += got
        if not self.begun:
            at = self.data.find(self.begin)
            if at < 0:
                self.data = self.data[-len(self.begin):]
                return
            self.data, self.begun = self.data[at + len(self.begin):], True
        while len(self.data) >= 5:
            length = struct.unpack(">I", self.data[1:5])[0]
            if len(self.data) < 5 + length:
                return
            kind, payload = self.data[:1], self.data[5:5 + length]
            self.data = self.data[5 + length:]
            yield kind, payload


def converse(paths, words, env, folder, timeout, source, sinks, signals=()):
    """Runs words in the guest; `source` is a descriptor to read input from, or None; `sinks` {b"O": f, b"R": f}, called with bytes. The exit status."""
    end = time.monotonic() + timeout if timeout is not None else None
    name = secrets.token_hex(8)
    with _free(paths, time.monotonic() + BEGIN_S) as s:
        s.sendall(MARK + json.dumps({"id": name, "words": [str(w) for w in words], "env": env, "folder": folder}).encode() + b"\n")
        talk, sent, began = _Talk(s, name.encode()), None, time.monotonic()
        if source is None:
            s.sendall(_frame(b"E"))
        while True:
            ready, _, _ = select.select([s] + ([source] if source is not None and talk.begun else []), [], [], 0.1)
            if source is not None and source in ready:
                data = os.read(source, 32768)
                s.sendall(_frame(b"I", data) if data else _frame(b"E"))
                source = source if data else None
            if s in ready:
                for kind, payload in talk.take():
                    if kind == b"X":
                        status = int(payload)
                        return TIMED_OUT if sent else status if status >= 0 else 128 - status
                    sinks[kind](payload)
            while signals:
                s.sendall(_frame(b"S", str(int(signals.pop(0))).encode()))
            now = time.monotonic()
            if not talk.begun and now - began > BEGIN_S:
                raise LabError("the VM does not take commands")
            if end is not None and now > end and (sent is None or now > sent + GRACE):
                s.sendall(_frame(b"S", str(int(signal.SIGTERM if sent is None else signal.SIGKILL)).encode()))
                if sent is not None and now > sent + 3 * GRACE:
                    return TIMED_OUT
                sent = sent or now


def capture(paths, words, env, timeout, stdin=None):
    """(status, stdout, stderr) as text."""
    out, err = [], []
    read, write = os.pipe() if stdin is not None else (None, None)
    if write is not None:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        if len(data) > 60000:
            raise LabError("too much input for a VM at once")
        os.write(write, data)
        os.close(write)
    try:
        status = converse(paths, words, env, "/", timeout, read, {b"O": out.append, b"R": err.append})
    finally:
        if read is not None:
            os.close(read)
    return status, b"".join(out).decode(errors="replace"), b"".join(err).decode(errors="replace")


def run(paths, words, env, folder, timeout):
    """With the caller's own input and outputs, and its signals passed on."""
    signals = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, lambda got, _: signals.append(got))

    def sink(stream):
        def put(data):
            stream.buffer.write(data)
            stream.flush()
        return put
    return converse(paths, words, env, folder, timeout, 0, {b"O": sink(sys.stdout), b"R": sink(sys.stderr)}, signals)
