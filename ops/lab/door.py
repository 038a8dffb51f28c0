"""`lab ssh`: through an enclave's door as its user would go, from outside, with key and second factor."""
import json
import time

import enter
import provision
from common import LabError, read_text, write_file

ASKPASS = "/usr/local/bin/lab-askpass"                # prints $LAB_ANSWER; provisioned on `ext`
OPTIONS = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=10",
           "-o", "NumberOfPasswordPrompts=1"]


def connect(lab, args):
    """Runs ssh on the origin host; returns its exit status."""
    address, port = _login(lab, args.enclave)
    # A name that is no account of the lab knocks with the key of somebody else.
    caller = args.user if args.user in provision.ACCOUNTS else "outsider1"
    words = ["ssh", *OPTIONS, "-l", args.user, "-p", str(port)]
    env = {}
    if args.factor == "none":
        words += ["-o", "PreferredAuthentications=publickey"]
    else:
        words += ["-o", "PreferredAuthentications=publickey,keyboard-interactive"]
        answer = _fresh_code(lab, caller) if args.factor == "good" else provision.otp(lab, caller, time.time() + 86400)
        env = {"SSH_ASKPASS": ASKPASS, "SSH_ASKPASS_REQUIRE": "force", "LAB_ANSWER": answer}
    return enter.run(lab, args.origin, [*words, address, *([" ".join(map(_quoted, args.command))] if args.command else [])], caller, extra=env)


def _quoted(word):
    """sshd gives the command to the user's shell as one string; each of our words must stay one."""
    return "'" + word.replace("'", "'\\''") + "'"


def _login(lab, enclave):
    """Where the enclave's login node answers, as an admin is told."""
    out = lab.run("ctl", "setpriv", "--reuid=admin1", "--regid=admin1", "--init-groups", "--", "enclavectl", "show", enclave, "--json", check=False)
    try:
        login = json.loads(out)["login"]
        return login["address"], login.get("port") or 22
    except (ValueError, KeyError, TypeError) as e:
        raise LabError(f"no login node of enclave {enclave}: {out.strip()[:300] or 'no answer'}") from e


def _fresh_code(lab, user):
    """A code that was not used before: a door must refuse a second use. The codes beside the present one are still accepted by a server with a window of one."""
    file = lab.dir / "otp" / f"{user}.used"
    used = {int(w) for w in read_text(file).split()}
    end = time.monotonic() + 65
    while time.monotonic() < end:
        now = int(time.time()) // 30
        for step in (now, now + 1):
            if step not in used:
                write_file(file, " ".join(str(s) for s in sorted({step} | {u for u in used if u > now - 10})), 0o600)
                return provision.otp(lab, user, step * 30)
        time.sleep(0.5)
    raise LabError(f"no unused one-time password for {user}")
