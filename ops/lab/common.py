"""What every lab module needs: errors, child processes, paths, package lists."""
import os
import pathlib
import subprocess
import sys

REPO = pathlib.Path(__file__).resolve().parents[2]
BASE = pathlib.Path("/var/lib/enclave-lab")
PACKAGES = REPO / "ops" / "packages"


class LabError(Exception):
    """The lab itself failed (exit status 125), not the command that it was asked to run."""


def say(text):
    print(f"lab: {text}", file=sys.stderr, flush=True)


def call(*words, check=True, stdin=None, env=None, timeout=300, merge=False):
    """Runs a program without a shell and returns its stdout as text; a failure shows what it said."""
    words = [str(w) for w in words]
    try:
        done = subprocess.run(words, input=stdin, text=True, env=env, timeout=timeout,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT if merge else subprocess.PIPE)
    except FileNotFoundError as e:
        raise LabError(f"{words[0]} is not installed: run ops/packages/install test") from e
    except subprocess.TimeoutExpired as e:
        raise LabError(f"{' '.join(words[:6])} took more than {timeout} s") from e
    if check and done.returncode:
        said = (done.stdout if merge else done.stderr or done.stdout).strip()[-2000:]
        raise LabError(f"{' '.join(words[:8])} ended with {done.returncode}: {said}")
    return done.stdout


def read_list(*names):
    """The packages in ops/packages/NAME.list; a list that does not exist is empty."""
    found = set()
    for name in names:
        path = PACKAGES / f"{name}.list"
        if not path.exists():
            continue
        for line in path.read_text().splitlines():
            found.update(line.split("#")[0].split())
    return sorted(found)


def read_text(path, default=""):
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return default


def write_file(path, text, mode=0o644):
    """Writes a file and the folders above it; the mode is set whatever the umask."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode() if isinstance(text, str) else text
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(fd, "wb") as f:
        f.write(data)
    os.chmod(path, mode)
