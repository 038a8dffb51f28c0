"""lifecycle: what an enclave costs beyond moving two nodes by hand with bare Slurm.

Each round takes the floor (ops/lab/floor) and the toolkit in turn, so that drift of the machine meets both. create ends when `srun -N2 true` in
`protected` has returned; destroy ends when a general job has run on the same nodes.
"""
import json
import os
import subprocess
import time

import labhost

ROUNDS = int(os.environ.get("ENCLAVE_BENCH_ROUNDS", "5"))
SRUN = ["srun", "-p", "protected", "-N2", "true"]


def floor():
    done = subprocess.run([str(labhost.REPO / "ops/lab/floor")], check=True, text=True, stdout=subprocess.PIPE, timeout=120)
    return json.loads(done.stdout)


def create(name):
    start = time.monotonic()
    made = labhost.ctl("create", name, "--nodes", "2", "--agreement", "BAA-17", "--purpose", "bench", "--owner", "res1", "--entry", "live", timeout=180)
    host = next(s["node"] for s in made["services"] if s["role"] == "login")
    labhost.run(host, *SRUN, user="res1")
    return time.monotonic() - start, [n["name"] for n in made["nodes"]]


def destroy(name, nodes):
    start = time.monotonic()
    labhost.ctl("destroy", name, timeout=180)
    labhost.run("login", "srun", "-p", "general", "-w", ",".join(nodes), "-N", len(nodes), "true", user="res2")
    return time.monotonic() - start


def run(out):
    labhost.ready()
    taken = {key: [] for key in ("create_s", "destroy_s", "floor_create_s", "floor_destroy_s")}
    for i in range(ROUNDS):
        by_hand = floor()
        taken["floor_create_s"].append(by_hand["floor_create_s"])
        taken["floor_destroy_s"].append(by_hand["floor_destroy_s"])
        seconds, nodes = create(f"bench{i}")
        taken["create_s"].append(seconds)
        taken["destroy_s"].append(destroy(f"bench{i}", nodes))
    for key, values in taken.items():
        out.metric("lifecycle", key, values, "s")
    added = [a - b for a, b in zip(taken["create_s"], taken["floor_create_s"])]
    out.metric("lifecycle", "create_added_s", added, "s", goal=3, limit=10)
    added = [a - b for a, b in zip(taken["destroy_s"], taken["floor_destroy_s"])]
    out.metric("lifecycle", "destroy_added_s", added, "s", goal=3, limit=8)
