"""Recipe smoke: a volume that gives back what was written passes, another one fails."""
import importlib.util
import json
import pathlib

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "ops" / "recipes" / "smoke" / "smoke.py"
spec = importlib.util.spec_from_file_location("smoke", SCRIPT)
smoke = importlib.util.module_from_spec(spec)
spec.loader.exec_module(smoke)


def test_equal_content_passes_and_leaves_nothing(tmp_path, capsys):
    assert smoke.main([str(tmp_path), "--size-mb", "2"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert line["equal"] == 1 and line["bytes"] == 2 << 20
    assert list(tmp_path.iterdir()) == []


def test_different_content_fails(tmp_path, capsys, monkeypatch):
    real = smoke.read

    def corrupting(path):
        with open(path, "r+b") as file:
            byte = file.read(1)
            file.seek(0)
            file.write(bytes([byte[0] ^ 1]))
        return real(path)
    monkeypatch.setattr(smoke, "read", corrupting)
    assert smoke.main([str(tmp_path), "--size-mb", "1"]) == smoke.EXIT_DIFFERENT
    assert json.loads(capsys.readouterr().out)["equal"] == 0


def test_unusable_folder_is_reported_without_its_path(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert smoke.main([str(tmp_path / "file")]) == smoke.EXIT_IO
    assert str(tmp_path) not in capsys.readouterr().err


@pytest.mark.parametrize("size", ["0", "-1", "65537", "x"])
def test_bad_size_is_usage(tmp_path, size):
    with pytest.raises(SystemExit) as caught:
        smoke.main([str(tmp_path), "--size-mb", size])
    assert caught.value.code == 2
