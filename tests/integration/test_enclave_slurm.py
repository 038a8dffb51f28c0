"""An enclave's own Slurm from the shipped templates, by hand: a second slurmctld on s1, slurmd on n3 and n4, a munge world of its own; and
`enclave-schedd --role enclave` in front of it. Addresses are the underlay's and the plugins are left out: those have tests of their own."""
import pathlib
import re
import time

import pytest
from conftest import wait_until
from test_schedd import Schedd, restore, slurm

SITE = pathlib.Path(__file__).resolve().parents[2] / "ops/site"
CONF = "/run/enclave/slurm/slurm.conf"
HOSTS = ("s1", "n3", "n4")
LEFT_OUT = ("JobSubmitPlugins", "PlugStackConfig", "Prolog=", "Epilog=")
MUNGED = ("systemd-run -q --unit=own-munged -p Type=forking -p User=munge /usr/sbin/munged --force --key-file=/run/enclave/munge/munge.key "
          "--socket=/run/enclave/munge/munge.socket --pid-file=/run/enclave/munge/munged.pid --log-file=/run/enclave/munge/munged.log --seed-file=/run/enclave/munge/seed")
PREPARE = """set -e
mkdir -p /run/enclave/slurm /run/enclave/munge /var/spool/slurmd/ctld
chown slurm:slurm /var/spool/slurmd/ctld; chmod 700 /var/spool/slurmd/ctld
printf %s '{key}' > /run/enclave/munge/munge.key
chown -R munge:munge /run/enclave/munge; chmod 711 /run/enclave/munge; chmod 400 /run/enclave/munge/munge.key
cat > /run/enclave/slurm/slurm.conf <<'END'
{slurm}END
cat > /run/enclave/slurm/cgroup.conf <<'END'
{cgroup}END
"""
CLEAR = """systemctl stop own-schedd own-slurmd own-slurmctld own-munged 2>/dev/null; pkill -9 slurmstepd
systemctl reset-failed 'own-*' 2>/dev/null; rm -rf /run/enclave/slurm /run/enclave/munge /var/spool/slurmd/ctld /var/spool/slurmd/node; true"""


def render(name, values):
    """What a node does with a template: leave comment lines out, replace each @NAME@ once."""
    text = "".join(line for line in (SITE / name).read_text().splitlines(keepends=True) if not line.startswith("#"))
    return re.sub(r"@([A-Z_0-9]+)@", lambda m: values[m.group(1)], text)


def files(lab):
    address = {h["name"]: h["address"] for h in lab.status()["hosts"]}
    values = {"CLUSTER": "k3qv7", "SCHEDULER": "s1", "SCHEDULER_ADDRESS": address["s1"], "SLURMCTLD_PORT": "7817", "SLURMD_PORT": "7818",
              "SRUN_FIRST": "61000", "SRUN_LAST": "61999", "STATE_DIR": "/var/spool/slurmd/ctld", "SPOOL_DIR": "/var/spool/slurmd/node",
              "NODES": "\n".join(f"NodeName={n} NodeAddr={address[n]} CPUs=2 RealMemory=2000" for n in ("n3", "n4")), "NODE_NAMES": "n3,n4",
              "CGROUP_PLUGIN": "cgroup/v1", "CGROUP_MOUNT": "/sys/fs/cgroup"}
    whole = render("enclave-slurm.conf.in", values)
    return {"slurm": "".join(x for x in whole.splitlines(keepends=True) if not x.startswith(LEFT_OUT)), "cgroup": render("enclave-cgroup.conf.in", values)}


def script(lab, host, text, check=True):
    return lab.run(host, "bash", "-c", text, check=check)


def at(lab, user, *command, host="s1", check=True):
    return lab.run(host, "runuser", "-u", user, "--", "env", "-C", "/tmp", f"SLURM_CONF={CONF}", *command, check=check)


@pytest.fixture(scope="module")
def own(lab):
    restore(lab)
    conf = files(lab)
    for host in HOSTS:
        script(lab, host, "systemctl stop slurmd munge 2>/dev/null; " + CLEAR)
        script(lab, host, PREPARE.format(key="k" * 1024, **conf))
    members = script(lab, "n3", "getent passwd res1 res2").stdout  # as an enclave's nodes know its members
    script(lab, "s1", f"mkdir -p /var/lib/extrausers; printf %s '{members}' > /var/lib/extrausers/passwd")
    begin = time.monotonic()
    for host in HOSTS:
        script(lab, host, MUNGED)
    script(lab, "s1", f"systemd-run -q --unit=own-slurmctld -E SLURM_CONF={CONF} /usr/sbin/slurmctld -D")
    wait_until(lambda: "UP" in at(lab, "root", "scontrol", "ping", check=False).stdout, 10, "the enclave's slurmctld", every=0.02)
    for host in ("n3", "n4"):
        script(lab, host, f"systemd-run -q --unit=own-slurmd -p Delegate=yes -p KillMode=process /usr/sbin/slurmd -D -f {CONF}")
    wait_until(lambda: states(lab) == ["idle", "idle"], 15, "two idle nodes", every=0.02)
    at(lab, "res1", "srun", "-N2", "true")
    print(f"from nothing to srun -N2 done: {time.monotonic() - begin:.2f} s")
    yield lab
    for host in HOSTS:
        script(lab, host, CLEAR)
    script(lab, "s1", "rm -f /var/lib/extrausers/passwd")
    for host in ("n3", "n4"):
        script(lab, host, "systemctl start munge slurmd")
    restore(lab)


def states(lab):
    return at(lab, "slurm", "sinfo", "-h", "-N", "-o", "%t").stdout.split()


@pytest.fixture(scope="module")
def link(own):
    made = Schedd(own, host="s1", role="enclave", user="enclave-agent", socket="/run/enclave/schedd-enclave.sock", unit="own-schedd")
    made.start()
    made.ready()
    yield made
    made.stop()


def test_a_job_runs_on_both_nodes_and_in_protected_alone(own):
    out = at(own, "res1", "srun", "-N2", "sh", "-c", "hostname; echo $SLURM_JOB_PARTITION").stdout
    assert sorted(out.split()) == ["n3", "n4", "protected", "protected"]
    assert at(own, "slurm", "sinfo", "-h", "-o", "%P").stdout.split() == ["protected*"]


def test_the_general_scheduler_is_another_world(own):
    assert "k3qv7" not in slurm(own, "scontrol", "show", "config")
    assert set(slurm(own, "sinfo", "-h", "-N", "-o", "%N").split()) == {"n1", "n2", "n3", "n4"}


def test_a_wrong_munge_key_is_refused(own):
    script(own, "n4", "systemctl stop own-slurmd own-munged; head -c 1024 /dev/urandom > /run/enclave/munge/munge.key; " + MUNGED)
    try:
        done = at(own, "res1", "srun", "-N1", "true", host="n4", check=False)
        assert done.returncode != 0
        before = at(own, "slurm", "scontrol", "show", "node", "n4").stdout
        script(own, "n4", f"systemd-run -q --unit=own-slurmd /usr/sbin/slurmd -D -f {CONF}")
        wait_until(lambda: "Munge decode failed: Invalid credential" in script(own, "s1", "journalctl -u own-slurmctld -o cat --no-pager | tail -40").stdout, 20, "the refusal")
        start = re.search(r"SlurmdStartTime=(\S+)", before).group(1)
        assert f"SlurmdStartTime={start}" in at(own, "slurm", "scontrol", "show", "node", "n4").stdout, "a slurmd with a wrong key registered"
    finally:
        script(own, "n4", "systemctl stop own-slurmd own-munged; printf %s " + "k" * 1024 + " > /run/enclave/munge/munge.key; " + MUNGED +
               f"; systemd-run -q --unit=own-slurmd -p Delegate=yes -p KillMode=process /usr/sbin/slurmd -D -f {CONF}")
        wait_until(lambda: states(own) == ["idle", "idle"], 30, "two idle nodes")


def test_the_general_munge_world_is_refused(own):
    conf = files(own)["slurm"].replace("AuthInfo=socket=/run/enclave/munge/munge.socket\n", "")
    own.run("login", "bash", "-c", f"cat > /tmp/stolen.conf <<'END'\n{conf}END")
    for command in (["sinfo", "-h"], ["srun", "-N1", "true"], ["sbatch", "--wrap", "true"]):
        assert own.run("login", "runuser", "-u", "res1", "--", "env", "-C", "/tmp", "SLURM_CONF=/tmp/stolen.conf", *command, check=False, timeout=40).returncode != 0
    own.run("login", "rm", "/tmp/stolen.conf")


def test_root_runs_no_jobs(own):
    assert at(own, "root", "srun", "-N1", "true", check=False).returncode != 0


def test_members_see_their_own_jobs_alone(own):
    job = at(own, "res1", "sbatch", "--parsable", "-o", "/dev/null", "--wrap", "sleep 60").stdout.strip()
    try:
        assert at(own, "res1", "squeue", "-h", "-o", "%i").stdout.split() == [job]
        assert at(own, "res2", "squeue", "-h", "-o", "%i").stdout.split() == []
        assert at(own, "res2", "scancel", job, check=False).returncode != 0
    finally:
        at(own, "res1", "scancel", "-f", job)
        wait_until(lambda: states(own) == ["idle", "idle"], 20, "the job to end")


# ---- the link in its role "enclave" ----

def test_the_link_knows_the_nodes_and_nothing_of_lending(link):
    assert [n["name"] for n in link.ok("nodes")["nodes"]] == ["n3", "n4"]
    for op in ("reserve", "release", "drain", "resume", "away"):
        link.refused("usage", op, name="k3", nodes=["n3"], node="n3")


def test_jobs_are_counted_by_user_and_told_as_facts(own, link):
    good = at(own, "res1", "sbatch", "--wait", "--parsable", "-o", "/dev/null", "--wrap", "exit 3", check=False).stdout.strip()
    running = at(own, "res1", "sbatch", "--parsable", "-J", "secret-name", "-o", "/dev/null", "-N2", "--exclusive", "--wrap", "sleep 60").stdout.strip()
    pending = at(own, "res2", "sbatch", "--parsable", "-o", "/dev/null", "-N2", "--exclusive", "--wrap", "sleep 60").stdout.strip()

    def counts():
        return link.ok("jobs")["counts"]
    wait_until(lambda: counts() == {"running": 1, "pending": 1, "users": {"res1": {"running": 1, "pending": 0}, "res2": {"running": 0, "pending": 1}}}, 15, "the counts")
    answer = link.ok("jobs")
    jobs = {str(j["id"]): j for j in answer["jobs"]}
    assert jobs[good]["exit"] == 3 and jobs[good]["user"] == "res1" and jobs[good]["end"] and jobs[good]["nodes"]
    assert jobs[running]["nodes"] == ["n3", "n4"] and jobs[running]["exit"] is None and jobs[running]["end"] is None
    assert set(jobs[running]) == {"id", "user", "state", "nodes", "start", "end", "end_time", "requeueable", "exit"}
    assert "secret-name" not in str(answer)
    for job in (pending, running):
        for _ in range(2):
            link.ok("end", job=int(job), how="cancel")
    wait_until(lambda: counts() == {"running": 0, "pending": 0, "users": {}}, 20, "all jobs to end")


def test_a_caller_that_is_not_the_agent_is_refused(own, link):
    done = own.run("s1", "runuser", "-u", "res1", "--", "python3", "-c", "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/run/enclave/schedd-enclave.sock')", check=False)
    assert done.returncode != 0
