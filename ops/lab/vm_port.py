"""The guest's end of the lab's way into a VM (vm_channel.py is the other): each virtio-serial port runs one command after another.

A conversation: the host connects and sends MARK and a line of JSON {"id", "words", "env", "folder"}; then frames both ways, each one letter, four bytes of
length (big endian) and as many bytes. The guest's end stays open: what comes between a command's end and the next mark is the rest of an earlier conversation.
 Host: I input, E end of input, S signal number. Guest: B begun, with the id, O output, R error output, X exit status.
"""
import json
import os
import selectors
import signal
import struct
import sys
import time

MARK = b"\x00\x01lab:"
SHUT_S = 0.2                                      # a port without a host reads as ended; there is nothing to wait on


def ports():
    for entry in os.scandir("/sys/class/virtio-ports"):
        with open(os.path.join(entry.path, "name"), encoding="ascii") as f:
            if f.read().startswith("lab."):
                yield f"/dev/{entry.name}"


def frame(kind, data=b""):
    return kind + struct.pack(">I", len(data)) + data


def send(port, data):
    while data:
        data = data[os.write(port, data):]


class Gone(Exception):
    """The host closed its end, or begins another conversation."""


class Reader:
    """Bytes from the port, by lines and frames."""

    def __init__(self, port):
        self.port, self.data = port, b""

    def fill(self):
        got = os.read(self.port, 65536)
        if not got:
            raise Gone
        self.data += got

    def next(self):
        """The line that begins the next conversation."""
        while MARK not in self.data or b"\n" not in self.data.split(MARK, 1)[1]:
            self.data = self.data[self.data.find(MARK):] if MARK in self.data else self.data[-len(MARK):]
            self.fill()
        line, self.data = self.data.split(MARK, 1)[1].split(b"\n", 1)
        return line

    def frames(self):
        while len(self.data) >= 5:
            if self.data.startswith(MARK[:5]):
                raise Gone
            length = struct.unpack(">I", self.data[1:5])[0]
            if len(self.data) < 5 + length:
                return
            kind, payload = self.data[:1], self.data[5:5 + length]
            self.data = self.data[5 + length:]
            yield kind, payload


def start(wanted):
    """A child with three pipes, in a session of its own; returns (pid, stdin, stdout, stderr)."""
    pipes = [os.pipe() for _ in range(3)]
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            for number, end in ((0, pipes[0][0]), (1, pipes[1][1]), (2, pipes[2][1])):
                os.dup2(end, number)
            os.closerange(3, 4096)
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.chdir(wanted["folder"] if os.path.isdir(wanted["folder"]) else "/")
            os.execvpe(wanted["words"][0], wanted["words"], wanted["env"])
        except OSError as e:
            os.write(2, f"lab: {wanted['words'][0]}: {e.strerror}\n".encode())
            os._exit(127 if isinstance(e, FileNotFoundError) else 126)
    os.close(pipes[0][0])
    os.close(pipes[1][1])
    os.close(pipes[2][1])
    return pid, pipes[0][1], pipes[1][0], pipes[2][0]


def told(kind, payload, pid, stdin):
    """One frame from the host; returns stdin, -1 once it is closed."""
    if kind == b"I" and stdin >= 0:
        try:
            send(stdin, payload)
        except BrokenPipeError:
            pass
    elif kind == b"E" and stdin >= 0:
        os.close(stdin)
        return -1
    elif kind == b"S":
        try:
            os.killpg(pid, int(payload))
        except ProcessLookupError:
            pass
    return stdin


def converse(reader, pid, stdin, stdout, stderr):
    """Relays until both outputs have ended and the child has; returns its status."""
    kinds, choose, ended = {stdout: b"O", stderr: b"R"}, selectors.DefaultSelector(), None
    for fd in (reader.port, stdout, stderr):
        choose.register(fd, selectors.EVENT_READ)
    while kinds or ended is None:
        for key, _ in choose.select(0.05 if not kinds or ended is not None else 1):
            if key.fd == reader.port:
                reader.fill()
                for kind, payload in reader.frames():
                    stdin = told(kind, payload, pid, stdin)
                continue
            got = os.read(key.fd, 32768)
            if got:
                send(reader.port, frame(kinds[key.fd], got))
            else:
                choose.unregister(key.fd)
                os.close(key.fd)
                del kinds[key.fd]
        if ended is None:
            got, status = os.waitpid(pid, os.WNOHANG)
            if got:
                ended, last = status, time.monotonic()
        elif time.monotonic() - last > 1:          # a grandchild keeps the outputs open: as from a shell, it is not waited for
            break
    return ended


def end(pid):
    try:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def serve(path):
    reader = Reader(os.open(path, os.O_RDWR))
    while True:
        pid = None
        try:
            wanted = json.loads(reader.next())
            send(reader.port, frame(b"B", wanted["id"].encode()))
            pid, *pipes = start(wanted)
            status = converse(reader, pid, *pipes)
            pid = None
            send(reader.port, frame(b"X", str(os.waitstatus_to_exitcode(status)).encode()))
        except (Gone, OSError, ValueError, KeyError):
            if pid:
                end(pid)
            time.sleep(SHUT_S)


def main():
    for path in sorted(ports()):
        if os.fork() == 0:
            serve(path)
    os.wait()
    sys.exit(1)


if __name__ == "__main__":
    main()
