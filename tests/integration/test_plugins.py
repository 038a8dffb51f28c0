"""The plugins inside real slurmctld, slurmd, slurmstepd, sbatch and srun: an enclave of one scheduler (s1), one login node (s2) and two compute nodes,
brought up by the product's own units and templates. privd and keyd are played by enclave-test-node, so that they can lie."""
import os
import pathlib
import re

import pytest

from conftest import REPO, Lab, wait_until

ID = "abcdefghijklmnopqrstuvwxyz"
BUILD = pathlib.Path(os.environ.get("ENCLAVE_BUILD") or REPO / "build/release")
TOOL = BUILD / "tests/integration/enclave-test-node"
PLUGIN = "/usr/lib/x86_64-linux-gnu/slurm-wlm/spank_enclave.so"
STACK = "/run/enclave/slurm/plugstack.conf"
HOSTS = ["s1", "s2", "n1", "n2"]
USERS = {"res1": 10008, "res2": 10009, "outsider1": 10010}
MEMBERS = ["res1:10008", "res2:10009"]
STRANGER = "no such enclave, or not yours"


class Enclave:
    def __init__(self, lab):
        self.lab = lab
        self.address = {h["name"]: h["address"] for h in lab.status()["hosts"]}

    def root(self, host, script, check=True, timeout=60):
        return self.lab.run(host, "bash", "-ec", script, check=check, timeout=timeout)

    def put(self, host, path, text):
        self.lab.run(host, "bash", "-ec", f"mkdir -p $(dirname {path}); cat > {path}", stdin=text)

    def write_files(self, host, version=5, members=MEMBERS):
        self.root(host, f"/usr/local/sbin/enclave-test-node files {version} {' '.join(members)}")

    def members(self, version, members):
        for host in HOSTS:
            self.write_files(host, version, members)

    def facts(self, host, *words):
        """(Re)starts the answerer; it measures plugin and plugstack as they are now."""
        self.root(host, "systemctl stop test-facts 2>/dev/null || true; rm -f /run/enclave/privd.sock; systemctl reset-failed test-facts 2>/dev/null || true;"
                  f"systemd-run -q --unit=test-facts /usr/local/sbin/enclave-test-node facts {' '.join(words)};"
                  "for i in $(seq 200); do [ -S /run/enclave/privd.sock ] && exit 0; sleep 0.02; done; exit 1")

    def no_facts(self, host):
        self.root(host, "systemctl stop test-facts; rm -f /run/enclave/privd.sock")

    def template(self, name):
        text = (REPO / "ops/site" / name).read_text()
        unified = pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists()
        values = {"CLUSTER": "c1", "SCHEDULER": "s1", "SCHEDULER_ADDRESS": self.address["s1"], "SLURMCTLD_PORT": "7817", "SLURMD_PORT": "7818", "SRUN_FIRST": "7900",
                  "SRUN_LAST": "7999", "NODE_NAMES": "n1,n2", "STATE_DIR": "/var/spool/slurmctld", "SPOOL_DIR": "/var/spool/slurmd", "SPANK_PLUGIN": PLUGIN,
                  "NODES": "\n".join(f"NodeName={n} NodeAddr={self.address[n]} CPUs=2 RealMemory=1000 State=UNKNOWN" for n in ("n1", "n2")),
                  "CGROUP_PLUGIN": "cgroup/v2" if unified else "cgroup/v1", "CGROUP_MOUNT": "/sys/fs/cgroup"}
        body = "".join(line + "\n" for line in text.splitlines() if not line.startswith("#"))
        return re.sub("@([A-Z_]+)@", lambda m: values[m[1]], body)

    def prepare(self, host):
        self.root(host, "systemctl stop enclave-privd slurmd munge 2>/dev/null || true; systemctl mask --runtime enclave-privd >/dev/null 2>&1 || true;"
                  "mkdir -p /run/enclave/slurm /run/enclave/munge /etc/enclave /var/lib/extrausers /enclave/home /enclave/scratch /var/spool/slurmctld /var/spool/slurmd /etc/slurm;"
                  "chown munge: /run/enclave/munge; chown slurm: /var/spool/slurmctld; chown root: /run/enclave/slurm; chmod 1777 /enclave/scratch")
        self.lab.run(host, "bash", "-ec", "rm -f /usr/local/sbin/enclave-test-node; base64 -d > /usr/local/sbin/enclave-test-node; chmod 755 /usr/local/sbin/enclave-test-node",
                     stdin=__import__("base64").b64encode(TOOL.read_bytes()).decode())
        for name in ("slurm", "cgroup", "plugstack"):
            self.put(host, f"/run/enclave/slurm/{name}.conf", self.template(f"enclave-{name}.conf.in"))
        known = "".join(f"{u}:x:{i}:{i}::/enclave/home/{u}:/bin/bash\n" for u, i in USERS.items())
        self.put(host, "/tmp/users", known)
        self.root(host, "while IFS= read -r l; do u=${l%%:*}; id $u >/dev/null 2>&1 || echo \"$l\" >> /var/lib/extrausers/passwd; i=$(echo $l | cut -d: -f3);"
                  "getent group $u >/dev/null || echo \"$u:x:$i:\" >> /var/lib/extrausers/group; mkdir -p /enclave/home/$u; chown $i:$i /enclave/home/$u; done < /tmp/users;"
                  "mountpoint -q /etc/slurm || mount --bind /run/enclave/slurm /etc/slurm;"
                  "echo 0123456789012345678901234567890123456789 > /run/enclave/munge/munge.key; chown munge: /run/enclave/munge/munge.key; chmod 400 /run/enclave/munge/munge.key")
        self.write_files(host)
        self.facts(host)
        self.root(host, f"systemctl start enclave-munged@{ID}")

    def up(self):
        for host in HOSTS:
            self.prepare(host)
        self.root("s1", f"systemctl start enclave-slurmctld@{ID}")
        for host in ("n1", "n2"):
            self.root(host, f"systemctl start enclave-slurmd@{ID}")
        self.root("s1", "for i in $(seq 100); do scontrol ping | grep -q UP && break; sleep 0.1; done; for n in n1 n2; do scontrol update nodename=$n state=resume 2>/dev/null || true; done")
        wait_until(lambda: self.states() == {"n1": "idle", "n2": "idle"}, 40, "both nodes idle")

    def states(self):
        out = self.lab.run("s1", "scontrol", "-o", "show", "nodes", check=False).stdout
        return {m[1]: m[2].lower().rstrip("*") for m in re.finditer(r"NodeName=(\S+) .*?State=(\S+)", out)}

    def heal(self):
        """Everything as it was: members, facts, plugin, plugstack; no job; nodes back in use."""
        self.root("s1", "scancel --full -u res1 2>/dev/null || true; scancel -u res2 2>/dev/null || true")
        self.members(5, MEMBERS)
        for host in HOSTS:
            self.put(host, STACK, self.template("enclave-plugstack.conf.in"))
            self.root(host, f"[ ! -e {PLUGIN}.kept ] || mv {PLUGIN}.kept {PLUGIN}")
            self.facts(host)
        self.root("s1", "for n in n1 n2; do scontrol update nodename=$n state=resume 2>/dev/null || true; done")
        wait_until(lambda: all(s == "idle" for s in self.states().values()), 40, f"nodes idle, not {self.states()}")

    def srun(self, *words, user="res1", check=True, timeout=40):
        return self.lab.run("s2", "srun", "--chdir=/enclave", *words, user=user, check=check, timeout=timeout)

    def sbatch(self, *words, user="res1", check=True, script="#!/bin/sh\ntrue\n"):
        return self.lab.run("s2", "sbatch", "--parsable", f"--chdir=/enclave/home/{user}", *words, user=user, check=check, stdin=script)

    def ended(self, job, seconds=40):
        """The job's last state."""
        def look():
            out = self.lab.run("s1", "scontrol", "-o", "show", "job", job, check=False).stdout
            state = re.search(r"JobState=(\S+)", out)
            return state and state[1] in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED") and out
        return wait_until(look, seconds, f"the end of job {job}")


@pytest.fixture(scope="module")
def whole():
    own = os.environ.get("ENCLAVE_PLUGIN_LAB")          # a lab that is up, for working on these tests
    lab = Lab(own) if own else Lab(f"/var/lib/enclave-lab/plugins-{os.getpid()}")
    if not own:
        lab.lab("up", "--only", ",".join(HOSTS), timeout=900)
    enclave = Enclave(lab)
    enclave.up()
    yield enclave
    if not own:
        lab.lab("down")


@pytest.fixture
def enclave(whole):
    yield whole
    whole.heal()


def test_a_member_runs_and_is_told_ranks_and_places(enclave):
    out = enclave.srun("-N2", "-n4", "bash", "-c", "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR $MASTER_PORT $GLOO_SOCKET_IFNAME").stdout
    rows = sorted(line.split() for line in out.splitlines())
    assert [r[0] for r in rows] == ["0/4", "1/4", "2/4", "3/4"], out
    assert [r[1] for r in rows] == ["0/2", "1/2", "0/2", "1/2"], out
    assert {r[3] for r in rows} == {enclave.address["n1"]}
    assert {61000 <= int(r[4]) < 65500 for r in rows} == {True}
    assert all(r[5] for r in rows), "the interface of the node's own address"


def test_a_job_has_its_own_tmp_no_core_files_no_way_to_more_rights(enclave):
    enclave.root("n1", "echo CANARY > /tmp/canary; chmod 644 /tmp/canary")
    out = enclave.srun("-w", "n1", "bash", "-c", "ls -A /tmp /dev/shm /var/tmp; echo mine > /tmp/mine; echo m > /dev/shm/mine; ulimit -Hc; grep -h NoNewPrivs /proc/self/status;"
                       "cat /proc/self/coredump_filter; ls -d /proc/1 2>&1; pwd").stdout
    assert "canary" not in out
    assert "NoNewPrivs:\t1" in out and "00000000" in out and "No such file" in out, out
    assert re.search(r"^0$", out, re.M), "core limit"
    left = enclave.root("n1", "ls -A /tmp /dev/shm /enclave/scratch/.jobs /run/enclave/jobs").stdout
    assert "mine" not in left
    wait_until(lambda: enclave.root("n1", "ls /enclave/scratch/.jobs /run/enclave/jobs").stdout.split() == ["/enclave/scratch/.jobs:", "/run/enclave/jobs:"], 20, "the epilog")
    enclave.root("n1", "rm /tmp/canary")


def test_steps_of_a_job_share_its_tmp_and_the_batch_script_too(enclave):
    job = enclave.sbatch("-N1", "-w", "n1", "-o", "/enclave/home/res1/%j.out", script="#!/bin/bash\necho here > /tmp/x\nsrun cat /tmp/x\n").stdout.strip()
    assert "JobState=COMPLETED" in enclave.ended(job)
    assert enclave.root("n1", f"cat /enclave/home/res1/{job}.out").stdout.strip() == "here"


def test_secrets_stay_behind(enclave):
    enclave.root("s2", "true")
    out = enclave.lab.run("s2", "env", "GITHUB_TOKEN=CANARY", "https_proxy=CANARY", "srun", "--chdir=/enclave", "env", user="res1").stdout
    assert "CANARY" not in out and "HF_HUB_OFFLINE=1" in out


def test_no_network_when_asked(enclave):
    out = enclave.srun("--enclave-net=none", "cat", "/proc/net/dev").stdout
    assert [line.split(":")[0].strip() for line in out.splitlines()[2:]] == ["lo"]


def test_invariant_11_an_outsider_and_an_unknown_enclave_are_one_answer(enclave):
    outsider = enclave.sbatch(user="outsider1", check=False)
    unknown = enclave.sbatch("--enclave=other", check=False)
    assert outsider.returncode and unknown.returncode
    assert outsider.stderr == unknown.stderr and STRANGER in outsider.stderr


@pytest.mark.parametrize("words, told", [
    (["--partition=general"], "partition"), (["-o", "/tmp/x"], "output"), (["-e", "/home/res1/x"], "error"), (["--chdir=/tmp"], "working folder"),
    (["--mail-type=END"], "mail"), (["-J", "mrn-4711"], "record number"), (["--comment=born 1961-04-02"], "record number"),
    (["--enclave-recipe=smoked"], "smoke"), (["--enclave-data=elsewhere"], "no dataset"), (["--enclave-data=cxr-images:rw"], "read-only"), (["--enclave-net=all"], "none or job"),
    (["--enclave=a", "--enclave=b"], "twice")])
def test_bad_jobs_are_refused_with_advice_and_not_queued(enclave, words, told):
    done = enclave.sbatch(*words, check=False)
    assert done.returncode and told in done.stderr, done.stderr
    assert "4711" not in done.stderr and "1961" not in done.stderr
    assert enclave.root("s1", "squeue -h").stdout == ""


def test_invariant_12_a_submission_without_the_plugin_is_refused(enclave):
    enclave.put("s2", "/run/enclave/slurm/plugstack.conf", "")
    done = enclave.sbatch(check=False)
    assert done.returncode and "plugin" in done.stderr, done.stderr


def refused_on_n1(enclave, marker):
    """A job for n1 that would leave a mark; true once it is sure that it did not run."""
    job = enclave.sbatch("-N1", "-w", "n1", "-o", "/enclave/home/res1/%j.out", script=f"#!/bin/sh\ntouch /enclave/home/res1/{marker}\n").stdout.strip()

    def stopped():
        out = enclave.lab.run("s1", "scontrol", "-o", "show", "job", job, check=False).stdout
        return re.search(r"JobState=(FAILED|CANCELLED|NODE_FAIL|BOOT_FAIL)", out) or ("Restarts=" in out and "JobState=PENDING" in out and "drain" in enclave.states()["n1"])
    wait_until(stopped, 30, "the job to be refused")
    assert enclave.root("n1", f"ls /enclave/home/res1/{marker}", check=False).returncode, "the job ran"


FAULTS = {
    "removed": lambda e: e.root("n1", f"cp -p {PLUGIN} {PLUGIN}.kept; rm {PLUGIN}"),
    "emptied": lambda e: e.root("n1", f"cp -p {PLUGIN} {PLUGIN}.kept; : > {PLUGIN}"),
    "unlisted": lambda e: e.put("n1", STACK, "# nothing\n"),
    "unlisted and measured so": lambda e: (e.put("n1", STACK, "# nothing\n"), e.facts("n1")),
    "plugstack gone": lambda e: e.root("n1", f"rm {STACK}"),
    "optional": lambda e: (e.put("n1", STACK, f"optional {PLUGIN}\n"), e.facts("n1")),
    "agent dead": lambda e: e.facts("n1", "agent=0"),
    "privd gone": lambda e: e.no_facts("n1"),
    "agent lies: other pool": lambda e: e.facts("n1", "pool=2"),
    "agent lies: newer members": lambda e: e.facts("n1", "version=9"),
    "volumes shut": lambda e: e.facts("n1", "volumes=0"),
    "lease over": lambda e: e.facts("n1", "ends=0"),
    "members replaced": lambda e: e.root("n1", "echo forged > /run/enclave/members"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_invariant_12_a_job_does_not_run_where(enclave, fault):
    FAULTS[fault](enclave)
    refused_on_n1(enclave, "ran")


def test_invariant_12_no_task_without_the_prolog(enclave):
    """The other way round: the plugin refuses what no prolog let in."""
    held = enclave.lab
    job = enclave.sbatch("-N1", "-w", "n1", "-o", "/dev/null", script="#!/bin/bash\nwhile [ ! -e /enclave/home/res1/go ]; do sleep 0.1; done\nsrun --overlap touch /enclave/home/res1/step\n").stdout.strip()
    wait_until(lambda: "RUNNING" in held.run("s1", "scontrol", "-o", "show", "job", job).stdout, 20, "the job to run")
    enclave.root("n1", f"rm /run/enclave/jobs/{job}/gate; touch /enclave/home/res1/go")
    enclave.ended(job)
    assert enclave.root("n1", "rm /enclave/home/res1/go; ls /enclave/home/res1/step", check=False).returncode


def test_invariant_13_a_removed_member_starts_no_further_task(enclave):
    job = enclave.sbatch("-N1", "-w", "n1", "-o", "/dev/null", user="res2", script="#!/bin/bash\nsleep 60\n").stdout.strip()
    wait_until(lambda: "RUNNING" in enclave.lab.run("s1", "scontrol", "-o", "show", "job", job).stdout, 20, "the job to run")
    enclave.members(6, ["res1:10008"])
    assert STRANGER in enclave.sbatch(user="res2", check=False).stderr
    done = enclave.lab.run("n1", "srun", f"--jobid={job}", "--overlap", "true", user="res2", check=False)
    assert done.returncode and STRANGER in done.stderr


@pytest.mark.parametrize("change", ["Partition=general", "StdOut=/tmp/x", "UserID=outsider1", "JobName=mrn-4711", "Comment=1961-04-02", "WorkDir=/tmp", "StdErr=/home/res1/x"])
def test_a_queued_job_cannot_be_changed_into_what_is_refused(enclave, change):
    job = enclave.sbatch("--hold", "-o", "/enclave/home/res1/%j.out").stdout.strip()
    before = enclave.root("s1", f"scontrol -o show job {job}").stdout
    done = enclave.lab.run("s2", "scontrol", "update", f"JobId={job}", change, user="res1", check=False)
    assert done.returncode, done.stdout
    after = enclave.root("s1", f"scontrol -o show job {job}").stdout
    assert after == before
    assert enclave.lab.run("s2", "scontrol", "update", f"JobId={job}", "TimeLimit=5", user="res1", check=False).returncode == 0


SECRET = "00112233445566778899aabbccddeeff00112233"


@pytest.fixture
def door(enclave):
    """The enclave's sshd on s2 as its unit runs it, and res1 with key and second factor on n1."""
    enclave.root("n1", "rm -rf /tmp/door; mkdir -m 700 /tmp/door; ssh-keygen -q -t ed25519 -N '' -f /tmp/door/key; printf '#!/bin/sh\\noathtool --totp $LAB_SECRET\\n' > /tmp/door/ask; chmod 700 /tmp/door/ask")
    key = enclave.root("n1", "cat /tmp/door/key.pub").stdout
    for user in USERS:
        enclave.put("s2", f"/run/enclave/login/keys/{user}", key)
    enclave.put("s2", "/run/enclave/login/sshd_config", (REPO / "ops/site/enclave-sshd_config.in").read_text().replace("@LOGIN_PORT@", "2222"))
    enclave.put("s2", "/etc/enclave/users.oath", "".join(f"HOTP/T30/6 {u} - {SECRET}\n" for u in USERS))
    enclave.put("s2", "/var/lib/extrausers/shadow", "".join(f"{u}:*:19700:0:99999:7:::\n" for u in USERS))
    enclave.root("s2", f"chmod 600 /etc/enclave/users.oath; systemctl restart enclave-sshd@{ID}; for i in $(seq 100); do ss -ltn | grep -q :2222 && exit 0; sleep 0.05; done; exit 1")

    def knock(user, *command, secret=SECRET, fresh=True):
        if fresh:                                     # a code is good once: forget that it was used
            enclave.put("s2", "/etc/enclave/users.oath", "".join(f"HOTP/T30/6 {u} - {SECRET}\n" for u in USERS))
        return enclave.lab.run("n1", "env", "SSH_ASKPASS=/tmp/door/ask", "SSH_ASKPASS_REQUIRE=force", f"LAB_SECRET={secret}", "ssh", "-i", "/tmp/door/key", "-p", "2222", "-l", user,
                               "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "NumberOfPasswordPrompts=1",
                               enclave.address["s2"], *(command or ["id", "-un"]), check=False, timeout=30)
    yield knock
    enclave.root("s2", f"systemctl stop enclave-sshd@{ID}")


def test_the_door_wants_key_second_factor_and_membership(enclave, door):
    assert door("res1").stdout.strip() == "res1"
    assert door("res1", secret="ff" + SECRET[2:]).returncode == 255
    assert door("outsider1").returncode == 255
    assert door("res1", fresh=True).returncode == 0
    assert door("res1", fresh=False).returncode == 255, "a code was taken twice"


def test_invariant_04_the_door_is_shut_by_one_fact(enclave, door):
    enclave.facts("s2", "door=0")
    assert door("res1").returncode == 255
    enclave.no_facts("s2")
    assert door("res1").returncode == 255
    enclave.facts("s2")
    assert door("res1").returncode == 0


def test_invariant_11_an_outsider_sees_at_the_door_what_an_unknown_user_sees(enclave, door):
    enclave.root("s2", "rm /run/enclave/login/keys/outsider1")   # privd writes members' keys only
    outsider, unknown = door("outsider1"), door("no-such-user")
    assert outsider.returncode == unknown.returncode == 255
    assert outsider.stderr.replace("outsider1", "USER") == unknown.stderr.replace("no-such-user", "USER")
