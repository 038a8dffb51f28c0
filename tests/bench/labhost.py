"""The lab as the benches see it: the one at $LAB_DIR, or the default one, which is brought up if it is not."""
import json
import os
import pathlib
import subprocess
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
LAB = REPO / "ops/lab/lab"


def lab(*words, check=True, timeout=300):
    """Runs a subcommand of `lab` and returns its standard output."""
    done = subprocess.run([str(LAB), *map(str, words)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout,
                          stdin=subprocess.DEVNULL)
    if check and done.returncode:
        raise RuntimeError(f"lab {' '.join(map(str, words))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def ready():
    """Brings the lab up; nothing happens when it is."""
    lab("up", timeout=900)


def run(host, *command, user=None, check=True, timeout=120):
    return lab("run", host, "--timeout", timeout, *(["--user", user] if user else []), "--", *command, check=check, timeout=timeout + 30)


def ctl(*command, user="admin1", timeout=120, check=True):
    """enclavectl --json on the controller, decoded."""
    text = run("ctl", "enclavectl", "--json", *command, user=user, timeout=timeout, check=check)
    return json.loads(text) if text else None


def status():
    return json.loads(lab("status", "--json"))


def wait_until(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"waited {seconds} s in vain for {what}")
        time.sleep(0.02)
