"""The luks driver on a kernel with dm-crypt, in a virtual machine: the table of cases is tools/luks_kernel.c."""
import base64
import os
import pathlib
import re
import subprocess

import pytest

BUILD = pathlib.Path(os.environ["ENCLAVE_BUILD"])
PROGRAM = BUILD / "tests/integration/tools/luks_kernel"
FOLDERS = "/t/disk /t/shared /t/run /t/points"
PREPARE = f"mkdir -p /t; mount -t tmpfs -o size=400m,mode=755 t /t; mkdir -p {FOLDERS}; modprobe -a loop xts dm-crypt"


def carry(machine, source, target):
    """A program of this machine, which is no part of what a lab host has."""
    text = base64.b64encode(pathlib.Path(source).read_bytes()).decode()
    machine.run("n1", "sh", "-ec", f"base64 -d > {target}; chmod 755 {target}", stdin=text)


@pytest.mark.vm
def test_luks_volumes_open_check_refuse_and_leave_nothing(machine):
    cmocka = re.search(r"libcmocka\S* => (\S+)", subprocess.run(["ldd", PROGRAM], text=True, stdout=subprocess.PIPE, check=True).stdout)[1]
    machine.run("n1", "sh", "-ec", PREPARE)
    carry(machine, PROGRAM, "/t/luks_kernel")
    carry(machine, cmocka, f"/t/{pathlib.Path(cmocka).name}")
    done = machine.run("n1", "env", "LD_LIBRARY_PATH=/t", "/t/luks_kernel", timeout=900, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0 and "[  PASSED  ] 9 test(s)" in said, said[-6000:]
