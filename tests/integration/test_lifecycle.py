"""An enclave's life on the real cluster: what people get, what strangers get, and what is left. One enclave serves all tests that only look."""
import json
import re
import time

import pytest

from conftest import wait_until

NAME = "story"
ORDER = ["--agreement", "BAA-17", "--purpose", "integration test", "--owner", "res1"]
SHOWN = {"name", "id", "state", "step", "owner", "agreement", "purpose", "policy", "created_at", "opened_at", "expires_at", "partition", "door", "entry",
         "nodes", "services", "login", "members", "volumes", "jobs", "evidence", "waiting", "steps", "records"}


def ctl(lab, *words, user="admin1", check=True, timeout=150):
    return lab.run("ctl", "enclavectl", *words, user=user, check=check, timeout=timeout)


def as_json(lab, *words, user="admin1", status=0, timeout=150):
    """enclavectl --json: exactly one document on stdout and nothing on stderr, whatever the outcome."""
    done = ctl(lab, "--json", *words, user=user, check=False, timeout=timeout)
    assert done.returncode == status, f"{words}: {done.returncode}, {done.stdout}{done.stderr}"
    assert done.stderr == "" and done.stdout.endswith("\n") and done.stdout.count("\n") == 1
    return json.loads(done.stdout)


def ssh(lab, user, *words, check=True, timeout=90):
    return lab.lab("ssh", user, NAME, "--", *words, check=check, timeout=timeout)


def nodes_of(lab):
    return {n["name"]: n for n in as_json(lab, "node", "list")["nodes"]}


def log_size(lab):
    """Records so far; what is on its way to the log is waited for by those who compare."""
    return as_json(lab, "audit", "search", "--limit", "1", user="auditor1")["size"]


@pytest.fixture(scope="module")
def enclave(lab):
    if any(e["name"] == NAME for e in as_json(lab, "list")["enclaves"]):
        as_json(lab, "destroy", NAME)
    wait_until(lambda: all(n["slurm_state"] == "idle" for n in nodes_of(lab).values() if n["pool"] == "general"), 60, "idle nodes")
    made = as_json(lab, "create", NAME, "--nodes", "2", *ORDER)
    yield made
    if any(e["name"] == NAME for e in as_json(lab, "list")["enclaves"]):
        as_json(lab, "destroy", NAME)


def test_create_answers_with_the_enclave_as_it_stands(lab, enclave):
    assert SHOWN <= set(enclave) and enclave["state"] == "open" and enclave["door"] == "open" and enclave["step"] is None
    assert len(enclave["nodes"]) == 2 and all(n["pool"] == "enclave" for n in enclave["nodes"])
    assert {s["role"] for s in enclave["services"]} == {"scheduler", "login"}
    assert all(v["cipher"] == "aes-256-xts" and v["key_bits"] == 512 and v["state"] == "open" for v in enclave["volumes"])
    assert enclave["evidence"]["state"] == "fresh" and enclave["evidence"]["probes"] == enclave["evidence"]["as_expected"] > 20
    assert re.fullmatch(r"[a-z2-7]{26}", enclave["id"]) and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", enclave["opened_at"])
    assert set(as_json(lab, "show", NAME)) >= SHOWN
    assert [e["name"] for e in as_json(lab, "list")["enclaves"]] == [NAME]


def test_invariant_01_each_node_is_in_one_pool_and_the_general_scheduler_shows_it_away(lab, enclave):
    inside = {n["name"] for n in enclave["nodes"]}
    assert {name for name, n in nodes_of(lab).items() if n["pool"] == "enclave"} == inside | {s["node"] for s in enclave["services"]}
    general = lab.run("head", "sinfo", "-h", "-N", "-o", "%N %T").stdout.split("\n")
    assert all(not re.match(r"(idle|mixed|allocated)", line.split()[1]) for line in general if line and line.split()[0] in inside)


def test_a_member_works_inside(lab, enclave):
    done = ssh(lab, "res1", "sh", "-c", "id -un; sinfo -h -o %P; srun -p protected -N2 hostname | sort")
    assert done.stdout.split() == ["res1", "protected*", *sorted(n["name"] for n in enclave["nodes"])]


def test_a_recipe_is_submitted_by_its_name_inside_and_nowhere_else(lab, enclave):
    job = json.loads(ssh(lab, "res1", "enclavectl", "recipe", "run", "smoke", "--json", "--", "--time=2").stdout)
    assert job["recipe"] == "smoke" and job["job"].isdigit()
    wait_until(lambda: "JobState=COMPLETED" in ssh(lab, "res1", "scontrol", "-o", "show", "job", job["job"]).stdout, 60, "the recipe's job", every=0.5)
    for words, status, says in ((("smoke",), 3, "in no enclave"), (("llm-lora",), 2, "estimate alone"), (("smok",), 4, "smoke")):
        refused = lab.run("login", "enclavectl", "recipe", "run", *words, user="res1", check=False)
        assert refused.returncode == status and says in refused.stderr, refused.stderr


def test_invariant_11_strangers_get_one_answer_whether_it_is_there_or_not(lab, enclave):
    there, absent = (ctl(lab, "show", name, user="outsider1", check=False) for name in (NAME, "nosuch"))
    assert there.returncode == absent.returncode == 4
    assert there.stdout == absent.stdout and there.stderr.replace(NAME, "nosuch") == absent.stderr
    assert as_json(lab, "list", user="outsider1")["enclaves"] == []


def test_a_stranger_and_an_unknown_user_are_refused_alike_at_the_door(lab, enclave):
    login = enclave["login"]
    tries = [lab.run("ext", "ssh", "-p", login["port"], "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
                     "-o", "BatchMode=yes", f"{user}@{login['address']}", "true", user="outsider1", check=False) for user in ("outsider1", "nosuchuser")]
    assert [t.returncode for t in tries] == [255, 255]
    assert tries[0].stderr.replace("outsider1", "X") == tries[1].stderr.replace("nosuchuser", "X")


def test_invariant_10_general_users_see_no_name_member_or_purpose(lab, enclave):
    words = [["scontrol", "show", "nodes"], ["scontrol", "show", "res"], ["scontrol", "show", "partition"], ["sinfo", "-R"], ["squeue", "-a"], ["getent", "hosts"]]
    for host in ("login", "head"):
        for command in words:
            text = lab.run(host, *command, user="res2" if host == "login" else None, check=False).stdout
            for secret in (NAME, "res1", "integration test", "BAA-17"):
                assert secret not in text.replace("/home/res1", ""), f"{host}: {command}"


def test_the_general_login_node_reaches_nothing_of_it(lab, enclave):
    addresses = {h["name"]: h for h in lab.status()["hosts"]}
    port = enclave["login"]["port"]
    for name in [n["name"] for n in enclave["nodes"]] + [s["node"] for s in enclave["services"]]:
        for address in (addresses[name]["address"], addresses[name].get("address6")):
            for knock in (22, 6817, 6818, 7443) if address else ():
                if knock == port:
                    continue
                assert lab.run("login", "nc", "-z", "-w", "1", address, knock, check=False).returncode != 0, f"{name} {address} {knock}"
            assert not address or lab.run("login", "ping", "-c", "1", "-W", "1", address, check=False).returncode != 0
    assert lab.run("login", "nc", "-z", "-w", "1", addresses["ctl"]["address"], 7443, check=False).returncode == 0, "positive control"


@pytest.mark.parametrize("words, status", [
    (["create", "x1", "--nodes", "nosuch1", *ORDER], 4),
    (["create", "x1", "--nodes", "0", *ORDER], 2),
    (["create", "x1", "--nodes", "99", *ORDER], 5),
    (["create", "Bad_Name", "--nodes", "1", *ORDER], 2),
    (["create", "x1", "--nodes", "1", "--agreement", "BAA-3", *ORDER[2:]], 3),
    (["create", "x1", "--nodes", "1", "--agreement", "NO-1", *ORDER[2:]], 3),
    (["create", "x1", "--nodes", "1", "--agreement", "BAA-17", "--purpose", "p", "--owner", "nosuchuser"], 4),
    (["create", "x1", "--nodes", "1", "--ttl", "soon", *ORDER], 2),
    (["create", NAME, "--nodes", "1", *ORDER], 5),
    (["destroy", "nosuch"], 4),
])
def test_bad_input_is_refused_with_its_status_one_record_and_no_change(lab, enclave, words, status):
    before, size = nodes_of(lab), log_size(lab)
    error = as_json(lab, *words, status=status)["error"]
    assert set(error) >= {"code", "step", "object", "text", "next"} and error["text"] and "\n" not in error["text"]
    wait_until(lambda: log_size(lab) > size, 10, "a record of the refusal")
    after = nodes_of(lab)
    assert {n: (v["pool"], v["enclave"], v["generation"]) for n, v in before.items()} == {n: (v["pool"], v["enclave"], v["generation"]) for n, v in after.items()}


def test_a_node_that_is_held_cannot_be_had_again(lab, enclave):
    as_json(lab, "create", "x1", "--nodes", enclave["nodes"][0]["name"], *ORDER, status=5)


@pytest.mark.parametrize("user", ["res1", "outsider1", "auditor1", None])
def test_callers_without_the_role_create_nothing(lab, enclave, user):
    as_json(lab, "create", "x1", "--nodes", "1", *ORDER, user=user, status=3)


@pytest.mark.parametrize("body, pointer", [
    ('{"name":"x1"', None), ('{"name":"x1","name":"x2"}', "/name"), ('{"name":7}', "/name"), ('{"name":"x1","what":1}', "/what"), ("[" * 5000, None),
    ('{"name":"' + "a" * 70000 + '"}', None)])
def test_malformed_json_is_a_400_with_the_place(lab, enclave, body, pointer):
    done = lab.run("ctl", "curl", "-s", "--unix-socket", "/run/enclave/enclaved.sock", "-w", "\n%{http_code}", "-H", "Content-Type: application/json",
                   "--data-binary", "@-", "http://localhost/v1/enclaves", user="admin1", stdin=body)
    text, status = done.stdout.rsplit("\n", 1)
    assert status in ("400", "413") and (pointer is None or json.loads(text)["error"].get("pointer") == pointer), done.stdout


def test_agents_port_wants_a_certificate_of_its_own_ca(lab, enclave):
    lab.run("ext", "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "/tmp/self.key", "-out", "/tmp/self.pem",
            "-days", "1", "-subj", "/CN=n1")
    controller = next(h["address"] for h in lab.status()["hosts"] if h["name"] == "ctl")
    for extra in ([], ["--cert", "/tmp/self.pem", "--key", "/tmp/self.key"]):
        done = lab.run("ext", "curl", "-sS", "-k", "-m", "10", *extra, f"https://{controller}:7443/v1/agent/document", check=False)
        assert done.returncode in (35, 52, 55, 56) and done.stdout == "", done.stderr  # whichever side sees the end first


def test_invariant_13_a_removed_member_is_out_within_ten_seconds(lab, enclave):
    as_json(lab, "member", "add", NAME, "res2")
    assert ssh(lab, "res2", "id", "-un").stdout.strip() == "res2"
    home = ssh(lab, "res2", "ls", "/enclave/home/res1", check=False)
    assert home.returncode != 0, "a member's home is his own"
    host = enclave["login"]["host"]
    start = time.monotonic()
    as_json(lab, "member", "remove", NAME, "res2")
    wait_until(lambda: lab.run(host, "getent", "passwd", "res2", check=False).returncode != 0, 10, "the account to go")
    assert lab.run(host, "pgrep", "-u", "10009", check=False).stdout == ""
    print(f"revoked in {time.monotonic() - start:.1f} s")
    assert ssh(lab, "res2", "id", check=False).returncode == 255


def test_invariant_06_no_munge_key_in_the_memory_of_controller_or_agent_and_no_secret_in_arguments(lab, enclave):
    node = enclave["nodes"][0]["name"]
    search = ("import sys,re\nkey=open('/proc/self/fd/0','rb').read()\n"
              "def has(pid):\n"
              " m=open(f'/proc/{pid}/mem','rb',0)\n"
              " for l in open(f'/proc/{pid}/maps'):\n"
              "  a,b=(int(x,16) for x in l.split()[0].split('-'))\n"
              "  if 'r' in l.split()[1] and '[v' not in l:\n"
              "   try:\n    m.seek(a)\n    d=m.read(b-a)\n   except (OSError,ValueError,OverflowError): continue\n"
              "   if key[:32] in d: return True\n"
              " return False\n"
              "print(*[has(p) for p in sys.argv[1:]])")
    key = lab.run(node, "sh", "-c", "base64 -w0 /run/enclave/munge/munge.key").stdout
    script = search.replace("open('/proc/self/fd/0','rb').read()", f"__import__('base64').b64decode({key!r})")
    agent = lab.run(node, "pgrep", "-x", "enclave-agentd").stdout.split()[0]
    munged = lab.run(node, "pgrep", "-f", "run/enclave/munge").stdout.split()[0]
    assert lab.run(node, "/usr/bin/python3", "-", agent, munged, stdin=script).stdout.split()[0] == "False"
    controller = lab.run("ctl", "pgrep", "-x", "enclaved").stdout.split()[0]
    assert lab.run("ctl", "/usr/bin/python3", "-", controller, stdin=script).stdout.split() == ["False"]


def test_destroy_gives_clean_nodes_back_with_certificates_and_a_verified_log(lab, enclave):
    names = [n["name"] for n in enclave["nodes"]]
    gone = as_json(lab, "destroy", NAME)
    assert gone["state"] == "closed" and {n["name"] for n in gone["nodes"]} >= set(names)
    assert {v["name"]: v["state"] for v in gone["volumes"]} == {"scratch": "erased", f"{NAME}-data": "locked"}
    wait_until(lambda: all(nodes_of(lab)[n]["slurm_state"] == "idle" for n in names), 30, "idle nodes")
    assert lab.run("login", "srun", "-p", "general", "-w", ",".join(names), "-N2", "hostname", user="res2").stdout.split()
    for name in names:
        c = as_json(lab, "node", "certificate", name)
        assert c["node"] == name and c["attest"]["equal"] and all(i["left"] == 0 for i in c["items"]) and "c2sp.org/tlog-proof" in c["proof"]
        assert lab.run(name, "nft", "list", "tables").stdout == "" and lab.run(name, "find", "/enclave", "-mindepth", "2").stdout == ""
    assert as_json(lab, "audit", "verify", user="auditor1")["result"] == "complete"
    assert as_json(lab, "destroy", NAME)["state"] == "closed", "any number of times"


def test_a_volume_comes_back_to_its_owner_with_what_was_in_it(lab, enclave):
    made = as_json(lab, "create", NAME, "--nodes", "1", *ORDER)
    assert [v["state"] for v in made["volumes"] if v["name"] == f"{NAME}-data"] == ["open"]
    as_json(lab, "destroy", NAME)


def test_invariant_02_a_node_that_differs_from_its_baseline_is_quarantined_by_name_of_the_row(lab):
    before = "/etc/ssh/sshd_config.d/planted.conf"
    lab.run("n4", "sh", "-c", f"echo 'PermitRootLogin yes' > {before}")
    error = as_json(lab, "create", "differs", "--nodes", "n4", *ORDER, status=7)["error"]
    assert error["code"] == "integrity" and "n4" in error["text"] and "sshd-config" in error["text"]
    node = nodes_of(lab)["n4"]
    assert node["pool"] == "quarantine" and "sshd-config" in node["why"] and node["next"]
    assert lab.run("login", "srun", "-p", "general", "-w", "n4", "--immediate=2", "true", user="res2", check=False).returncode != 0
    lab.run("n4", "rm", before)
    as_json(lab, "node", "release", "n4")
    wait_until(lambda: nodes_of(lab)["n4"]["pool"] == "general" and nodes_of(lab)["n4"]["slurm_state"] == "idle", 60, "n4 back in general")


def test_one_altered_byte_in_the_log_is_found_and_its_repair_too(lab):
    def flip():
        lab.run("vault", "/usr/bin/python3", "-c",
                "import glob\nf=open(sorted(glob.glob('/var/lib/enclave-audit/log/seg-*.log'))[0],'r+b')\nf.seek(120);b=f.read(1);f.seek(120);f.write(bytes([b[0]^1]))")

    flip()
    try:
        verdict = as_json(lab, "audit", "verify", user="auditor1", status=7)
    finally:
        flip()
    assert verdict["result"] == "altered" and verdict["first_bad"]["index"] == 0
    assert as_json(lab, "audit", "verify", user="auditor1")["result"] == "complete"
