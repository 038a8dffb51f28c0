"""The story that ops/demo plays: a general cluster gives up two nodes, they become an enclave, a small model trains there on encrypted data, the nodes come
back, and the record of it verifies. Only the product's own commands and the lab's are used; what a step expects is checked, and the first that fails ends it.
"""
import json
import mmap
import os
import secrets
import subprocess
import sys
import time

LAB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lab")
ENCLAVE = "cxr"
RECIPE = "/usr/share/enclave/recipes/cxr-mllm"
# What res1 does in one session inside: data onto the encrypted volume, the job, its numbers as they come. The canary comes by standard input.
WORK = r"""set -eu
read -r canary
printf '%s\n' "$canary" | @RECIPE@/generate.py /enclave/data/cxr --canary -
printf '%s\n' "$canary" > ~/pattern
echo "{\"ev\": \"planted\", \"files\": $(grep -rlaF -f ~/pattern /enclave/data/cxr | wc -l)}"
rm -f ~/pattern
id=$(sbatch --parsable --partition=protected @RECIPE@/job.sh /enclave/data/cxr)
out=~/cxr-mllm-$id.out
echo "{\"ev\": \"job\", \"id\": $id}"
for i in $(seq 600); do [ -e "$out" ] && break; sleep 0.1; done
tail -n +1 -f "$out" &
tail=$!
while squeue -h -j "$id" 2> /dev/null | grep -q .; do sleep 0.3; done
sleep 0.5
kill $tail
echo "{\"ev\": \"files\", \"list\": \"$(ls ~/cxr-mllm | tr '\n' ' ')\"}"
""".replace("@RECIPE@", RECIPE)


class Failed(Exception):
    pass


def note(text):
    print(f"          {text}", flush=True)


def show(text, most=12):
    lines = text.rstrip().splitlines()
    for line in lines[:most]:
        note(line)
    if len(lines) > most:
        note(f"… {len(lines) - most} more lines")


def lab(*words, stdin=None, expect=0, timeout=120, quiet=True):
    """A command of the lab; its output. `expect` is the exit status, None for any."""
    done = subprocess.run([LAB, *words], input=stdin, text=True, timeout=timeout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT if quiet else None)
    if expect is not None and done.returncode != expect:
        raise Failed(f"{' '.join(words)[:200]}: exit {done.returncode}, expected {expect}: {(done.stdout or '').strip()[-1500:]}")
    return done.stdout if expect is not None else (done.returncode, done.stdout)


def live(user, *words):
    """enclavectl on the controller, its lines shown as they come."""
    process = subprocess.Popen([LAB, "run", "ctl", "--user", user, "--", "enclavectl", *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    for line in process.stdout:
        note(line.rstrip())
    check(process.wait() == 0, f"enclavectl {' '.join(words)}: exit {process.returncode}")


def run(host, user, *words, **options):
    return lab("run", host, *(["--user", user] if user else []), "--", *words, **options)


def ctl(user, *words, **options):
    return run("ctl", user, "enclavectl", *words, **options)


def asked(user, *words):
    return json.loads(ctl(user, *words, "--json"))


def check(condition, text):
    if not condition:
        raise Failed(text)


# --- the steps ------------------------------------------------------------------------------------------------------------

class Story:
    def __init__(self):
        self.canary = "CANARY" + secrets.token_hex(12)
        self.nodes = []
        self.job = None

    def bring_up(self):
        lab("down")
        show(lab("up", timeout=300).replace("lab: ", ""))
        check(json.loads(lab("status", "--json"))["ready"], "the lab is not ready")

    def general_cluster(self):
        show(run("login", "res2", "sinfo"))
        show(ctl("admin1", "node", "list"))
        self.job = run("login", "res2", "sbatch", "--parsable", "--nodes=1", "--output=/dev/null", "--wrap", "sleep 3600").strip()
        end = time.monotonic() + 20
        while not any(node["slurm_state"] in ("mixed", "allocated") for node in asked("admin1", "node", "list")["nodes"]):
            check(time.monotonic() < end, f"general job {self.job} does not start")
            time.sleep(0.2)
        note(f"general job {self.job} of res2 runs on {run('login', 'res2', 'squeue', '-h', '-j', self.job, '-o', '%N').strip()}, and shall go on running")

    ORDER = ("--nodes", "2", "--agreement", "BAA-17", "--purpose", "chest x-ray reports", "--owner", "res1")

    def plan(self):
        show(ctl("admin1", "plan", ENCLAVE, *self.ORDER), 20)
        code, said = ctl("admin1", "create", ENCLAVE, *self.ORDER[:3], "BAA-3", *self.ORDER[4:], expect=None)
        note(f"the same under the lapsed agreement BAA-3: exit {code}: {said.strip().splitlines()[0] if said.strip() else ''}")
        check(code == 3, "a lapsed agreement must be refused with exit 3")

    def create(self):
        live("admin1", "create", ENCLAVE, *self.ORDER)
        found = asked("admin1", "show", ENCLAVE)
        check(found["state"] == "open" and found["door"] == "open", f"{ENCLAVE} is {found['state']}, its door {found['door']}")
        self.nodes = [node["name"] for node in found["nodes"]]

    def look(self):
        show(ctl("admin1", "list"))
        show(ctl("res1", "show", ENCLAVE), 30)
        show(run("login", "res2", "sinfo"))

    def outsiders(self):
        login = asked("admin1", "show", ENCLAVE)["login"]
        rows = [("outsider1 asks for the enclave", 4, ctl("outsider1", "show", ENCLAVE, expect=None)),
                ("outsider1 asks for one that does not exist", 4, ctl("outsider1", "show", "nosuch", expect=None)),
                ("outsider1 knocks at its door with a good key and factor", 255, lab("ssh", "outsider1", ENCLAVE, "--", "true", expect=None)),
                ("res1 without a second factor", 255, lab("ssh", "res1", ENCLAVE, "--factor", "none", "--", "true", expect=None)),
                ("general login node: sshd of the enclave's node", 1, run("login", "outsider1", "nc", "-z", "-w", "1", self.nodes[0], "22", expect=None)),
                ("general login node: slurmd of the enclave's node", 1, run("login", "outsider1", "nc", "-z", "-w", "1", self.nodes[0], "6918", expect=None)),
                *((f"general login node: ping of the enclave's node, IPv{v}", 1, run("login", None, "ping", f"-{v}", "-q", "-c", "1", "-W", "1", self.nodes[0], expect=None))
                  for v in (4, 6)),
                ("general login node: the login node's other ports", 1, run("login", "outsider1", "nc", "-z", "-w", "1", login["address"], "6917", expect=None))]
        for what, wanted, (code, said) in rows:
            line = said.strip().splitlines()[0][:90] if said.strip() else ""
            note(f"exit {code:3}  {what}" + (f": {line}" if line else ""))
            check(code == wanted, f"{what}: exit {code}, expected {wanted}: {said.strip()[:300]}")
        check(rows[0][2][1].replace(ENCLAVE, "X") == rows[1][2][1].replace("nosuch", "X"), "unknown and not yours must be the same answer")

    def train(self):
        process = subprocess.Popen([LAB, "ssh", "res1", ENCLAVE, "--", "bash", "-c", WORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        process.stdin.write(self.canary + "\n")
        process.stdin.close()
        losses, match, planted, said = [], None, 0, []
        for line in process.stdout:
            said.append(line.rstrip())
            try:
                event = json.loads(line)
            except ValueError:
                note(line.rstrip()[:160])
                continue
            kind = event.get("ev")
            planted = event.get("files", planted) if kind == "planted" else planted
            if kind == "step":
                losses.append(event["loss"])
                note(f"step {event['step']:4}  loss {event['loss']:.3f}  {event.get('sps', 0):.0f} studies/s")
            elif kind == "done":
                match = event["exact_match"]
                note(f"step {event['step']:4}  exact match of held-out reports {match:.0%}, after {event['seconds']:.1f} s")
            elif kind != "epoch":
                note(line.rstrip()[:160])
        check(process.wait(timeout=300) == 0, f"the session of res1 ended with {process.returncode}: {said[-8:]}")
        check(planted > 0, "the canary is not in the data")
        check(losses and losses[-1] < losses[0] / 2, f"the loss did not fall: {losses[:2]} … {losses[-2:]}")
        check(match is not None and match > 0.5, f"exact match is {match}")

    def member(self):
        show(ctl("admin1", "member", "add", ENCLAVE, "res2"))
        show(ctl("admin1", "member", "list", ENCLAVE))
        show(lab("ssh", "res2", ENCLAVE, "--", "sh", "-c", "echo \"res2 is in, as $(id -un), and sees $(squeue -h -u res1 | wc -l) jobs of res1\""))

    def destroy(self):
        live("admin1", "destroy", ENCLAVE)
        for node in self.nodes:
            document = asked("auditor1", "node", "certificate", node)
            left = sum(item["left"] for item in document["items"])
            note(f"{node}: {len(document['items'])} residues looked for, {sum(item['found'] for item in document['items'])} found, {left} left; record {document['record']}")
            check(left == 0 and document["attest"]["equal"], f"the certificate of {node} says {document}")
        pools = {node["name"]: node["pool"] for node in asked("admin1", "node", "list")["nodes"]}
        check(all(pools[node] == "general" for node in self.nodes), f"nodes are in {pools}")

    def general_again(self):
        said = run("login", "outsider1", "srun", "--quiet", "--immediate=20", f"--nodelist={','.join(self.nodes)}", "-N2", "hostname")
        note(f"general job on the returned nodes: {' '.join(sorted(said.split()))}")
        check(sorted(said.split()) == sorted(self.nodes), f"srun said {said}")
        state = run("login", "res2", "squeue", "-h", "-j", self.job, "-o", "%T %M").strip()
        note(f"general job {self.job}: {state}")
        check(state.startswith("RUNNING"), "the general job did not go on running")

    def search(self):
        control = "CONTROL" + secrets.token_hex(8)
        run("login", "res2", "sh", "-c", f"echo {control} > ~/control; sync ~/control")
        found = json.loads(lab("paths", "--json"))
        os.sync()
        layers = [entry["upper"] for entry in found["hosts"].values()] + [found["shared"]["home"]]
        images = [path for entry in found["hosts"].values() for path in entry["images"]] + found["shared"]["images"]
        files, total, hits = 0, 0, {self.canary.encode(): [], control.encode(): []}
        for path in [*images, *(os.path.join(top, name) for layer in layers for top, _, names in os.walk(layer) for name in names)]:
            size = contains(path, hits)
            files, total = files + (size is not None), total + (size or 0)
        run("login", "res2", "rm", "control")
        note(f"{files} files and disk images of all hosts, {total / 1e6:.0f} MB: the canary is in {len(hits[self.canary.encode()])}, a control string in "
             f"{len(hits[control.encode()])}")
        check(hits[control.encode()], "the control string was not found: the search is worth nothing")
        check(not hits[self.canary.encode()], f"the canary stands in {hits[self.canary.encode()][:5]}")

    def audit(self):
        show(ctl("auditor1", "audit", "search", "--enclave", ENCLAVE), 12)
        document = asked("auditor1", "audit", "verify")
        show(ctl("auditor1", "audit", "verify"))
        check(document["result"] == "complete", f"the log is {document['result']}")

    STEPS = (("a general cluster with its lab hosts, vault and controller", bring_up), ("general work runs", general_cluster),
             ("plan: what would happen", plan), ("create: two nodes become an enclave", create), ("what an admin, its owner and others see", look),
             ("outsiders get nothing", outsiders), ("res1 trains on encrypted images and reports", train), ("a second member", member), ("the canary is in no unencrypted file, while the enclave works", search),
             ("destroy: keys, scrub, certificates", destroy), ("general work on the returned nodes", general_again),
             ("the canary is in none afterwards", search), ("the record of it all verifies", audit))


def contains(path, hits):
    """Notes which needles stand in a file; only bytes that are really there are read. Returns how many, None if it is no plain file."""
    try:
        if not os.path.isfile(path) or os.path.islink(path):
            return None
        with open(path, "rb") as f:
            size, at, read = os.fstat(f.fileno()).st_size, 0, 0
            if not size:
                return 0
            with mmap.mmap(f.fileno(), size, prot=mmap.PROT_READ) as data:
                while at < size:
                    try:
                        begin = os.lseek(f.fileno(), at, os.SEEK_DATA)
                    except OSError:
                        break
                    at = os.lseek(f.fileno(), begin, os.SEEK_HOLE)
                    read += at - begin
                    for needle, places in hits.items():
                        if path not in places and data.find(needle, max(0, begin - len(needle)), at) >= 0:
                            places.append(path)
            return read
    except (FileNotFoundError, ValueError):
        return None


def main(began):
    story = Story()
    for number, (title, step) in enumerate(Story.STEPS, 1):
        print(f"\n{number:2}. {title}", flush=True)
        start = time.monotonic()
        try:
            step(story)
        except (Failed, subprocess.TimeoutExpired, ValueError, KeyError) as e:
            print(f"\nops/demo: failed at step {number} ({title}): {e if isinstance(e, Failed) else repr(e)}", file=sys.stderr)
            return 1
        print(f"{time.monotonic() - start:6.1f} s  done", flush=True)
    print(f"\nAll of it in {time.time() - began:.0f} s. The lab is still up. Look around:\n"
          "  ops/lab/lab status; ops/lab/lab run login --user res1 -- sinfo; ops/lab/lab run ctl --user admin1 -- enclavectl list; ops/lab/lab down")
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
