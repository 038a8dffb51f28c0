"""What people say on a node of an enclave (logger, output of units, names in messages of daemons) stays in memory and goes with the stay; the site's own
journal and its setting come back as they were."""
import hashlib
import pathlib
import secrets
import subprocess

import pytest

from conftest import own_lab, wait_until
from node import AIRLOCK, DOWN, FAILED, FENCE_AIRLOCK, MUNGE_KEY, lone_node, new_id

KEYS = {MUNGE_KEY: "11" * 64}
DROP_IN = "/etc/systemd/journald.conf.d/zz-enclave.conf"


@pytest.fixture(scope="module")
def node():
    with own_lab("journal", "--only", "n1,ext") as small:
        n1 = lone_node(small)
        n1.upper = pathlib.Path(small.paths()["hosts"]["n1"]["upper"])
        yield n1


@pytest.fixture
def n1(node):
    yield node
    if "no_clean" in node.run("cat", "/etc/enclave/privd.json").stdout:
        node.start()
    node.leave()


def enter(n1):
    n1.airlock()
    n1.enclave(volumes=[{"name": "scratch", "kind": 1, "driver": "fscrypt", "id": new_id()}])
    n1.good("fence")
    n1.good("overlay")
    assert n1.members(("res1", 10008))["code"] == 0
    n1.good("volume", sealed=KEYS)
    n1.good("role", sealed=KEYS)


def on_disk(n1, *words):
    """Files of the host's own writable layer that hold one of these words: what root of the machine finds on the disk."""
    n1.run("sync")
    patterns = [piece for word in words for piece in ("-e", word)]
    return subprocess.run(["grep", "-rlaF", *patterns, str(n1.upper)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.split()


def in_journal(n1, word):
    """Entries of the journal, wherever it is, that hold the word."""
    return word in n1.out("journalctl", "--no-pager", "-o", "cat", "--all")


def config(n1):
    return {path: hashlib.sha256(n1.run("cat", path).stdout.encode()).hexdigest()
            for path in n1.out("find", "/etc/systemd", "-name", "*.conf", "-type", "f").split()}


def folders(n1):
    return n1.out("find", "/etc/systemd", "-type", "d", "-printf", "%p %m %u %g\n")


def files_of_journald(n1):
    pid = n1.out("systemctl", "show", "-p", "MainPID", "--value", "systemd-journald").strip()
    return [w for w in n1.out("find", f"/proc/{pid}/fd", "-printf", "%l\n").split() if w.endswith(".journal")]


def say(n1, word):
    """As a member, by every way that a user has to the log."""
    as_user = ["setpriv", "--reuid=10008", "--regid=10008", "--clear-groups"]
    n1.run(*as_user, "logger", f"{word}-syslog")
    n1.run(*as_user, "sh", "-c", f"echo {word}-native | systemd-cat -t notes")
    n1.run("systemd-run", "--wait", "--quiet", "--uid=10008", "sh", "-c", f"echo {word}-stdout; echo {word}-stderr >&2")
    n1.run("sh", "-c", f"logger -t sshd 'Invalid user {word}-sshd from 10.0.0.1'")
    wait_until(lambda: all(in_journal(n1, f"{word}-{way}") for way in ("syslog", "native", "stdout", "stderr", "sshd")), 10, "the messages to arrive")


def test_what_members_say_is_in_memory_alone_and_goes_with_the_stay(n1):
    before, shape = config(n1), folders(n1)
    earlier = f"EARLIER{secrets.token_hex(8)}"
    n1.run("logger", earlier)
    wait_until(lambda: in_journal(n1, earlier), 10, "the site's own message")
    assert on_disk(n1, earlier), "the positive control: this site keeps its journal on disk"
    for _ in range(2):
        word = f"CANARY{secrets.token_hex(8)}"
        enter(n1)
        assert not in_journal(n1, earlier), "nor do members read what general users said"
        say(n1, word)
        n1.run("sh", "-c", f"echo {word} > /var/log/note; echo {word} >> /var/log/wtmp; echo {word} > /var/mail/res1")
        assert on_disk(n1, word) == []
        assert files_of_journald(n1) and all(f.startswith("/run/log/journal/") for f in files_of_journald(n1))
        n1.leave()
        assert on_disk(n1, word) == [] and not in_journal(n1, word)
        assert n1.run("grep", "-rqs", word, "/run/log", "/var/log", "/var/mail", check=False).returncode == 1
    assert config(n1) == before and folders(n1) == shape
    assert in_journal(n1, earlier)
    late = f"LATE{secrets.token_hex(8)}"
    n1.run("logger", late)
    wait_until(lambda: on_disk(n1, late), 10, "the journal to be on disk again")
    assert all(f.startswith("/var/log/journal/") for f in files_of_journald(n1))


def test_services_that_log_to_files_write_into_memory_meanwhile(n1):
    n1.put("/etc/systemd/system/file-log.service", "[Service]\nExecStart=/bin/sh -c 'exec >>/var/log/file.log; while :; do cat /run/say; sleep 0.2; done'\n")
    word, after = f"FILELOG{secrets.token_hex(8)}", f"AFTER{secrets.token_hex(8)}"
    n1.run("sh", "-c", "echo nothing > /run/say; systemctl daemon-reload; systemctl start file-log")
    enter(n1)
    n1.run("sh", "-c", f"echo {word} > /run/say")
    wait_until(lambda: word in n1.run("cat", "/var/log/file.log", check=False).stdout, 10, "the service to write on")
    assert on_disk(n1, word) == []
    n1.run("sh", "-c", f"echo {after} > /run/say")
    n1.leave()
    wait_until(lambda: after in n1.run("cat", "/var/log/file.log").stdout, 10, "the service to write to its own file")
    assert "nothing" in n1.run("cat", "/var/log/file.log").stdout and on_disk(n1, word) == []
    n1.run("systemctl", "stop", "file-log")


def test_a_node_rebooted_inside_has_its_journal_in_memory_until_it_is_clean(n1):
    before = config(n1)
    word = f"REBOOT{secrets.token_hex(8)}"
    enter(n1)
    say(n1, word)
    n1.reboot()
    assert all(f.startswith("/run/log/journal/") for f in files_of_journald(n1)) and not in_journal(n1, word)
    again = f"AGAIN{secrets.token_hex(8)}"
    n1.run("logger", again)
    wait_until(lambda: in_journal(n1, again), 10, "the message")
    assert on_disk(n1, word, again) == []
    n1.leave()
    assert config(n1) == before and all(f.startswith("/var/log/journal/") for f in files_of_journald(n1))
    assert on_disk(n1, word, again) == []


def kill_at(n1, point, act):
    """Carries `act` out with a privd that dies once at that point, and again until it is done."""
    n1.run("mkdir", "-p", "/run/enclave/points")
    n1.put("/run/enclave/points/enclave-privd", f"{point} kill\n")
    main = n1.out("systemctl", "show", "-p", "MainPID", "--value", "enclave-privd").strip()
    n1.run("kill", "-KILL", main)
    wait_until(n1.state, 20, "privd to be back")
    n1.run("rm", "-rf", "/run/enclave/points")
    with pytest.raises((AssertionError, TypeError)):
        act()
    wait_until(n1.state, 20, "privd to be back")


@pytest.mark.parametrize("point", [pytest.param("privd.units", marks=pytest.mark.nightly), pytest.param("privd.units.done", marks=pytest.mark.nightly), pytest.param("privd.roles", marks=pytest.mark.nightly),
                                   "privd.roles.done", pytest.param("privd.clean", marks=pytest.mark.nightly), pytest.param("privd.clean.done", marks=pytest.mark.nightly)])
def test_a_privd_killed_in_between_lets_no_word_onto_the_disk(n1, point):
    before, shape = config(n1), folders(n1)
    word = f"KILL{secrets.token_hex(8)}"
    kill_at(n1, point, lambda: enter(n1))
    n1.leave()
    assert config(n1) == before and folders(n1) == shape
    enter(n1)
    say(n1, word)
    kill_at(n1, point, n1.leave)
    assert on_disk(n1, word) == []
    n1.leave()
    assert on_disk(n1, word) == [] and not in_journal(n1, word)
    assert config(n1) == before and folders(n1) == shape
    assert all(f.startswith("/var/log/journal/") for f in files_of_journald(n1))


def clean(n1):
    n1.next(pool=AIRLOCK, units=DOWN, fence=FENCE_AIRLOCK, overlay=0, roles=0, door=0, volumes=[], peers=[], clean=1, clean_id=new_id())
    for verb in ("door", "role", "volume", "overlay", "units", "fence"):
        n1.good(verb, grant=None)
    answer = n1.order("clean", grant=None)
    return answer, {item["residue"]: item for item in answer["evidence"]["items"]}


def test_invariant_02_words_that_a_disabled_cleaner_leaves_keep_the_node_out(n1):
    word = f"LEFT{secrets.token_hex(8)}"
    enter(n1)
    say(n1, word)
    n1.configure(no_clean=["journal"])
    n1.run("systemctl", "restart", "enclave-privd")
    answer, items = clean(n1)
    assert answer["code"] == FAILED and items["journal"]["found"] >= 5 and items["journal"]["left"] >= 5
    n1.configure()
    n1.run("systemctl", "restart", "enclave-privd")
    answer, items = clean(n1)
    assert answer["code"] == 0 and items["journal"]["found"] >= 5 and items["journal"]["left"] == 0 and not in_journal(n1, word)
    assert clean(n1)[1]["journal"]["found"] == 0


def test_invariant_02_a_journal_that_was_let_onto_the_disk_keeps_the_node_out(n1):
    n1.airlock()
    n1.run("sh", "-c", f"mv {DROP_IN} /run/kept; systemctl restart systemd-journald; logger escaped; journalctl --sync; mv /run/kept {DROP_IN}")
    answer, items = clean(n1)
    assert answer["code"] == FAILED and items["journal-on-disk"]["left"] >= 1
    # A person looks, and says so by taking the mark away.
    n1.run("rm", "/var/lib/enclave-node/journal-held")
    assert clean(n1)[0]["code"] == 0


def test_a_site_that_insists_on_the_disk_gets_no_roles(n1):
    n1.run("sh", "-c", "echo '[Journal]\nStorage=persistent' > /etc/systemd/journald.conf.d/zzz-site.conf")
    n1.next(pool=AIRLOCK, units=DOWN, fence=FENCE_AIRLOCK)
    answer = n1.order("units", grant=None)
    n1.run("rm", "/etc/systemd/journald.conf.d/zzz-site.conf")
    assert answer["code"] == 10 and "journal" in answer["text"], answer
    assert n1.order("units", grant=None)["code"] == 0
