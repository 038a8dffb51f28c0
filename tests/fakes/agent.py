"""A node's agent with a privd that obeys at once: it enrols, polls, converges in memory and reports.

`fail` maps an area to a text: the area then fails. `lie` leaves an area as it was but reports it as ordered. Rules that privd has of
grants and pools are checked, and a document that breaks them is an error of the test."""
import base64
import hashlib
import http.client
import json
import socket
import ssl
import subprocess
import threading
import time

from . import document

ROLES = {1: "compute", 2: "scheduler", 4: "login"}
FENCES = ["none", "airlock", "enclave"]
HOME = (0, 1)


class Agent:
    def __init__(self, name, folder, port, schedd=None, observer=False):
        self.name, self.folder, self.port, self.schedd, self.observer = name, folder, port, schedd, observer
        self.areas = {"door": "shut", "roles": [], "volumes": [], "units": "site", "fence": "none", "overlay": "down", "clean": "", "measure": "",
                      "probe": ""}
        self.pool, self.clean_ok, self.boot, self.generation = 0, False, hashlib.md5(name.encode()).hexdigest(), 0
        self.identity = "0" * 64 if observer else hashlib.sha256(name.encode()).hexdigest()
        self.fail, self.errors, self.documents, self.members = {}, [], [], None
        self.evidence, self.events, self.failed, self.digest = {}, [], None, None
        self.attestation = None
        self.stopping = False
        self.key, self.crt, self.ca = (str(folder / (name + s)) for s in (".node.key", ".node.crt", ".node.ca"))

    # ---- http ----

    def _context(self, ca, certificate=True):
        c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        c.minimum_version = ssl.TLSVersion.TLSv1_3
        c.check_hostname = False
        c.load_verify_locations(ca)
        if certificate:
            c.load_cert_chain(self.crt, self.key)
        return c

    def connect(self, enrol=False, ca=None):
        context = self._context(ca or self.ca, not enrol)
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=40)
        tls = context.wrap_socket(raw, server_hostname="enclave-enrol" if enrol else "enclave-controller")
        c = http.client.HTTPConnection("localhost")
        c.sock = tls
        return c

    def call(self, connection, method, path, body=None):
        text = json.dumps(body) if body is not None else None
        connection.request(method, path, body=text, headers={"Content-Type": "application/json"} if text else {})
        r = connection.getresponse()
        data = r.read()
        return r.status, json.loads(data) if data else None

    # ---- enrolment ----

    def request(self, token, ca):
        subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.key], check=True, capture_output=True)
        csr = subprocess.run(["openssl", "req", "-new", "-key", self.key, "-subj", "/CN=" + self.name], check=True, capture_output=True,
                             text=True).stdout
        c = self.connect(enrol=True, ca=ca)
        return self.call(c, "POST", "/v1/agent/enroll", {"node": self.name, "token": token, "csr": csr, "identity": self.identity, "boot": self.boot})

    def enroll(self, token, ca):
        status, answer = self.request(token, ca)
        assert status == 200, answer
        open(self.crt, "w").write(answer["certificate"])
        open(self.ca, "w").write(answer["ca"])

    # ---- life ----

    def start(self):
        self.stopping = False
        self.threads = [threading.Thread(target=self._poll, daemon=True), threading.Thread(target=self._beat, daemon=True)]
        for t in self.threads:
            t.start()

    def stop(self):
        self.stopping = True

    def restarted(self):
        """Its host was rebooted while held: fenced, without keys, and the grant it has is for the boot before."""
        self.boot = hashlib.md5((self.boot + "again").encode()).hexdigest()
        self.areas = {"door": "shut", "roles": [], "volumes": [], "units": "down", "fence": "airlock", "overlay": "down", "clean": None, "measure": None, "probe": None}
        self.clean_ok, self.evidence, self.members = False, {}, None
        self.failed = {"area": "fence", "code": "denied", "text": "the grant is for another boot of this node", "next": None}

    def _beat(self):
        while not self.stopping:
            try:
                self.report()
            except OSError:
                pass
            time.sleep(1)

    def _poll(self):
        connection = None
        while not self.stopping:
            try:
                connection = connection or self.connect()
                status, answer = self.call(connection, "GET", "/v1/agent/document?after=%d" % self.generation)
                if status == 200:
                    self.converge(answer)
                    self.report()
                elif status != 204:
                    raise OSError("status %d" % status)
            except (OSError, http.client.HTTPException):
                connection = None
                time.sleep(0.1)

    def report(self):
        c = self.connect()
        body = {"node": self.name, "version": 1, "boot": None if self.observer else self.boot, "identity": None if self.observer else self.identity,
                "boot_id": "b" * 36, "generation": self.generation, "document": self.digest, "pool": None, "member_version": None,
                "areas": None if self.observer else self.areas, "overlay_key": None if self.observer else base64.b64encode(hashlib.sha256(
                    self.name.encode()).digest()).decode(), "failed": self.failed, "attestation": self.attestation, "evidence": self.evidence,
                "events": self.events, "facts": {"cpus": 2, "memory_mb": 1000, "addresses": ["127.0.0.1", "fe80::1"]}}
        status, answer = self.call(c, "POST", "/v1/agent/report", body)
        c.close()
        if status == 200:
            self.events = [e for e in self.events if e["counter"] > answer["events_stored"]]
        return status, answer

    # ---- privd's rules ----

    def rule(self, holds, text):
        if not holds:
            self.errors.append("%s generation %d: %s" % (self.name, self.generation, text))
            raise ValueError(text)

    def converge(self, answer):
        raw = base64.b64decode(answer["document"])
        doc = document.decode(raw)
        self.generation, self.digest = doc["generation"], hashlib.sha256(raw).hexdigest()
        self.documents.append(doc)
        self.failed = None
        area = "?"
        try:
            if self.observer:
                self.evidence["probe"] = {"probe": doc["probe_id"], "probes": 3, "as_expected": 3}
                return
            granted = answer["grant"] and base64.b64decode(answer["grant"]) == b"grant " + self.digest.encode()
            for area, step in (("door", self._door_down), ("roles", self._roles_down), ("volumes", self._volumes_down), ("overlay", self._overlay_down),
                               ("units", self._units_down), ("fence", self._fence), ("clean", self._clean), ("measure", self._measure),
                               ("overlay", self._overlay_up), ("members", self._members), ("volumes", self._volumes_up), ("roles", self._roles_up),
                               ("door", self._door_up), ("probe", self._probe), ("fence", self._fence_down), ("units", self._units_up)):
                if area in self.fail and step.__name__.endswith(self.fail[area][0]):
                    raise ValueError(self.fail[area][1])
                step(doc, granted, answer)
            self.pool = doc["pool"]
        except ValueError as error:
            self.failed = {"area": area, "code": "failed", "text": str(error), "next": None}

    def _door_down(self, doc, granted, answer):
        if not doc["door"]:
            self.areas["door"] = "shut"

    def _roles_down(self, doc, granted, answer):
        self.areas["roles"] = [r for r in self.areas["roles"] if r in [n for b, n in ROLES.items() if doc["roles"] & b]]
        self.evidence.pop("slurm", None)

    def _volumes_down(self, doc, granted, answer):
        self.areas["volumes"] = [v for v in self.areas["volumes"] if v in [d["name"] for d in doc["volumes"]]]

    def _overlay_down(self, doc, granted, answer):
        if not doc["overlay"]:
            self.areas["overlay"] = "down"

    def _units_down(self, doc, granted, answer):
        if doc["units"]:
            self.areas["units"] = "down"
            if self.schedd and self.name in self.schedd.up:
                self.schedd.up[self.name] = False

    def _fence(self, doc, granted, answer):
        if doc["fence"]:
            self.rule(doc["fence"] != 2 or granted, "fence enclave without a grant")
            self.rule(doc["fence"] != 2 or doc["pool"] == 3, "fence enclave outside the enclave pool")
            self.rule(doc["pool"] == 3 or self.pool != 3 or doc["pool"] in (2, 4), "out of the enclave past the airlock")
            self.rule(doc["controller4"] == "127.0.0.1", "no controller in a fenced document")
            self.areas["fence"] = FENCES[doc["fence"]]

    def _clean(self, doc, granted, answer):
        if doc["clean"] and self.areas["clean"] != doc["clean_id"]:
            self.rule(self.areas["fence"] != "none" and self.areas["units"] == "down", "clean of a node that is not detached and fenced")
            self.rule(not self.areas["roles"] and not self.areas["volumes"] and self.areas["door"] == "shut", "clean with something up")
            self.areas["clean"] = doc["clean_id"]
            self.clean_ok = True
            self.evidence["clean"] = {"items": [{"residue": "tmp", "found": 1, "left": 0}], "level": "live"}

    def _measure(self, doc, granted, answer):
        if doc["challenge"] and self.areas["measure"] != doc["challenge"]:
            self.areas["measure"] = doc["challenge"]
            self.attestation = base64.b64encode(b"attest " + doc["challenge"].encode()).decode()

    def _overlay_up(self, doc, granted, answer):
        if doc["overlay"]:
            self.rule(granted and self.areas["fence"] == "enclave", "overlay without grant or fence")
            self.areas["overlay"] = "up"
            self.clean_ok = False

    def _members(self, doc, granted, answer):
        if answer["members"]:
            self.members = answer["members"]

    def _volumes_up(self, doc, granted, answer):
        keys = {s["key"] for s in answer["sealed"]}
        for v in doc["volumes"]:
            if v["name"] not in self.areas["volumes"]:
                self.rule(granted and (v["kind"] == 1 or v["key"] in keys), "volume without grant or key")
                self.areas["volumes"].append(v["name"])

    def _roles_up(self, doc, granted, answer):
        for bit, name in ROLES.items():
            if doc["roles"] & bit:
                self.rule(granted and doc["munge_key"] in {s["key"] for s in answer["sealed"]}, "role without grant or munge key")
                self.rule(len(self.areas["volumes"]) == len(doc["volumes"]), "role before volumes")
                if name not in self.areas["roles"]:
                    self.areas["roles"].append(name)
        if "scheduler" in self.areas["roles"]:
            self.evidence["slurm"] = {"nodes": [{"name": p["node"], "state": "idle"} for p in doc["peers"] if p["role"] == 1], "jobs": []}

    def _door_up(self, doc, granted, answer):
        if doc["door"]:
            self.rule(granted and self.members and "login" in self.areas["roles"] and self.areas["overlay"] == "up", "door before the rest")
            self.areas["door"] = "open"

    def _probe(self, doc, granted, answer):
        if doc["probe_id"]:
            self.areas["probe"] = doc["probe_id"]
            self.evidence["probe"] = {"probe": doc["probe_id"], "probes": 4, "as_expected": 4}

    def _home(self, doc, granted):
        self.rule(granted, "home without a grant")
        self.rule(self.clean_ok, "home without a passed clean")
        self.rule(doc["pool"] in HOME and not doc["enclave_id"], "home in pool %d" % doc["pool"])

    def _fence_down(self, doc, granted, answer):
        if not doc["fence"] and self.areas["fence"] != "none":
            self._home(doc, granted)
            self.areas["fence"] = "none"

    def _units_up(self, doc, granted, answer):
        if not doc["units"] and self.areas["units"] != "site":
            self._home(doc, granted)
            self.areas["units"] = "site"
            if self.schedd and self.name in self.schedd.up:
                self.schedd.up[self.name] = True
