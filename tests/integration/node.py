"""One lab host with a real privd and a driver in the place of its agent (tools/node_driver.c): what the key service would sign, and what a
taken-over agent could say."""
import base64
import ctypes
import json
import os
import pathlib
import secrets
import socket
import time

VERBS = {name: i + 1 for i, name in enumerate(
    ["door", "role", "volume", "units", "fence", "overlay", "clean", "measure", "probe", "state", "members", "quarantine"])}
GENERAL, SERVICE, AIRLOCK, ENCLAVE, QUARANTINE = range(5)
NONE, FENCE_AIRLOCK, FENCE_ENCLAVE = range(3)
SITE, DOWN = range(2)
COMPUTE, SCHEDULER, LOGIN = 1, 2, 4
DENIED, CONFLICT, INVALID, INTEGRITY, FAILED = 3, 10, 9, 7, 1
MUNGE_KEY = "munge" + "a" * 21
BUILD = pathlib.Path(os.environ.get("ENCLAVE_BUILD") or pathlib.Path(__file__).resolve().parents[2] / "build/release")
DRIVER = BUILD / "tests/integration/tools/node_driver"


LIBC = ctypes.CDLL(None, use_errno=True)


def inside_network(pid, make):
    """Calls make() with the network of another process; sockets made there stay there."""
    with open("/proc/thread-self/ns/net") as own, open(f"/proc/{pid}/ns/net") as other:
        assert LIBC.setns(other.fileno(), 0) == 0
        try:
            return make()
        finally:
            assert LIBC.setns(own.fileno(), 0) == 0


def lone_node(lab):
    """n1 as a node whose controller nobody plays; the site's own unit there is its sshd."""
    node = Node(lab, "n1", controller="ext")
    node.units = ["ssh.service"]
    node.start()
    return node


def new_id():
    return base64.b32encode(secrets.token_bytes(17)).decode().lower()[:26]


class Node:
    """A host of the lab as its controller would see it."""
    units = []

    def __init__(self, lab, name, seed_from=None, controller="ctl"):
        self.lab, self.name, self.controller_name = lab, name, controller
        self.find()
        self.generation = 0
        self.document = None
        self.seed_from = seed_from

    def find(self):
        """Where the host is now: another place after each boot."""
        status = {h["name"]: h for h in self.lab.status()["hosts"]}
        self.root, self.pid = pathlib.Path(status[self.name]["root"]), status[self.name]["pid"]
        self.address, self.address6 = status[self.name]["address"], status[self.name]["address6"]
        self.controller = status[self.controller_name]

    # --- the host ----------------------------------------------------------------------------------------------------

    def run(self, *words, check=True, timeout=60, **more):
        return self.lab.run(self.name, *words, check=check, timeout=timeout, **more)

    def out(self, *words, **more):
        return self.run(*words, **more).stdout

    def put(self, path, text, mode=0o644):
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)       # a program may be running
        target.write_bytes(text if isinstance(text, bytes) else text.encode())
        target.chmod(mode)

    def start(self, **conf):
        """Installs driver, key and configuration, and starts privd anew, in a boot that knows of no enclave. Members of `conf` go into privd.json."""
        self.configure(**conf)
        self.run("rm", "-rf", "/var/lib/enclave-node/held")
        self.reboot()
        return self.state()

    def reboot(self):
        self.lab.lab("reboot", self.name)
        self.find()
        self.run("systemctl", "start", "enclave-privd")

    def configure(self, **conf):
        self.put("/usr/local/sbin/node_driver", DRIVER.read_bytes(), 0o755)
        if self.seed_from:
            for file in ("/etc/enclave-test/seed", "/etc/enclave/keyd.vkey"):
                self.put(file, (self.seed_from.root / file.lstrip("/")).read_bytes())
        else:
            self.run("mkdir", "-p", "/etc/enclave-test", "/etc/enclave")
            self.run("/usr/local/sbin/node_driver", "keygen", "/etc/enclave-test/seed", "/etc/enclave/keyd.vkey")
        self.put("/etc/enclave-test/agent.json", json.dumps({"socket": "/run/enclave-test.sock", "seed": "/etc/enclave-test/seed"}))
        self.put("/etc/enclave/privd.json", json.dumps({"agent": "/usr/local/sbin/node_driver", "agent_config": "/etc/enclave-test/agent.json", **conf}))
        self.put("/etc/enclave/units.json", json.dumps({"units": self.units, "leftovers": [], "unmount": [], "hide": ["/root/.ssh/authorized_keys"]}))
        self.run("systemctl", "enable", "enclave-privd", check=False)

    # --- orders ------------------------------------------------------------------------------------------------------

    def ask(self, timeout=200, **request):
        """One request to the driver; its answer."""
        deadline = time.monotonic() + 15
        while True:
            try:
                s = socket.socket(socket.AF_UNIX)
                s.settimeout(timeout)
                s.connect(str(self.root / "run/enclave-test.sock"))
                break
            except OSError:
                s.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        answer = b""
        with s:
            try:
                s.sendall(json.dumps(request).encode() + b"\n")
                while not answer.endswith(b"\n"):
                    piece = s.recv(1 << 20)
                    if not piece:
                        return {"lost": True}
                    answer += piece
            except ConnectionError:
                return {"lost": True}
        return json.loads(answer)

    def state(self):
        """What privd holds; None while there is nobody to say it."""
        return self.ask(verb=VERBS["state"]).get("evidence")

    def order(self, verb, grant=True, **more):
        """An order under the present document; grant=True: a good one, a dict: with these members wrong, None: without."""
        request = {"verb": VERBS[verb], "document": self.document, **more}
        if grant is not None:
            request["grant"] = grant if isinstance(grant, dict) else {}
        return self.ask(**request)

    def good(self, verb, **more):
        answer = self.order(verb, **more)
        assert answer.get("code") == 0, f"{self.name} {verb}: {answer}"
        return answer["evidence"]

    def next(self, **change):
        """The next generation: the present document with these members changed."""
        self.generation = max(self.generation + 1, self.state()["generation"] + 1)
        base = self.document or {
            "node": self.name, "controller4": self.controller["address"], "controller6": self.controller["address6"], "controller_port": 7443}
        self.document = {**base, **change, "generation": self.generation}
        return self.document

    def airlock(self):
        self.next(pool=AIRLOCK, units=DOWN, fence=FENCE_AIRLOCK, overlay=0, roles=0, door=0, volumes=[], peers=[], clean=1, clean_id=new_id(),
                  challenge=secrets.token_hex(16), enclave_id="", enclave_name="", not_after=0)
        for verb in ("units", "fence", "clean", "measure"):
            self.good(verb, grant=None)

    def enclave(self, others=(), roles=LOGIN, volumes=(), **change):
        """The document of a node inside an enclave: this one, and `others` as (node, role). Nothing is ordered yet."""
        nodes = [(self, roles), *others]
        peers = [{"node": n.name, "role": role, "address4": n.address, "address6": n.address6, "overlay": f"10.78.4.{i + 1}", "cpus": 2, "memory_mb": 1000,
                  "overlay_key": n.state()["overlay_key"]} for i, (n, role) in enumerate(nodes)]
        for i, role in enumerate((SCHEDULER, COMPUTE)):     # those that a document cannot do without, where no host plays them
            if role not in [p["role"] for p in peers]:
                peers.append({"node": f"absent{role}", "role": role, "address4": f"10.77.0.24{i}", "overlay": f"10.78.4.24{i}", "cpus": 2, "memory_mb": 1000})
        return self.next(pool=ENCLAVE, enclave_id=change.pop("enclave_id", new_id()), enclave_name="cxr", not_after=int(time.time()) + 3600, units=DOWN,
                         fence=FENCE_ENCLAVE, overlay=1, overlay_port=51820, overlay_net="10.78.4.0/24", clean=0, clean_id="", challenge="", roles=roles,
                         peers=peers, volumes=list(volumes), slurm_cluster="e1", slurmctld_port=6827, slurmd_port=6828, srun_port_first=60001,
                         srun_port_last=60100, munge_key=MUNGE_KEY, login_port=22, **change)

    def members(self, *users, version=1, **more):
        listed = [{"user": user, "uid": uid} for user, uid in users]
        return self.ask(verb=VERBS["members"], members={"enclave_id": self.document["enclave_id"], "enclave_name": "cxr", "version": version, "members": listed, **more})

    def home(self):
        self.next(pool=GENERAL, units=SITE, fence=NONE, clean=0, clean_id="", challenge="", probe_id="", enclave_id="", enclave_name="", not_after=0, munge_key="")
        self.good("fence")
        self.good("units")

    def leave(self):
        """From whatever state back to the general pool."""
        state = self.state()
        if state["pool"] == "general":
            return
        self.next(pool=AIRLOCK, units=DOWN, fence=FENCE_AIRLOCK, overlay=0, roles=0, door=0, volumes=[], peers=[], clean=1, clean_id=new_id(),
                  challenge="", probe_id="", enclave_id="", enclave_name="", not_after=0, munge_key="", slurm_cluster="")
        for verb in ("door", "role", "volume", "overlay", "units", "fence", "clean"):
            self.good(verb, grant=None if state["pool"] != "quarantine" else True)
        self.home()
