"""A server of docs/protocol.md section 1: frames of JSON on a Unix socket, one thread a connection."""
import json
import os
import socket
import struct
import threading


class Refuse(Exception):
    def __init__(self, code, text, **more):
        super().__init__(text)
        self.error = {"code": code, "step": None, "object": None, "text": text, "next": None, **more}


class Server:
    """`ops` maps an op to a function of the request. `down` makes it unreachable; `calls` has every request in order."""

    def __init__(self, path, ops):
        self.path, self.ops, self.calls, self.down = str(path), ops, [], False
        self.lock = threading.RLock()
        self.connections = set()
        self.open()

    def open(self):
        if os.path.exists(self.path):
            os.unlink(self.path)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        os.chmod(self.path, 0o666)
        self.listener.listen(64)
        self.down = False
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()

    def close(self):
        """Nobody listens any more, and those connected are cut."""
        self.down = True
        self.listener.close()
        os.unlink(self.path)
        for s in list(self.connections):
            s.close()

    def _accept(self, listener):
        while True:
            try:
                s, _ = listener.accept()
            except OSError:
                return
            if self.down:
                s.close()
                return
            self.connections.add(s)
            threading.Thread(target=self._serve, args=(s,), daemon=True).start()

    def _exactly(self, s, n):
        data = b""
        while len(data) < n:
            part = s.recv(n - len(data))
            if not part:
                raise OSError("closed")
            data += part
        return data

    def _serve(self, s):
        try:
            while True:
                (n,) = struct.unpack(">I", self._exactly(s, 4))
                request = json.loads(self._exactly(s, n))
                answer = self._answer(request)
                body = json.dumps(answer).encode()
                if self.down:
                    raise OSError("down")
                s.sendall(struct.pack(">I", len(body)) + body)
        except OSError:
            pass
        finally:
            self.connections.discard(s)
            s.close()

    def _answer(self, request):
        with self.lock:
            self.calls.append(request)
            try:
                if request["op"] not in self.ops:
                    raise Refuse("usage", "no such op")
                return {"ok": True, **(self.ops[request["op"]](request) or {})}
            except Refuse as refusal:
                return {"error": refusal.error}
