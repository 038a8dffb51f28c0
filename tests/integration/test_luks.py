"""The luks driver on a kernel with dm-crypt, in a virtual machine: the table of cases is tools/luks_kernel.c."""
import os
import pathlib

import pytest

import machine

BUILD = pathlib.Path(os.environ["ENCLAVE_BUILD"])
PROGRAM = BUILD / "tests/integration/tools/luks_kernel"


@pytest.mark.vm
def test_luks_volumes_open_check_refuse_and_leave_nothing(tmp_path):
    status, said = machine.run(tmp_path, PROGRAM)
    assert status == 0 and "[  PASSED  ]" in said, said[-6000:]
