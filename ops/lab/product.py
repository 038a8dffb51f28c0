"""The product on the lab's hosts, as a site would set it up: configuration of each daemon, certificates of the link to the vault, keys, enrolment.

Files that are known before a host boots are written by files(); what the running daemons make (the log's key, keyd's keys and CA, tokens) is fetched and
carried by the functions of AFTER rows. A program that the build lacks is skipped, and its host runs without it.
"""
import base64
import concurrent.futures
import json
import os
import secrets
import threading

import vm
from common import REPO, LabError, call, read_text, say, write_file
from hosts import host as host_named, plan, wait

# Units of a role and the program behind each.
PROGRAMS = {"enclave-auditd": "usr/sbin/enclave-auditd", "enclave-keyd": "usr/sbin/enclave-keyd", "enclave-vault-door": "usr/sbin/enclave-auditd",
            "enclave-cosignd": "usr/sbin/enclave-cosignd", "enclave-witness": "usr/sbin/enclave-witness",
            "enclave-vault-link": "usr/sbin/enclaved", "enclaved": "usr/sbin/enclaved", "enclave-schedd": "usr/sbin/enclave-schedd",
            "enclave-privd": "usr/sbin/enclave-privd", "enclave-agentd-observer": "usr/sbin/enclave-agentd"}
UNITS = {
    "vault": ["enclave-auditd", "enclave-keyd", "enclave-vault-door", "enclave-cosignd"],
    "witness": ["enclave-witness"],
    "controller": ["enclave-vault-link", "enclave-schedd", "enclaved"],
    "compute": ["enclave-privd"],
    "service": ["enclave-privd"],
    "head": ["enclave-agentd-observer"],
    "login": ["enclave-agentd-observer"],
}
NODES = {"compute", "service"}
OBSERVERS = {"head", "login"}
ETC = "etc/enclave"
AGENT_PORT = 7443
WITNESS_PORT = 7450
WITNESSES = ("w1", "w2")
KEYD_OPS = ["nonce", "certify", "baseline", "lease", "attest", "key", "grant", "members", "destroy", "lock", "status"]
ENROL_AT_ONCE = 8
ADMIN = "admin1"
# Site accounts with fixed uids, the same wherever site users exist. Their roles come from policies, by name.
ACCOUNTS = {name: 10001 + i for i, name in enumerate(["admin1", "admin2", "officer1", "steward1", "auditor1", "custodian1", "custodian2", "res1", "res2",
                                                        "outsider1"])}


def ships(lab, unit):
    return (lab.dir / "stage" / PROGRAMS[unit]).exists()


def units(lab, host):
    """The units of a host whose programs are there."""
    return [unit for unit in UNITS.get(host.role, []) if ships(lab, unit)]


def missing(lab):
    """Programs that the roles need and the build lacks."""
    return sorted({unit for row in UNITS.values() for unit in row if not ships(lab, unit)})


# --- before the hosts boot ------------------------------------------------------------------------------------------------

def transport(lab):
    """A CA of its own for the link to the vault: independent of keyd, which is reached through it."""
    folder = lab.dir / "keys/transport"
    if (folder / "ca.key").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "365"]
    call(*new, "-subj", "/CN=vault link", "-addext", "basicConstraints=critical,CA:TRUE,pathlen:0", "-addext", "keyUsage=critical,keyCertSign",
         "-keyout", folder / "ca.key", "-out", folder / "ca.pem")
    for name in ("controller", "vault", *WITNESSES):
        call(*new, "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}",
             "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem")


def files(lab, host):
    """/etc/enclave of one host."""
    for role, row in FILES:
        if host.role in role:
            row(lab, host, lab.upper(host.name) / ETC)


def _link_end(lab, etc, name, user, conf):
    keys = lab.dir / "keys/transport"
    for path in ("ca.pem", f"{name}.pem"):
        write_file(etc / "transport" / path, (keys / path).read_text())
    write_file(etc / f"transport/{name}.key", (keys / f"{name}.key").read_text(), 0o600)
    os.chown(etc / f"transport/{name}.key", *lab.uid(user))
    write_file(etc / conf, (REPO / "ops/site" / conf).read_text())


def _vault(lab, host, etc):
    _link_end(lab, etc, "vault", "stunnel4", "vault-door.conf")
    _json(etc / "auditd.json", {"origin": f"log.{lab.id}.lab", "witnesses": "/etc/enclave/witnesses",
                                "peers": [{"name": "enclaved", "user": "stunnel4", "append": True, "read": True},
                                          *([{"name": "cosignd", "user": "enclave-cosign", "cosign": True}] if ships(lab, "enclave-cosignd") else [])]})
    _json(etc / "cosignd.json", {"ca": "/etc/enclave/transport/ca.pem"})
    # Memory for argon2 is the least allowed: all hosts share this machine.
    _json(etc / "keyd.json", {"site": f"lab-{lab.id}", "argon2_mib": 64, "callers": [{"user": "stunnel4", "ops": KEYD_OPS}]})


def _witness(lab, host, etc):
    keys = lab.dir / "keys/transport"
    write_file(etc / "transport/witness.pem", (keys / f"{host.name}.pem").read_text())
    write_file(etc / "transport/witness.key", (keys / f"{host.name}.key").read_text(), 0o600)
    _json(etc / "witness.json", {"name": f"{host.name}.{lab.id}.lab", "listen": "::", "port": WITNESS_PORT, "certificate": "/etc/enclave/transport/witness.pem",
                                 "key": "/etc/enclave/transport/witness.key", "logs": ["/etc/enclave/log.vkey"]})


def _controller(lab, host, etc):
    _link_end(lab, etc, "controller", "enclave", "vault-link.conf")
    outside = [host_named(name) for name in ("ext",)]
    everybody = [host_named(name) for name in plan(lab.record["nodes"], lab.record["services"])]
    _json(etc / "enclaved.json", {"address4": host.ipv4, "address6": host.ipv6, "listen": "::", "port": AGENT_PORT,
                                  "service_nodes": [h.name for h in everybody if h.role == "service"], "observers": [h.name for h in everybody if h.role in OBSERVERS],
                                  "outsiders": [a for h in outside for a in (h.ipv4, h.ipv6)], "metrics_file": "/var/lib/enclave/metrics.prom"})
    _json(etc / "schedd.json", {})
    write_file(etc / "lendable", f"n[1-{lab.record['nodes']}]\ngeneral never below 1 schedulable nodes\n")
    for profile in ("hipaa", "lab"):
        write_file(etc / f"policy/{profile}.json", (REPO / f"policies/profiles/{profile}.json").read_text())
    people = {name: lab.uid(name) for name in ACCOUNTS}
    _json(etc / "users.json", [{"user": name, "uid": uid, "gid": gid, "ssh_keys": [read_text(lab.dir / f"keys/{name}.pub").strip()]}
                               for name, (uid, gid) in people.items()])


def _agent(lab, host, etc):
    ctl = host_named("ctl")
    _json(etc / "agentd.json", {"node": host.name, "controller_host": ctl.ipv4, "controller_port": AGENT_PORT, **({"observer": True} if host.role in OBSERVERS else {})})


def _node(lab, host, etc):
    ctl = host_named("ctl")
    _json(etc / "privd.json", {"node": host.name, "controller4": ctl.ipv4, "controller6": ctl.ipv6, "controller_port": AGENT_PORT})
    site = {"units": [], "leftovers": [], "unmount": [], "hide": []}
    if host.role == "compute":
        site = {"units": ["ssh.service", "slurmd.service", "munge.service"], "leftovers": ["slurmstepd"], "unmount": ["/home"],
                "hide": ["/root/.ssh/authorized_keys"]}
    _json(etc / "units.json", site)


def _factors(lab, host, etc):
    """Second factors as pam_oath reads them."""
    lines = [f"HOTP/T30/6 {name} - {base64.b32decode(read_text(lab.dir / 'otp' / name).strip()).hex()}" for name in ACCOUNTS]
    write_file(etc / "users.oath", "\n".join(lines) + "\n", 0o600)


def _json(path, document):
    write_file(path, json.dumps(document, indent=1) + "\n")


# Which roles get which files.
FILES = [
    ({"vault"}, _vault),
    ({"witness"}, _witness),
    ({"controller"}, _controller),
    (NODES | OBSERVERS, _agent),
    (NODES, _node),
    ({"service"}, _factors),
]


# --- once they run --------------------------------------------------------------------------------------------------------

def put(lab, name, path, text, mode=0o644, user=None):
    """Writes a file on a running host, through its own root; complete when it appears."""
    if lab.is_vm(name):
        vm.put(lab, name, path, text, mode, ":".join(map(str, lab.uid(user))) if user else None)
        return
    target = f"/proc/{lab.init(name)}/root/{path}"
    write_file(target + ".new", text, mode)
    if user:
        os.chown(target + ".new", *lab.uid(user))
    os.rename(target + ".new", target)


def get(lab, name, path):
    """A file's text on a running host; "" when there is none."""
    return vm.read(lab, name, path) if lab.is_vm(name) else read_text(f"/proc/{lab.init(name)}/root/{path}")


def _has(lab, unit, name):
    return lab.has(name) and ships(lab, unit) and lab.init(name)


def vault(lab):
    """The log's verifier key to keyd, keyd initialised once and unsealed."""
    if not _has(lab, "enclave-auditd", "vault"):
        return
    log = lab.upper("vault") / "var/lib/enclave-audit/log.vkey"
    wait(log.exists, 20, "enclave-auditd on vault to make its key")
    put(lab, "vault", f"{ETC}/log.vkey", log.read_text())
    if not _has(lab, "enclave-keyd", "vault"):
        return
    lab.run("vault", "systemctl", "start", "enclave-keyd")
    secret = lab.dir / "keys/root-passphrase"
    if not secret.exists():
        write_file(secret, secrets.token_urlsafe(24) + "\n", 0o600)
    state = keyd_state(lab)
    if state != "unsealed":
        lab.run("vault", "enclavectl", "key", "init" if state == "uninitialised" else "unseal", "--json", stdin=secret.read_text())


def witnesses(lab):
    """The log's key to the witnesses, theirs into the policy that the vault, and whoever verifies, judge by; then cosignd."""
    names = [name for name in WITNESSES if _has(lab, "enclave-witness", name)]
    if not _has(lab, "enclave-auditd", "vault") or not names:
        return
    log = (lab.upper("vault") / "var/lib/enclave-audit/log.vkey").read_text()
    lines = [f"log {log.strip()}"]
    for name in names:
        if read_text(f"/proc/{lab.init(name)}/root/{ETC}/log.vkey") != log:
            put(lab, name, f"{ETC}/log.vkey", log)
        lab.run(name, "systemctl", "start", "enclave-witness")
    for name in names:
        vkey = lab.upper(name) / "var/lib/enclave-witness/witness.vkey"
        lines.append(f"witness {name} {vkey.read_text().strip()} https://{name}:{WITNESS_PORT}/")
    policy = "\n".join([*lines, f"group lab all {' '.join(names)}", "quorum lab", ""])
    for name in ("vault", "ctl"):
        if lab.init(name) and read_text(f"/proc/{lab.init(name)}/root/{ETC}/witnesses") != policy:
            put(lab, name, f"{ETC}/witnesses", policy)
            if name == "vault":
                lab.run("vault", "systemctl", "reload", "enclave-auditd")
    lab.run("vault", "systemctl", "start", "enclave-cosignd")


def keyd_state(lab):
    return json.loads(lab.run("vault", "enclavectl", "key", "status", "--json"))["state"]


def trust(lab):
    """What the vault made public, to every host that checks something by it."""
    if not _has(lab, "enclave-keyd", "vault"):
        return
    state = lab.upper("vault") / "var/lib"
    made = {name: (state / path).read_text() for name, path in
            (("log.vkey", "enclave-audit/log.vkey"), ("keyd.vkey", "enclave-key/keyd.vkey"), ("ca.pem", "enclave-key/ca.pem"))}
    for host in lab.hosts:
        if not lab.init(host.name):
            continue
        wanted = {"controller": [("log.vkey", "log.vkey"), ("keyd.vkey", "keyd.vkey"), ("ca.pem", "ca.pem")],
                  "vault": [("keyd.vkey", "keyd.vkey")]}.get(host.role, [])
        if host.role in NODES | OBSERVERS:
            wanted = [("keyd.vkey", "keyd.vkey"), ("log.vkey", "log.vkey"), ("ca.pem", "controller-ca.pem")]
        for name, path in wanted:
            if get(lab, host.name, f"{ETC}/{path}") != made[name]:
                put(lab, host.name, f"{ETC}/{path}", made[name])


def controller(lab):
    if _has(lab, "enclaved", "ctl"):
        lab.run("ctl", "systemctl", "start", "enclave-vault-link", *(["enclave-schedd"] if ships(lab, "enclave-schedd") else []), "enclaved")
        wait(lambda: nodes(lab) is not None, 20, "enclaved to answer")


def ctl(lab, *words, user=ADMIN, **options):
    """enclavectl on the controller as a user; the parsed document."""
    out = lab.run("ctl", "setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--", "enclavectl", *words, "--json", **options)
    return json.loads(out)


def nodes(lab):
    """{name: node} as the controller sees them, observers too; None while it does not answer."""
    try:
        known = ctl(lab, "node", "list")
        return {node["name"]: node for node in known.get("nodes", []) + known.get("observers", [])}
    except (LabError, ValueError, AttributeError):
        return None


def members(lab):
    """Hosts of this lab that are up and should have an agent."""
    return [h for h in lab.hosts if h.role in NODES | OBSERVERS and any(u in ("enclave-privd", "enclave-agentd-observer") for u in units(lab, h)) and lab.init(h.name)]


def agents(lab):
    """Every node enrolled by a token of its own, all at once."""
    if not _has(lab, "enclaved", "ctl"):
        return
    lock = threading.Lock()                       # one at a time where the controller writes; the nodes' own work overlaps
    with concurrent.futures.ThreadPoolExecutor(ENROL_AT_ONCE) as pool:
        list(pool.map(lambda h: _enrol(lab, h, lock), members(lab)))
    wait(lambda: agents_ready(lab), 30 * lab.patience, "all agents to be enrolled, measured and connected")


def _enrol(lab, host, lock):
    unit = units(lab, host)[0]
    if not get(lab, host.name, "var/lib/enclave-agent/cert.pem"):
        with lock:
            token = ctl(lab, "node", "enroll", host.name)["token"]
        put(lab, host.name, "var/lib/enclave-agent/token", token + "\n", 0o600, "enclave-agent")
    lab.run(host.name, "systemctl", "start", unit)


def agents_ready(lab):
    """Each agent is connected, and each node is where the site has it: in the general or the service pool, or held by an enclave."""
    known = nodes(lab) or {}
    return all(known.get(h.name, {}).get("agent", {}).get("connected") and (h.role in OBSERVERS or known[h.name].get("baseline", True))
               for h in members(lab))


def ready(lab):
    if not lab.has("vault") or not ships(lab, "enclave-keyd"):
        return True
    try:
        return keyd_state(lab) == "unsealed" and (not _has(lab, "enclaved", "ctl") or agents_ready(lab))
    except LabError:
        return False


def warn(lab):
    lacking = missing(lab)
    if lacking:
        say(f"not in the build, so not in the lab: {' '.join(lacking)}")
