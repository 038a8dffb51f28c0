"""The key service under systemd on a vault of its own: what outlives a crash, and what nothing outlives."""
import json

import pytest
from conftest import wait_until


@pytest.fixture
def vault(spare_lab):
    return spare_lab("vault")


def key(lab, *words, stdin=None):
    return json.loads(lab.run("vault", "enclavectl", "key", *words, "--json", check=False, stdin=stdin).stdout)


def state(lab):
    return key(lab, "status").get("state")


def main_pid(lab):
    return lab.run("vault", "systemctl", "show", "-p", "MainPID", "--value", "enclave-keyd").stdout.strip()


def unseal(lab):
    assert key(lab, "unseal", stdin=(lab.dir / "keys/root-passphrase").read_text())["state"] == "unsealed"


def crash(lab):
    """SIGKILL, and the service is back under another process."""
    before = main_pid(lab)
    lab.run("vault", "systemctl", "kill", "-s", "SIGKILL", "enclave-keyd")
    wait_until(lambda: main_pid(lab) not in (before, "0") and state(lab), what="enclave-keyd to come back")


def test_the_root_key_outlives_crashes_and_a_restart_but_no_stop_and_no_reboot(vault):
    assert state(vault) == "unsealed"
    for _ in range(2):
        crash(vault)
        assert state(vault) == "unsealed"
    vault.run("vault", "systemctl", "restart", "enclave-keyd")
    assert state(vault) == "unsealed"
    vault.run("vault", "systemctl", "stop", "enclave-keyd")
    assert key(vault, "status")["error"]["code"] == "unavailable"
    vault.run("vault", "systemctl", "start", "enclave-keyd")
    assert state(vault) == "sealed"
    unseal(vault)
    vault.lab("reboot", "vault")
    wait_until(lambda: state(vault), what="enclave-keyd after the reboot")
    assert state(vault) == "sealed"


def test_sealed_on_purpose_it_stays_sealed_over_a_crash(vault):
    assert key(vault, "seal")["state"] == "sealed"
    crash(vault)
    assert state(vault) == "sealed"
    assert key(vault, "unseal", stdin="not the passphrase\n")["error"]["code"] == "denied"
    assert state(vault) == "sealed"
    unseal(vault)


def test_invariant_06_the_service_holds_locked_memory_and_no_rights(vault):
    status = dict(line.split(":", 1) for line in vault.run("vault", "cat", f"/proc/{main_pid(vault)}/status").stdout.splitlines())
    assert int(status["VmLck"].split()[0]) >= 1024
    assert int(status["CapEff"], 16) == 0 and int(status["CapBnd"], 16) == 0
    assert status["Seccomp"].strip() == "2"
    assert status["Uid"].split() == [vault.run("vault", "id", "-u", "enclave-key").stdout.strip()] * 4
