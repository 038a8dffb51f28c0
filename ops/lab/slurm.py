"""The site's general cluster in the lab: head, login, ctl as a client, and the compute nodes."""
import os
import secrets
import string
import time

from common import REPO, LabError, write_file
from hosts import CGROUP, wait

CLUSTER = "site"
MEMBERS = {"head", "login", "controller", "compute"}   # roles that hold the general munge key
DATABASE = """CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED VIA unix_socket;
GRANT ALL ON slurm_acct_db.* TO slurm@localhost;
"""
# Either daemon ends at once when the one before it does not answer yet; after a reboot of the head they must find their own way. slurmctld registers
# itself with slurmdbd by half when the cluster is not known there, and then gets no news of administrators: so it first starts once it is.
KNOWN = "/var/lib/slurm/cluster-known"
RESTART = "[Unit]\nAfter={after}.service\nStartLimitIntervalSec=0\n[Service]\nRestart=on-failure\nRestartSec=300ms\n"


def present(lab):
    return lab.has("head")


def configure(lab, host):
    """Files of the general cluster in the writable layer of one host, before it boots."""
    if not present(lab) or host.role not in MEMBERS:
        return
    upper = lab.upper(host.name)
    values = {"cluster": CLUSTER, "controller": "head", "nodes": f"n[1-{lab.record['nodes']}]",
              "cgroup_plugin": "cgroup/v2" if lab.is_vm(host.name) or (CGROUP / "cgroup.controllers").exists() else "cgroup/v1"}
    names = ["slurm.conf", "cgroup.conf"] + (["slurmdbd.conf"] if host.role == "head" else [])
    for name in names:
        text = string.Template((REPO / "ops/site" / name).read_text()).substitute(values)
        write_file(upper / "etc/slurm" / name, text, 0o600 if name == "slurmdbd.conf" else 0o644)
    key = lab.dir / "keys/munge"
    if not key.exists():
        write_file(key, secrets.token_bytes(1024), 0o600)
    write_file(upper / "etc/munge/munge.key", key.read_bytes(), 0o400)
    munge, slurm = lab.uid("munge"), lab.uid("slurm")
    os.chown(upper / "etc/munge", *munge)
    os.chmod(upper / "etc/munge", 0o700)
    os.chown(upper / "etc/munge/munge.key", *munge)
    if host.role == "head":
        os.chown(upper / "etc/slurm/slurmdbd.conf", *slurm)
        write_file(upper / "etc/systemd/system/slurmdbd.service.d/lab.conf", RESTART.format(after="mariadb"))
        write_file(upper / "etc/systemd/system/slurmctld.service.d/lab.conf", RESTART.format(after="slurmdbd").replace("[Service]", f"ConditionPathExists={KNOWN}\n[Service]"))


def account(lab, users):
    """Once per lab: database, cluster, every user in the account `default`; the scheduler link's user is the only administrator."""
    if not present(lab) or lab.record.get("accounted"):
        return
    _until(lambda: lab.run("head", "mariadb", "-e", DATABASE), "MariaDB")
    lab.run("head", "systemctl", "restart", "slurmdbd")
    _until(lambda: lab.run("head", "sacctmgr", "-n", "list", "cluster"), "slurmdbd")
    lab.run("head", "sacctmgr", "-i", "add", "cluster", CLUSTER, check=False)
    lab.run("head", "sacctmgr", "-i", "add", "account", "default", "Description=general", "Organization=site", check=False)
    lab.run("head", "sacctmgr", "-i", "add", "user", f"names={','.join(users)}", "account=default", check=False)
    lab.run("head", "sacctmgr", "-i", "add", "user", "enclave-sched", "account=default", "adminlevel=Administrator", check=False)
    lab.run("head", "touch", KNOWN)
    lab.run("head", "systemctl", "start", "slurmctld")
    lab.record["accounted"] = True
    lab.save()


def _until(action, what, seconds=40):
    end = time.monotonic() + seconds
    while True:
        try:
            return action()
        except LabError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def nodes(lab):
    """{node: state} as the general scheduler sees it, in lower case, without flags such as "*"."""
    out = lab.run("head", "scontrol", "-o", "show", "nodes")
    found = {}
    for line in out.splitlines():
        fields = dict(w.split("=", 1) for w in line.split() if "=" in w)
        found[fields["NodeName"]] = fields["State"].lower()
    return found


def ready(lab):
    """Whether the scheduler answers and each node of this lab that is up is idle, or busy with a job, there."""
    try:
        states = nodes(lab)
    except LabError:
        return False
    return all(states.get(h.name, "unknown").split("+")[0] in ("idle", "mixed", "allocated") for h in lab.hosts if h.role == "compute" and lab.init(h.name))


def wait_ready(lab, seconds=40):
    if not present(lab):
        return
    try:
        wait(lambda: ready(lab), seconds * lab.patience, "all compute nodes to be idle in the general pool")
    except LabError as error:
        raise LabError(f"{error}\n{_excuse(lab)}") from None


EXCUSES = (("head", "sinfo", "-N", "-o", "%N %T %E"), ("head", "scontrol", "-o", "show", "reservation"),
           ("ctl", "runuser", "-u", "admin1", "--", "enclavectl", "node", "list"), ("ctl", "runuser", "-u", "admin1", "--", "enclavectl", "list"))


def _excuse(lab):
    """What the scheduler and the controller say about the nodes, for a person who must find out why one is not idle."""
    return "\n".join(lab.run(*words, check=False).rstrip() for words in EXCUSES if lab.has(words[0]) and lab.init(words[0]))
