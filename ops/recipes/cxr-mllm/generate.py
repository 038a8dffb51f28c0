#!/usr/bin/python3
"""Make a synthetic dataset: chest images as DICOM files, each with a report. numpy only.

    generate.py OUT --canary STRING [--studies 512] [--size 64] [--seed S] [--spoil KIND[:INDEX]]...

OUT receives NNNNNN.dcm and NNNNNN.txt and `manifest.sha256` (the format of sha256sum). Nothing in
it stems from a patient. The canary stands where a name and a number would stand (PatientName,
PatientID and the report's header): found anywhere outside the enclave's volumes, it proves a leak.
Without --seed each run draws a fresh one. A canary of "-" is read from standard input, so that it
stands in no process list. Prints one JSON line of numbers.
"""
import argparse
import hashlib
import json
import os
import re
import secrets
import sys

import numpy as np

import dicom

CANARY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{7,47}\Z")
JPEG_BASELINE = "1.2.840.10008.1.2.4.50"
FULL_SCALE = 4095                        # 12 bits
NOISE = 0.02

LUNGS_X = {"right": 0.30, "left": 0.70}  # as a radiologist looks at it: the right lung on the left
ZONES_Y = {"upper": 0.33, "lower": 0.62}
FINDINGS = {
    "clear": "the lungs are clear without consolidation or effusion .",
    "opacity": "there is a hazy opacity in the {side} {zone} lung .",
    "effusion": "there is a small {side} pleural effusion .",
    "nodule": "a round nodule projects over the {side} {zone} lung .",
}
HEARTS = {"normal in size": 0.13, "enlarged": 0.22}   # half width


# ---- one study ----------------------------------------------------------------------------------

def draw_case(rng):
    """Choose what is to be seen. The image shows exactly this and the report says exactly this."""
    return {"finding": str(rng.choice(list(FINDINGS))), "side": str(rng.choice(list(LUNGS_X))),
            "zone": str(rng.choice(list(ZONES_Y))), "heart": str(rng.choice(list(HEARTS)))}


def _ellipse(x, y, centre, radii):
    return ((x - centre[0]) / radii[0]) ** 2 + ((y - centre[1]) / radii[1]) ** 2


def draw_image(case, size, rng):
    """Return size x size samples of 12 bits: lungs dark, heart and findings bright."""
    y, x = np.mgrid[0:size, 0:size] / size
    image = 0.75 - 0.1 * y
    for centre in LUNGS_X.values():
        image -= 0.5 * (_ellipse(x, y, (centre, 0.48), (0.17, 0.33)) < 1)
    image += 0.35 * (_ellipse(x, y, (0.55, 0.66), (HEARTS[case["heart"]], 0.17)) < 1)
    image += _draw_finding(case, x, y)
    image += rng.normal(0, NOISE, image.shape)
    return np.clip(image * FULL_SCALE, 0, FULL_SCALE).astype(np.uint16)


def _draw_finding(case, x, y):
    centre = LUNGS_X[case["side"]], ZONES_Y[case["zone"]]
    if case["finding"] == "opacity":
        return 0.35 * np.exp(-_ellipse(x, y, centre, (0.07, 0.09)))
    if case["finding"] == "effusion":
        return 0.40 * ((y > 0.70) & (y < 0.82) & (abs(x - centre[0]) < 0.17))
    if case["finding"] == "nodule":
        return 0.50 * (_ellipse(x, y, centre, (0.035, 0.035)) < 1)
    return 0


def write_report(case, canary, index):
    """Return the report: a header a trainer must strip, then the findings on one line."""
    findings = FINDINGS[case["finding"]].format(**case)
    return (f"patient : {canary}\n"
            f"number : {canary}-{index:06d}\n"
            f"findings : {findings} the cardiac silhouette is {case['heart']} .\n")


def _uid(rng):
    return "2.25." + str(int.from_bytes(rng.bytes(15), "big"))


def make_study(index, size, rng, canary):
    """Return (samples, identity, report) of one study."""
    case = draw_case(rng)
    identity = {"patient_name": f"{canary}^SYNTH", "patient_id": f"{canary}-{index:06d}",
                "study_uid": _uid(rng), "series_uid": _uid(rng), "instance_uid": _uid(rng)}
    return draw_image(case, size, rng), identity, write_report(case, canary, index)


# ---- files that are wrong on purpose ------------------------------------------------------------

def _truncated(samples, identity):
    whole = dicom.encode(samples, identity)
    return whole[:len(whole) - samples.size]


def _compressed(samples, identity):
    return dicom.encode(samples, identity, syntax=JPEG_BASELINE)


def _monochrome1(samples, identity):
    """The same picture in the other polarity: valid, and a reader must turn it round."""
    return dicom.encode(FULL_SCALE - samples, identity, photometric="MONOCHROME1")


def _zero(_samples, _identity):
    return b""


SPOILERS = {"truncated": _truncated, "compressed": _compressed, "monochrome1": _monochrome1,
            "zero": _zero}


# ---- the dataset --------------------------------------------------------------------------------

def _write(path, data):
    """Write a file that must not exist yet; return its SHA-256. Readable by the owner's group."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    return hashlib.sha256(data).hexdigest()


def make_dataset(out, studies, size, seed, canary, spoil=()):
    """Write the dataset into `out`, which must be absent or empty. Returns (files, bytes).

    `spoil` holds (kind, index) pairs. The same arguments give the same bytes.
    """
    os.makedirs(out, mode=0o750, exist_ok=True)
    if os.listdir(out):
        raise SystemExit("generate: the output folder is not empty")
    spoil = {index: SPOILERS[kind] for kind, index in spoil}
    rng = np.random.default_rng(seed)
    manifest, total = [], 0
    for index in range(studies):
        samples, identity, report = make_study(index, size, rng, canary)
        encode = spoil.get(index, dicom.encode)
        for suffix, data in (("dcm", encode(samples, identity)), ("txt", report.encode())):
            name = f"{index:06d}.{suffix}"
            manifest.append(f"{_write(os.path.join(out, name), data)}  {name}\n")
            total += len(data)
    _write(os.path.join(out, "manifest.sha256"), "".join(manifest).encode())
    return len(manifest), total


def _spoil_argument(text):
    kind, _, index = text.partition(":")
    if kind not in SPOILERS or not (index or "0").isdecimal():
        raise argparse.ArgumentTypeError(f"wanted KIND[:INDEX], KIND one of {', '.join(SPOILERS)}")
    return kind, int(index or 0)


def _number_argument(low, high):
    def parse(text):
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"wanted a number from {low} to {high}")
        return int(text)
    return parse


def parse_arguments(argv):
    parser = argparse.ArgumentParser(prog="generate", description=__doc__.splitlines()[0])
    parser.add_argument("out", metavar="OUT")
    parser.add_argument("--canary", required=True)
    parser.add_argument("--studies", type=_number_argument(1, 999999), default=512)
    parser.add_argument("--size", type=_number_argument(16, 4096), default=64)
    parser.add_argument("--seed", type=_number_argument(0, 2 ** 63 - 1))
    parser.add_argument("--spoil", type=_spoil_argument, action="append", default=[])
    args = parser.parse_args(argv)
    if args.canary == "-":
        args.canary = sys.stdin.readline().strip()
    if not CANARY.match(args.canary):
        parser.error("the canary must be 8 to 48 letters, digits or '_.-'")
    if any(index >= args.studies for _, index in args.spoil):
        parser.error("--spoil names a study that is not made")
    if args.seed is None:
        args.seed = secrets.randbits(48)
    return args


def main(argv=None):
    args = parse_arguments(argv)
    files, total = make_dataset(args.out, args.studies, args.size, args.seed, args.canary,
                                args.spoil)
    print(json.dumps({"studies": args.studies, "files": files, "bytes": total,
                      "seed": args.seed}))


if __name__ == "__main__":
    main()
