"""Fixtures of the integration tests: a lab (ops/lab) of real hosts.

`lab` is shared by all tests of a run: the one at $LAB_DIR when that is up, else one that is brought up now and taken down at the end.
A test leaves it as it found it. `spare_lab` makes small labs of a test's own.
"""
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time
import uuid

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
LAB = REPO / "ops/lab/lab"
BASE = pathlib.Path("/var/lib/enclave-lab")


class Failed(AssertionError):
    """A command in the lab ended with another status than expected; shows all it said."""


class Lab:
    """The command `lab` for one lab directory."""

    def __init__(self, directory):
        self.dir = pathlib.Path(directory)

    def lab(self, *words, check=True, timeout=180, stdin=None, env=None):
        """Runs a subcommand of `lab`; returns subprocess.CompletedProcess with text output."""
        done = subprocess.run([str(LAB), *map(str, words)], input=stdin, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout,
                              env={**os.environ, "LAB_DIR": str(self.dir), **(env or {})}, stdin=subprocess.DEVNULL if stdin is None else None)
        if check and done.returncode:
            raise Failed(f"lab {' '.join(map(str, words))}\nexit status {done.returncode}\nstdout: {done.stdout}\nstderr: {done.stderr}")
        return done

    def run(self, host, *command, user=None, timeout=60, check=True, stdin=None):
        """Runs a command inside a host, as root or as a user; `timeout` is the lab's, which then answers 124."""
        words = ["run", host, "--timeout", timeout, *(["--user", user] if user else []), "--", *command]
        return self.lab(*words, check=check, timeout=timeout + 30, stdin=stdin)

    def json(self, host, *command, user=None, timeout=60, check=True):
        """As run(), for a command whose stdout is one JSON document and whose stderr must be empty."""
        done = self.run(host, *command, user=user, timeout=timeout, check=check)
        assert done.stderr == "", f"stderr beside --json: {done.stderr}"
        assert done.stdout.endswith("\n"), "a JSON document ends with a newline"
        return json.loads(done.stdout)

    def status(self):
        return json.loads(self.lab("status", "--json", check=False).stdout)

    def paths(self):
        return json.loads(self.lab("paths", "--json").stdout)

    def is_up(self):
        return (self.dir / "lab.json").exists() and self.status()["ready"]


def wait_until(condition, seconds=30, what="condition", every=0.1):
    """Polls until condition() is true and returns its value; fails after the deadline. Instead of a sleep."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"waited {seconds} s in vain for {what}"
        time.sleep(every)


def bring_up(shared):
    """One file that leaves the lab broken fails by itself; those after it get a new lab, and the reason is printed."""
    done = shared.lab("up", check=False, timeout=900)
    if done.returncode:
        print(f"the lab was left in a state that `lab up` cannot mend; a new one is made\n{done.stderr}", file=sys.stderr)
        shared.lab("down")
        shared.lab("up", timeout=900)


@pytest.fixture(scope="session")
def lab():
    shared = Lab(os.environ.get("LAB_DIR") or BASE / f"pytest-{os.getpid()}")
    was_up = shared.is_up()
    if not was_up:
        bring_up(shared)
    yield shared
    if not shared.is_up():
        shared.lab("up", timeout=900)   # a file that leaves the lab broken fails here, with the lab's reasons, and not the next one
    if not was_up and not os.environ.get("LAB_KEEP"):
        shared.lab("down")


@contextlib.contextmanager
def own_lab(what, *words):
    """A lab of a file's own, gone however its tests end; `words` are those of `lab up`."""
    small = Lab(BASE / f"{what}-{uuid.uuid4().hex[:8]}")
    try:
        small.lab("up", *words, timeout=900)
        yield small
    finally:
        small.lab("down")


@pytest.fixture(scope="module")
def machine(request):
    """A lab of a file's own in which n1 is a virtual machine; the file's HOSTS are up beside it."""
    with own_lab("vm", "--nodes", "1", "--vms", "n1", "--only", ",".join([*getattr(request.module, "HOSTS", ()), "n1"])) as small:
        yield small


@pytest.fixture
def spare_lab():
    """spare_lab("n1", "n2"): a small lab of its own with only these hosts, gone after the test."""
    made = []

    def make(*hosts):
        small = Lab(BASE / f"spare-{uuid.uuid4().hex[:8]}")
        made.append(small)
        small.lab("up", "--only", ",".join(hosts), timeout=900)
        return small

    yield make
    for small in made:
        small.lab("down")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Lets fixtures see, when they end, whether their test failed."""
    outcome = yield
    if call.when == "call":
        item.failed_call = outcome.get_result().failed
