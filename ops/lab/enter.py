"""`lab run`: a command inside a host, with the caller's stdin, stdout and stderr and the command's own exit status."""
import ctypes
import os
import select
import signal
import time

import vm
import vm_channel
from common import LabError, read_text
from hosts import ROOT_ENV

FAILED, TIMED_OUT = 125, 124
# CLONE_NEW* of mount, cgroup, UTS, IPC, PID and network: all that a host has of its own.
NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000
GRACE = 2                                         # seconds between SIGTERM and SIGKILL


def run(lab, name, words, user=None, timeout=None, extra=None):
    """Runs words[0] with the rest as its arguments, no shell between; returns the exit status for our own exit. `extra` joins the environment."""
    init = lab.init(name)
    if not init:
        raise LabError(f"host {name} is down")
    command, env, folder = _as_user(lab, name, user, words) if user else (words, ROOT_ENV, "/")
    terminal = {key: os.environ[key] for key in ("TERM", "COLUMNS", "LINES") if key in os.environ}
    env = {**env, **terminal, **(extra or {})}
    if lab.is_vm(name):
        return vm_channel.run(vm.ports(lab, name), command, env, folder, timeout)
    middle = os.fork()
    if middle == 0:
        try:
            _enter(lab, name, init)
            child = os.fork()                     # only a child is a member of the PID namespace
            if child == 0:
                _execute(command, env, folder)
            _mirror(child)
        except BaseException as e:
            os.write(2, f"lab: {e}\n".encode())
        finally:
            os._exit(FAILED)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, lambda got, _: _forward(middle, got))
    return _wait(middle, timeout)


def _as_user(lab, name, user, words):
    """The user's login environment, from the host's own name service; setpriv gives up root inside the host."""
    entry = lab.run(name, "getent", "passwd", user, check=False).strip().split(":")
    if len(entry) != 7:
        raise LabError(f"{name} has no user {user}")
    _, _, uid, gid, _, home, shell = entry
    env = {"HOME": home, "USER": user, "LOGNAME": user, "SHELL": shell, "LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin"}
    return ["/usr/bin/setpriv", f"--reuid={uid}", f"--regid={gid}", "--init-groups", "--", *words], env, home


def _enter(lab, name, init):
    for group in lab.cgroups(name):
        (group / "cgroup.procs").write_text("0")
    fd = os.pidfd_open(init)
    if ctypes.CDLL(None, use_errno=True).setns(fd, NAMESPACES):
        raise LabError(f"cannot enter {name}: {os.strerror(ctypes.get_errno())}")
    os.close(fd)


def _execute(words, env, folder):
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and children would inherit that
        signal.signal(number, signal.SIG_DFL)
    try:
        os.chdir(folder)
    except OSError:
        os.chdir("/")
    try:
        os.execvpe(words[0], words, env)
    except OSError as e:
        os.write(2, f"lab: {words[0]}: {e.strerror}\n".encode())
        os._exit(127 if isinstance(e, FileNotFoundError) else 126)


def _forward(pid, number):
    for target in _descendants(pid):
        _kill(target, number)


def _kill(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _status(status):
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _mirror(child):
    """Waits for the command and ends as it did. Signals reach the command from the process above."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _, status = os.waitpid(child, 0)
    os._exit(_status(status))


def _descendants(pid):
    found = []
    for child in read_text(f"/proc/{pid}/task/{pid}/children").split():
        found += [int(child), *_descendants(int(child))]
    return found


def _wait(middle, timeout):
    """The middle process's status, or 124 after everything below it has been ended."""
    end = None if timeout is None else time.monotonic() + timeout
    fd = os.pidfd_open(middle)
    if _ended(fd, end):
        return _status(os.waitpid(middle, 0)[1])
    _forward(middle, signal.SIGTERM)
    if not _ended(fd, time.monotonic() + GRACE):
        for target in [*_descendants(middle), middle]:
            _kill(target, signal.SIGKILL)
    os.waitpid(middle, 0)
    return TIMED_OUT


def _ended(fd, end):
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if end is None else max(0, (end - time.monotonic()) * 1000)))
