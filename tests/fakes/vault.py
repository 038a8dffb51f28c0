"""A log that only remembers, and a key service that checks that each order rests on a record of its own and a nonce used once."""
import base64
import hashlib
import json
import pathlib
import subprocess

from . import document
from .ipc import Refuse, Server


class Log:
    def __init__(self, path):
        self.records = []
        self.server = Server(path, {"append": self.append, "head": self.head, "search": self.search, "files": lambda r: {"files": []}})

    def append(self, request):
        record = request["record"]
        if "class" not in record or "action" not in record:
            raise Refuse("usage", "no event")
        self.records.append(record)
        out = {"index": len(self.records) - 1, "time": "2026-12-01T00:00:00Z"}
        if request.get("receipt"):
            out |= {"record": json.dumps(record), "proof": "proof of %d" % out["index"]}
        return out

    def head(self, request):
        return {"origin": "fake", "size": len(self.records), "root": "", "checkpoint": "", "age_s": 0, "records": len(self.records), "full": False,
                "witnesses": {"required": 0, "cosigned": 0, "age_s": None}, "witness_age_s": None, "witness_alarm": False}

    def search(self, request):
        found = [r for r in self.records if not request.get("user") or r.get("actor", {}).get("user") == request["user"]]
        return {"records": found, "matched": len(found), "complete": True}

    def find(self, cls, action, outcome=None):
        return [r for r in self.records if r["class"] == cls and r["action"] == action and (outcome is None or r["outcome"] == outcome)]


class Keys:
    """`differs`: node → rows in which it differs from its baseline."""

    verbs = {"certify": ("node.enroll", "server.certify"), "baseline": ("node.baseline",), "lease": ("enclave.lease", "enclave.end"),
             "key": ("key.create",), "grant": ("node.grant",), "members": ("enclave.members",), "destroy": ("key.destroy",), "lock": ("key.lock",)}

    def __init__(self, path, folder, log):
        self.folder, self.log = pathlib.Path(folder), log
        self.sealed, self.differs, self.nonces, self.n = False, {}, set(), 0
        self.leases, self.keys, self.grants, self.members = {}, {}, [], {}
        self._make_ca()
        ops = {op: getattr(self, "op_" + op) for op in ("status", "nonce", "attest", *self.verbs)}
        self.server = Server(path, ops)

    def _openssl(self, *words):
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)

    def _make_ca(self):
        self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.folder / "ca.key")
        (self.folder / "ca.cnf").write_text("[req]\ndistinguished_name=dn\nprompt=no\nx509_extensions=ext\n[dn]\nCN=fake\n[ext]\n"
                                            "basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign,cRLSign\n"
                                            "subjectKeyIdentifier=hash\n")
        self._openssl("req", "-x509", "-new", "-key", self.folder / "ca.key", "-days", "3", "-out", self.folder / "ca.pem", "-config",
                      self.folder / "ca.cnf")

    def op_status(self, request):
        return {"state": "sealed" if self.sealed else "unsealed", "driver": "file", "version": 1}

    def op_nonce(self, request):
        self.n += 1
        nonce = "%032x" % self.n
        self.nonces.add(nonce)
        return {"nonce": nonce}

    def _head(self, request):
        """The checks that keyd makes of a receipt, without the cryptography."""
        record = json.loads(request["record"])
        head = record["head"]
        if self.log.records[int(request["proof"].split()[-1])] != record:
            raise Refuse("integrity", "not in the log")
        if record["outcome"] not in ("intent", "ok"):
            raise Refuse("denied", "the record does not say that the act goes ahead")
        if head["nonce"] not in self.nonces:
            raise Refuse("denied", "nonce not known or used")
        self.nonces.discard(head["nonce"])
        if head["verb"] not in self.verbs[request["op"]]:
            raise Refuse("denied", "the record is about " + head["verb"])
        if self.sealed and head["verb"] not in ("key.destroy", "key.lock", "enclave.end"):
            raise Refuse("unavailable", "the key service is sealed")
        return head

    def op_certify(self, request):
        head = self._head(request)
        server = head["verb"] == "server.certify"
        name = "enclave-controller" if server else request["node"]
        assert head["document"] == hashlib.sha256(request["csr"].encode()).hexdigest()
        assert head["object"] == (name if server else request["identity"])
        csr, crt, ext = (self.folder / (name + s) for s in (".csr", ".crt", ".ext"))
        csr.write_text(request["csr"])
        ext.write_text("basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\nsubjectAltName=DNS:%s\nextendedKeyUsage=%s\n"
                       % (name, "serverAuth" if server else "clientAuth"))
        self._openssl("x509", "-req", "-in", csr, "-CA", self.folder / "ca.pem", "-CAkey", self.folder / "ca.key", "-set_serial",
                      "0x%032x" % (self.n + 4096), "-days", "2", "-out", crt, "-extfile", ext)
        return {"certificate": crt.read_text(), "ca": (self.folder / "ca.pem").read_text()}

    def op_baseline(self, request):
        head = self._head(request)
        assert head["document"] == hashlib.sha256(base64.b64decode(request["attestation"])).hexdigest()
        return {"rows": 3}

    def op_lease(self, request):
        head = self._head(request)
        if head["verb"] == "enclave.end":
            assert set(head) == {"verb", "enclave", "nonce"}
            self.leases.pop(request["enclave"], None)
            return None
        assert head["object"] == request["name"] and head["not_after"] == request["not_after"]
        self.leases[request["enclave"]] = request["not_after"]
        for key in request.get("keys", []):
            self.keys[key] = "live"
        return None

    def op_attest(self, request):
        if base64.b64decode(request["attestation"]) != b"attest " + request["challenge"].encode():
            raise Refuse("denied", "the attestation answers another challenge")
        rows = self.differs.get(request["node"], [])
        return {"equal": not rows, "differs": rows, "rows": []}

    def op_key(self, request):
        head = self._head(request)
        assert head["object"] == request["key"]
        if request["enclave"] not in self.leases:
            raise Refuse("denied", "no live lease")
        self.keys.setdefault(request["key"], "live")

    def op_grant(self, request):
        head = self._head(request)
        doc = document.decode(base64.b64decode(request["document"]))
        assert head["document"] == hashlib.sha256(base64.b64decode(request["document"])).hexdigest()
        assert head["node"] == doc["node"] and head["generation"] == doc["generation"] and head.get("enclave", "") == doc["enclave_id"]
        if doc["pool"] == 3 and doc["enclave_id"] not in self.leases:
            raise Refuse("denied", "no live lease")
        if doc["pool"] in (0, 1) and (doc["roles"] or doc["volumes"] or doc["door"] or doc["overlay"] or doc["munge_key"]):
            raise Refuse("denied", "something of an enclave in a pool outside")
        for key in request["keys"]:
            if self.keys.get(key) != "live":
                raise Refuse("denied", "key %s is %s" % (key, self.keys.get(key)))
        self.grants.append(doc)
        return {"grant": base64.b64encode(b"grant " + head["document"].encode()).decode(),
                "sealed": [{"key": k, "data": "c2VhbGVk"} for k in request["keys"]]}

    def op_members(self, request):
        head = self._head(request)
        if head["enclave"] not in self.leases:
            raise Refuse("denied", "no live lease")
        data = base64.b64decode(request["document"])
        at = 1
        for _ in range(2):
            at += 2 + int.from_bytes(data[at:at + 2], "little")
        version = int.from_bytes(data[at:at + 8], "little")
        if self.members.get(head["enclave"], (0, b""))[0] >= version and self.members[head["enclave"]] != (version, data):
            raise Refuse("conflict", "version %d was signed already" % version)
        self.members[head["enclave"]] = (version, data)
        return {"members": request["document"]}

    def op_destroy(self, request):
        self._head(request)
        self.keys[request["key"]] = "destroyed"

    def op_lock(self, request):
        self._head(request)
        if request["key"] not in self.keys:
            raise Refuse("not_found", "no such key")
        self.keys[request["key"]] = "locked"
