"""Recipe cxr-mllm: data, reader, training, stopping and going on, and what it may say.

No root, no network beyond loopback. Training tests run the real programs as a job would.
"""
import hashlib
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import time

import numpy as np
import pytest

RECIPE = pathlib.Path(__file__).resolve().parents[3] / "ops" / "recipes" / "cxr-mllm"
sys.path.insert(0, str(RECIPE))

# pylint: disable=wrong-import-position
import dicom                                            # noqa: E402
import generate                                         # noqa: E402
from refusal import SENTENCES, Reason, Refused          # noqa: E402

PYTHON = "/usr/bin/python3"
CANARY = "ZZCANARY-unit-7f3a"
DEADLINE_S = 120
LOG_LINE = re.compile(r'\{"ev": "[a-z]+"(, "[a-z_]+": -?\d+(\.\d+)?(e-?\d+)?)*\}\Z')


# ---- helpers ------------------------------------------------------------------------------------

def dataset(folder, studies=40, spoil=(), seed=5, canary=CANARY):
    generate.make_dataset(str(folder), studies, 64, seed, canary, spoil)
    return folder


def clean_environment(**extra):
    keep = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    return {**keep, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1", **extra}


def start(folder, out, *options, **environment):
    command = [PYTHON, str(RECIPE / "train.py"), "--data", str(folder), "--out", str(out),
               *map(str, options)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=clean_environment(**environment))


def finish(process):
    """Return (exit status, events, stderr, whole output)."""
    try:
        out, err = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    return process.returncode, [json.loads(line) for line in out.splitlines()], err, out + err


def run(folder, out, *options, **environment):
    return finish(start(folder, out, *options, **environment))


def start_two(folder, out, *options):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return [start(folder, out, *options, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK="0",
                  MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)) for rank in range(2)]


def of(events, kind):
    return [event for event in events if event["ev"] == kind]


def losses(events):
    return {event["step"]: event["loss"] for event in of(events, "step")}


def refusal_of(data):
    with pytest.raises(Refused) as caught:
        dicom.decode(data)
    return caught.value.reason


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("good") / "data", studies=512)


@pytest.fixture(scope="module")
def trained(good, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained")
    return (*run(good, out), out)


@pytest.fixture
def one_file():
    return dicom.encode(*generate.make_study(3, 64, np.random.default_rng(1), CANARY)[:2])


# ---- generator ----------------------------------------------------------------------------------

def test_manifest_names_every_file_with_its_hash(tmp_path):
    folder = dataset(tmp_path / "d", studies=3)
    lines = (folder / "manifest.sha256").read_text().splitlines()
    listed = dict(reversed(line.split("  ")) for line in lines)
    assert sorted(listed) == sorted(p.name for p in folder.iterdir() if p.suffix != ".sha256")
    for name, digest in listed.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_canary_stands_in_every_image_and_report(tmp_path):
    folder = dataset(tmp_path / "d", studies=3)
    for path in folder.glob("[0-9]*"):
        assert path.read_bytes().count(CANARY.encode()) == 2, path.name
    assert CANARY not in (folder / "manifest.sha256").read_text()


def test_same_seed_gives_same_bytes_and_no_seed_gives_fresh_ones(tmp_path):
    manifests = []
    for name, options in (("a", ["--seed", "9"]), ("b", ["--seed", "9"]), ("c", []), ("d", [])):
        generate.main([str(tmp_path / name), "--canary", CANARY, "--studies", "3", *options])
        manifests.append((tmp_path / name / "manifest.sha256").read_text())
    assert manifests[0] == manifests[1]
    assert len(set(manifests[1:])) == 3


def test_generator_prints_no_canary_and_takes_it_from_standard_input(tmp_path):
    done = subprocess.run([PYTHON, str(RECIPE / "generate.py"), str(tmp_path / "d"), "--canary",
                           "-", "--studies", "2"], input=CANARY + "\n", text=True, check=True,
                          capture_output=True, env=clean_environment())
    assert CANARY not in done.stdout + done.stderr
    assert json.loads(done.stdout)["files"] == 4
    assert CANARY in (tmp_path / "d" / "000001.txt").read_text()


@pytest.mark.parametrize("options", [
    ["--canary", "short"], ["--canary", "has a space in it"], ["--canary", "x" * 49],
    ["--canary", CANARY, "--studies", "0"], ["--canary", CANARY, "--size", "5"],
    ["--canary", CANARY, "--spoil", "burnt"], ["--canary", CANARY, "--spoil", "zero:-1"],
    ["--canary", CANARY, "--studies", "2", "--spoil", "zero:2"], []])
def test_bad_generator_options_write_nothing(tmp_path, options):
    with pytest.raises(SystemExit) as caught:
        generate.main([str(tmp_path / "d"), *options])
    assert caught.value.code == 2
    assert not (tmp_path / "d").exists()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path):
    (tmp_path / "precious").write_text("x")
    with pytest.raises(SystemExit):
        dataset(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["precious"]


def test_report_says_what_the_image_shows():
    rng = np.random.default_rng(0)
    case = {"finding": "effusion", "side": "left", "zone": "lower", "heart": "enlarged"}
    clear = generate.draw_image({**case, "finding": "clear"}, 64, rng).astype(int)
    more = generate.draw_image(case, 64, rng).astype(int) - clear
    assert more[48:52, 38:44].mean() > 800          # left lung's base: to the right in the picture
    assert abs(more[48:52, 12:25].mean()) < 200
    assert "small left pleural effusion" in generate.write_report(case, CANARY, 0)


# ---- reader -------------------------------------------------------------------------------------

def test_reader_gives_back_what_was_written():
    samples, identity, _ = generate.make_study(0, 64, np.random.default_rng(1), CANARY)
    image, inverted = dicom.decode(dicom.encode(samples, identity))
    assert not inverted
    assert np.array_equal(np.rint(image * 4095).astype(int), samples)


def test_monochrome1_is_turned_round():
    samples, identity, _ = generate.make_study(0, 64, np.random.default_rng(1), CANARY)
    image, inverted = dicom.decode(generate.SPOILERS["monochrome1"](samples, identity))
    assert inverted
    assert np.array_equal(image, dicom.decode(dicom.encode(samples, identity))[0])


@pytest.mark.parametrize("kind, reason", [("truncated", Reason.TRUNCATED), ("zero", Reason.EMPTY),
                                          ("compressed", Reason.COMPRESSED)])
def test_spoilt_file_is_refused_with_its_reason(kind, reason):
    samples, identity, _ = generate.make_study(0, 64, np.random.default_rng(1), CANARY)
    assert refusal_of(generate.SPOILERS[kind](samples, identity)) == reason


def test_every_cut_of_a_file_is_refused(one_file):
    pixels = len(one_file) - 2 * 64 * 64
    for length in [*range(0, pixels + 4), len(one_file) - 1]:
        assert refusal_of(one_file[:length]) in (Reason.EMPTY, Reason.TRUNCATED, Reason.NO_PIXELS)


def test_any_flipped_byte_is_read_or_refused_but_never_an_accident(one_file):
    for at in range(128, len(one_file) - 2 * 64 * 64):
        damaged = bytearray(one_file)
        damaged[at] ^= 0xFF
        try:
            dicom.decode(bytes(damaged))
        except Refused:
            pass


def replaced(data, tag, vr, old, new):
    was = struct.pack("<HH2sHH", *tag, vr, 2, old)
    assert data.count(was) == 1
    return data.replace(was, struct.pack("<HH2sHH", *tag, vr, 2, new))


@pytest.mark.parametrize("tag, old, new, reason", [
    (dicom.SAMPLES, 1, 3, Reason.PIXEL_LAYOUT), (dicom.BITS_ALLOCATED, 16, 8, Reason.PIXEL_LAYOUT),
    (dicom.REPRESENTATION, 0, 1, Reason.PIXEL_LAYOUT),
    (dicom.HIGH_BIT, 11, 15, Reason.PIXEL_LAYOUT),
    (dicom.ROWS, 64, 63, Reason.SIZE), (dicom.ROWS, 64, 0, Reason.SIZE),
    (dicom.COLUMNS, 64, 65535, Reason.SIZE)])
def test_wrong_pixel_description_is_refused(one_file, tag, old, new, reason):
    assert refusal_of(replaced(one_file, tag, b"US", old, new)) == reason


def test_other_syntaxes_colour_and_foreign_files_are_refused(one_file):
    explicit = b"1.2.840.10008.1.2.1\0"
    assert refusal_of(one_file.replace(explicit, b"1.2.840.10008.1.2.2\0")) \
        == Reason.TRANSFER_SYNTAX
    assert refusal_of(one_file.replace(b"MONOCHROME2 ", b"RGB         ")) == Reason.NOT_GREYSCALE
    assert refusal_of(one_file.replace(b"DICM", b"GIFM")) == Reason.NOT_DICOM
    undefined = struct.pack("<HH2sHI", *dicom.PIXELS, b"OW", 0, 2 * 64 * 64)
    assert refusal_of(one_file.replace(undefined, undefined[:8] + b"\xff" * 4)) \
        == Reason.COMPRESSED


def test_refusals_have_a_fixed_sentence_each():
    assert set(SENTENCES) == set(Reason)
    assert str(Refused(Reason.EMPTY, 7)) == "study 7: the file is empty"


# ---- training -----------------------------------------------------------------------------------

def test_training_falls_and_most_held_out_reports_match(trained):
    status, events, err, _, _ = trained
    assert status == 0, err
    curve = losses(events)
    assert curve[1] > 3.5 and curve[200] < 0.15
    done, = of(events, "done")
    assert done["exact_match"] > 0.5
    assert of(events, "epoch")[0]["steps"] == 28


def test_output_is_numbers_only_and_neither_it_nor_the_checkpoint_holds_the_canary(trained):
    _, _, err, whole, out = trained
    assert err == ""
    assert all(LOG_LINE.match(line) for line in whole.splitlines())
    assert [p.name for p in out.iterdir()] == ["last.pt"]
    for blob in (whole.encode(), (out / "last.pt").read_bytes()):
        for secret in (CANARY.encode(), b"CANARY", b"findings", b"silhouette", b"000001"):
            assert secret not in blob.replace(b"0000010", b"")


def test_noise_instead_of_images_fails_the_check(good, tmp_path):
    status, events, _, _ = run(good, tmp_path / "o", "--noise", "--min-match", 0.5)
    assert status == 1
    assert of(events, "done")[0]["exact_match"] < 0.3
    assert losses(events)[200] < 1.0                # the words are learnt, the images cannot be


@pytest.mark.parametrize("kind, reason", [("truncated", 4), ("compressed", 5), ("zero", 2)])
def test_trainer_refuses_a_spoilt_study_by_its_index(tmp_path, kind, reason):
    folder = dataset(tmp_path / "d", spoil=[(kind, 17)])
    status, events, err, whole = run(folder, tmp_path / "o", "--holdout", 8)
    assert status == 65
    assert of(events, "refused") == [{"ev": "refused", "rank": 0, "reason": reason, "index": 17}]
    assert err == f"cxr-mllm: study 17: {SENTENCES[Reason(reason)]}\n"
    assert "000017" not in whole and "CANARY" not in whole
    assert not (tmp_path / "o" / "last.pt").exists()


def test_trainer_reads_monochrome1_and_counts_it(tmp_path):
    folder = dataset(tmp_path / "d", spoil=[("monochrome1", 3)])
    status, events, err, _ = run(folder, tmp_path / "o", "--holdout", 8, "--steps", 1)
    assert status == 0, err
    assert of(events, "data")[0]["inverted"] == 1


@pytest.mark.parametrize("name, content, reason", [
    ("000002.txt", None, Reason.NO_REPORT), ("000002.dcm", None, Reason.NO_IMAGE),
    ("000002.txt", b"", Reason.EMPTY), ("000002.txt", b"\xff\xfe" * 9, Reason.NO_FINDINGS),
    ("000002.txt", b"patient : " + CANARY.encode(), Reason.NO_FINDINGS)])
def test_trainer_refuses_a_bad_pair(tmp_path, name, content, reason):
    folder = dataset(tmp_path / "d")
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    status, _, err, whole = run(folder, tmp_path / "o", "--holdout", 8)
    assert (status, err) == (65, f"cxr-mllm: study 2: {SENTENCES[reason]}\n")
    assert "CANARY" not in whole


def test_a_name_inside_the_findings_becomes_an_unknown_word(tmp_path):
    folder = dataset(tmp_path / "d")
    (folder / "000002.txt").write_text(f"findings : {CANARY} is clear .\n")
    status, events, _, whole = run(folder, tmp_path / "o", "--holdout", 8, "--steps", 1)
    assert status == 0 and of(events, "data")[0]["unknown_words"] == 1
    assert CANARY not in whole
    assert CANARY.encode() not in (tmp_path / "o" / "last.pt").read_bytes()


def test_missing_folder_too_few_studies_and_bad_launch_say_so_without_a_path(tmp_path):
    folder = dataset(tmp_path / "d", studies=4)
    for data, extra, text in ((tmp_path / "absent", {}, "cannot be read"),
                              (folder, {}, "too few"),
                              (folder, {"RANK": "2", "WORLD_SIZE": "2"}, "disagree"),
                              (folder, {"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR")):
        status, events, err, whole = run(data, tmp_path / "o", **extra)
        assert (status, events) == (64, []) and text in err
        assert str(tmp_path) not in whole


# ---- two ranks, stopping and going on -----------------------------------------------------------

def wait_for_step(process, step):
    """Read events until `step` is reported; return those read."""
    events, limit = [], time.monotonic() + DEADLINE_S
    while time.monotonic() < limit:
        line = process.stdout.readline()
        assert line, "the trainer ended early"
        events.append(json.loads(line))
        if events[-1].get("step", 0) >= step:
            return events
    raise AssertionError("no progress")


def test_usr2_to_one_rank_stops_both_with_75_and_resuming_keeps_the_curve(tmp_path):
    folder = dataset(tmp_path / "d", studies=80)
    options = ("--holdout", 16, "--log-every", 1, "--steps", 60)
    whole = [finish(p) for p in start_two(folder, tmp_path / "whole", *options)]
    assert [r[0] for r in whole] == [0, 0], whole

    ranks = start_two(folder, tmp_path / "cut", *options)
    before = wait_for_step(ranks[0], 10)
    ranks[1].send_signal(signal.SIGUSR2)
    cut = [finish(p) for p in ranks]
    assert [r[0] for r in cut] == [75, 75], cut
    stopped = of(cut[0][1], "preempt")[0]["step"]
    assert 10 <= stopped < 60

    (tmp_path / "cut" / "last.pt.tmp").write_bytes(b"left by a killed save")
    resumed = [finish(p) for p in start_two(folder, tmp_path / "cut", *options)]
    assert [r[0] for r in resumed] == [0, 0], resumed
    assert of(resumed[0][1], "resume") == [{"ev": "resume", "step": stopped}]
    assert not (tmp_path / "cut" / "last.pt.tmp").exists()

    wanted = losses(whole[0][1])
    found = {**losses(before), **losses(cut[0][1]), **losses(resumed[0][1])}
    assert sorted(found) == sorted(wanted)
    assert all(abs(found[step] - wanted[step]) < 1e-4 for step in wanted)


def test_a_bad_study_on_one_rank_stops_both(tmp_path):
    folder = dataset(tmp_path / "d", studies=80, spoil=[("zero", 7)])      # rank 1's shard
    first, second = [finish(p) for p in start_two(folder, tmp_path / "o", "--holdout", 16)]
    assert (first[0], second[0]) == (64, 65)
    assert "another rank" in first[2] and "study 7" in second[2]


def test_damaged_or_foreign_checkpoint_is_refused_and_kept(tmp_path):
    folder = dataset(tmp_path / "d")
    out = tmp_path / "o"
    options = ("--holdout", 8, "--steps", 2)
    assert run(folder, out, *options)[0] == 0
    status, events, err, _ = run(folder, out, *options)
    assert (status, err) == (0, "") and of(events, "resume")[0]["step"] == 2
    status, _, err, _ = run(folder, out, *options, "--patch", 32)
    assert status == 65 and "another model shape" in err
    content = (out / "last.pt").read_bytes()
    (out / "last.pt").write_bytes(content[:len(content) // 2])
    status, _, err, _ = run(folder, out, *options)
    assert status == 65 and "damaged" in err
    assert (out / "last.pt").stat().st_size == len(content) // 2


# ---- what the recipe declares -------------------------------------------------------------------

def declared_settings():
    lines = [[part.strip() for part in line.split("=", 1)]
             for line in (RECIPE / "recipe.conf").read_text().splitlines()
             if line and not line.startswith("#")]
    assert len(lines) == len({key for key, _ in lines})
    return dict(lines)


def estimate(batch, fused):
    """The formula of README.md, "Memory", for size base at 224 pixels in bf16; GB."""
    conf = {key[len("estimate."):]: value for key, value in declared_settings().items()
            if key.startswith("estimate.")}
    size = {key[len("base."):]: int(value) for key, value in conf.items()
            if key.startswith("base.")}
    linear, square, cross = (int(conf["act." + key]) for key in ("linear", "square", "cross"))
    square = 0 if fused else square * size["heads"]
    image, text, width = (size["image"] // size["patch"]) ** 2, size["length"], size["width"]
    encoder = linear * image * width + square * image ** 2
    decoder = ((linear + cross) * text * width + 4 * image * width
               + square * (text ** 2 + text * image))
    study = (size["encoder_layers"] * encoder + size["decoder_layers"] * decoder
             + text * size["vocabulary"] * int(conf["logit_bytes"]))
    return (int(conf["bytes_per_parameter"]) * size["parameters"] + batch * study) / 1e9


@pytest.mark.parametrize("batch, fused, measured", [
    (32, True, 10.841), (128, True, 32.458), (128, False, 41.207), (256, True, 61.517)])
def test_memory_estimate_is_within_five_percent_of_what_an_h200_took(batch, fused, measured):
    assert estimate(batch, fused) == pytest.approx(measured, rel=0.05)


def test_declared_shapes_are_those_of_the_model():
    shapes = subprocess.run(
        [PYTHON, "-c", "import json, model; print(json.dumps({k: [s._asdict(), sum(p.numel() for p "
         "in model.ReportWriter(s).parameters())] for k, s in model.SHAPES.items()}))"],
        cwd=RECIPE, env=clean_environment(), check=True, capture_output=True, text=True)
    conf = declared_settings()
    renamed = {"encoder": "encoder_layers", "decoder": "decoder_layers"}
    for size, (shape, parameters) in json.loads(shapes.stdout).items():
        assert int(conf[f"estimate.{size}.parameters"]) == parameters
        for key, value in shape.items():
            if key != "hidden":
                assert int(conf[f"estimate.{size}.{renamed.get(key, key)}"]) == value


def test_every_emitted_number_with_a_metric_name_is_declared(trained):
    declared = {key[len("metric."):] for key in declared_settings() if key.startswith("metric.")}
    emitted = {name for event in trained[1] if event["ev"] in ("step", "epoch", "done")
               for name in event if name != "ev"}
    assert emitted <= declared


# ---- the batch script ---------------------------------------------------------------------------

def run_job(folder, srun, *arguments, **environment):
    """Start job.sh with a stand-in for srun and a scontrol that writes down what it was told."""
    folder.mkdir(exist_ok=True)
    for name, body in (("srun", srun), ("scontrol", f'echo "$@" >>{folder}/scontrol.log')):
        (folder / name).write_text("#!/bin/bash\n" + body + "\n")
        (folder / name).chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    return subprocess.Popen(["/bin/bash", str(RECIPE / "job.sh"), *arguments], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=clean_environment(**{"PATH": path, "USER": "res1",
                                                     "SLURM_JOB_ID": "42", **environment}))


def requeued(folder):
    log = folder / "scontrol.log"
    return log.read_text() if log.exists() else ""


def test_job_script_asks_for_the_protected_partition_and_passes_its_arguments(tmp_path):
    assert "#SBATCH --partition=protected" in (RECIPE / "job.sh").read_text()
    job = run_job(tmp_path, 'echo "$@"', "/d", "/o", "--steps", "5")
    out, _ = job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 0
    assert out.split()[-7:] == ["/usr/share/enclave/recipes/cxr-mllm/train.py", "--data", "/d",
                                "--out", "/o", "--steps", "5"]
    out, _ = run_job(tmp_path, 'echo "$@"').communicate(timeout=DEADLINE_S)
    assert out.split()[-4:] == ["--data", "/enclave/data/cxr", "--out",
                                "/enclave/home/res1/cxr-mllm"]


@pytest.mark.parametrize("status, restarts, told", [
    (75, "0", "requeue 42\n"), (75, "10", ""), (0, "0", ""), (65, "0", "")])
def test_job_queues_itself_again_only_after_a_notice_and_not_for_ever(tmp_path, status, restarts,
                                                                      told):
    job = run_job(tmp_path, f"exit {status}", SLURM_RESTART_COUNT=restarts)
    job.communicate(timeout=DEADLINE_S)
    assert job.returncode == status
    assert requeued(tmp_path) == told


@pytest.mark.parametrize("number, told", [(signal.SIGUSR2, "requeue 42\n"), (signal.SIGTERM, "")])
def test_job_passes_signals_on_and_a_cancelled_job_stays_cancelled(tmp_path, number, told):
    job = run_job(tmp_path, "trap 'exit 75' USR2 TERM; echo ready; while :; do sleep 0.05; done")
    assert job.stdout.readline() == "ready\n"
    job.send_signal(number)
    job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 75
    assert requeued(tmp_path) == told
