"""A general cluster of a few nodes: drained, reserved, away as it was told. `jobs`: node → list of job ids."""
from .ipc import Refuse, Server


class Scheduler:
    def __init__(self, path, names):
        self.nodes = {n: {"name": n, "state": "idle", "reservation": "", "held": None, "jobs": []} for n in names}
        self.up = dict.fromkeys(names, True)   # its slurmd runs: set by the fake agents
        self.ended = []
        self.page, self.serial = 1000, 1       # nodes a page; the snapshot's number
        self.server = Server(path, {"nodes": self.op_nodes, "reserve": self.op_reserve, "release": self.op_release, "drain": self.op_drain,
                                    "resume": self.op_resume, "jobs": self.op_jobs, "end": self.op_end, "away": self.op_away})

    def _node(self, name):
        if name not in self.nodes:
            raise Refuse("denied", "%s may not be lent" % name, object=name)
        return self.nodes[name]

    def op_nodes(self, request):
        page = request.get("page", 0)
        pages = max(1, -(-len(self.nodes) // self.page))
        if page >= pages:
            raise Refuse("usage", "/page: there are %d" % pages)
        part = list(self.nodes.values())[page * self.page:(page + 1) * self.page]
        return {"age_s": 0, "serial": self.serial, "pages": pages, "nodes": [{**n, "cpus": 2, "memory_mb": 1000, "features": [], "gres": "", "partitions": ["general"], "address": "",
                                       "reason": "", "free_at": 0, "jobs": [{"id": j} for j in n["jobs"]]} for n in part]}

    def op_reserve(self, request):
        for name in request["nodes"]:
            self._node(name).update(reservation="reserved_" + request["name"], held=request["name"])

    def op_release(self, request):
        for n in self.nodes.values():
            if n["held"] == request["name"]:
                n.update(reservation="", held=None)

    def op_drain(self, request):
        self._node(request["node"])["state"] = "drained"

    def op_resume(self, request):
        if request.get("reason") not in (None, "", "reserved"):
            raise Refuse("usage", "not a reason of ours")
        if not self.up[request["node"]]:
            raise Refuse("failed", "%s is down" % request["node"])
        self._node(request["node"])["state"] = "idle"

    def op_jobs(self, request):
        return {"jobs": [{"id": j, "user": "x"} for name in request["nodes"] for j in self._node(name)["jobs"]]}

    def op_end(self, request):
        self.ended.append((request["job"], request["how"]))
        for n in self.nodes.values():
            n["jobs"] = [j for j in n["jobs"] if j != request["job"]]

    def op_away(self, request):
        return {"away": not self.up[request["node"]] and not self._node(request["node"])["jobs"]}
