"""A small, strict reader and writer for greyscale DICOM files.

It reads one thing: a Part-10 file in explicit VR little endian, uncompressed, one frame of unsigned
16-bit MONOCHROME1 or MONOCHROME2 samples. Anything else is refused with a reason (refusal.py).
The reader looks only at the elements it needs, so names, dates and identifiers never become Python
objects that a traceback or a checkpoint could carry away. Standard library and numpy only.
"""
import struct

import numpy as np

from refusal import Reason, Refused

EXPLICIT_LE = "1.2.840.10008.1.2.1"
DIGITAL_XRAY = "1.2.840.10008.5.1.4.1.1.1.1"
OTHER_UNCOMPRESSED = ("1.2.840.10008.1.2", "1.2.840.10008.1.2.2", "1.2.840.10008.1.2.1.99")

PREAMBLE_BYTES = 128
MAX_SIDE = 8192
UNDEFINED_LENGTH = 0xFFFFFFFF
# These value representations have two reserved bytes and a 32-bit length; all others 16 bits.
LONG_VRS = (b"OB", b"OD", b"OF", b"OL", b"OV", b"OW", b"SQ", b"SV", b"UC", b"UN", b"UR", b"UT",
            b"UV")

META_LENGTH = (0x0002, 0x0000)
TRANSFER_SYNTAX = (0x0002, 0x0010)
SAMPLES = (0x0028, 0x0002)
PHOTOMETRIC = (0x0028, 0x0004)
FRAMES = (0x0028, 0x0008)
ROWS = (0x0028, 0x0010)
COLUMNS = (0x0028, 0x0011)
BITS_ALLOCATED = (0x0028, 0x0100)
BITS_STORED = (0x0028, 0x0101)
HIGH_BIT = (0x0028, 0x0102)
REPRESENTATION = (0x0028, 0x0103)
PIXELS = (0x7FE0, 0x0010)
NEEDED = {META_LENGTH, TRANSFER_SYNTAX, SAMPLES, PHOTOMETRIC, FRAMES, ROWS, COLUMNS,
          BITS_ALLOCATED, BITS_STORED, HIGH_BIT, REPRESENTATION, PIXELS}


# ---- reading ------------------------------------------------------------------------------------

def decode(data):
    """Decode the bytes of one file.

    Returns (image, inverted): float32 rows x columns in 0..1, bright = dense; `inverted` says that
    the file was MONOCHROME1 and its values were turned round. Raises Refused (without an index).
    """
    start = _check_head(data)
    meta_end = _check_meta(data, start)
    return _image(_collect(data, meta_end, len(data)))


def _check_head(data):
    if not data:
        raise Refused(Reason.EMPTY)
    if len(data) < PREAMBLE_BYTES + 4:
        raise Refused(Reason.TRUNCATED)
    if data[PREAMBLE_BYTES:PREAMBLE_BYTES + 4] != b"DICM":
        raise Refused(Reason.NOT_DICOM)
    return PREAMBLE_BYTES + 4


def _check_meta(data, start):
    """Check the file meta group; return the offset at which the data set begins."""
    tag, value, start = _element(data, start)
    if tag != META_LENGTH or len(value) != 4:
        raise Refused(Reason.MALFORMED)
    end = start + struct.unpack("<I", value)[0]
    if end > len(data):
        raise Refused(Reason.TRUNCATED)
    syntax = _text(_collect(data, start, end), TRANSFER_SYNTAX)
    if syntax in OTHER_UNCOMPRESSED:
        raise Refused(Reason.TRANSFER_SYNTAX)
    if syntax != EXPLICIT_LE:
        raise Refused(Reason.COMPRESSED)
    return end


def _element(data, at):
    """Return (tag, value, offset of the next element). The value is a view, not a copy."""
    if at + 8 > len(data):
        raise Refused(Reason.TRUNCATED)
    group, element, vr, length = struct.unpack_from("<HH2sH", data, at)
    at += 8
    if not vr.isalpha() or not vr.isupper():
        raise Refused(Reason.MALFORMED)
    if vr in LONG_VRS:
        if at + 4 > len(data):
            raise Refused(Reason.TRUNCATED)
        length, = struct.unpack_from("<I", data, at)
        at += 4
    if length == UNDEFINED_LENGTH:
        # For pixel data this means encapsulated frames, whatever the transfer syntax claims.
        encapsulated = (group, element) == PIXELS
        raise Refused(Reason.COMPRESSED if encapsulated else Reason.MALFORMED)
    if at + length > len(data):
        raise Refused(Reason.TRUNCATED)
    return (group, element), memoryview(data)[at:at + length], at + length


def _collect(data, at, end):
    """Gather the needed elements of data[at:end]; tags must rise, as the standard demands."""
    found, last = {}, (0, 0)
    while at < end:
        tag, value, at = _element(data, at)
        if tag <= last or at > end:
            raise Refused(Reason.MALFORMED)
        last = tag
        if tag in NEEDED:
            found[tag] = value
        if tag == PIXELS:
            break
    return found


def _text(found, tag):
    return bytes(found.get(tag, b"")).rstrip(b" \0").decode("ascii", "replace")


def _number(found, tag):
    value = found.get(tag, b"")
    if len(value) != 2:
        raise Refused(Reason.MALFORMED)
    return struct.unpack("<H", value)[0]


def _image(found):
    if PIXELS not in found:
        raise Refused(Reason.NO_PIXELS)
    photometric = _text(found, PHOTOMETRIC)
    if photometric not in ("MONOCHROME1", "MONOCHROME2"):
        raise Refused(Reason.NOT_GREYSCALE)
    stored = _check_layout(found)
    samples = _samples(found)
    top = (1 << stored) - 1
    if samples.max() > top:
        raise Refused(Reason.PIXEL_LAYOUT)
    inverted = photometric == "MONOCHROME1"
    if inverted:
        samples = top - samples
    return samples.astype(np.float32) / top, inverted


def _check_layout(found):
    """Return the number of bits stored, once the rest of the layout is the one that is read."""
    stored = _number(found, BITS_STORED)
    expected = (_number(found, SAMPLES) == 1 and _number(found, BITS_ALLOCATED) == 16
                and _number(found, REPRESENTATION) == 0 and 8 <= stored <= 16
                and _number(found, HIGH_BIT) == stored - 1
                and _text(found, FRAMES) in ("", "1"))
    if not expected:
        raise Refused(Reason.PIXEL_LAYOUT)
    return stored


def _samples(found):
    rows, columns = _number(found, ROWS), _number(found, COLUMNS)
    if not (1 <= rows <= MAX_SIDE and 1 <= columns <= MAX_SIDE):
        raise Refused(Reason.SIZE)
    if len(found[PIXELS]) != rows * columns * 2:
        raise Refused(Reason.SIZE)
    return np.frombuffer(found[PIXELS], "<u2").reshape(rows, columns)


# ---- writing ------------------------------------------------------------------------------------

def encode(samples, identity, photometric="MONOCHROME2", syntax=EXPLICIT_LE):
    """Encode 12-bit `samples` (rows x columns) as a Digital X-Ray file; return its bytes.

    `identity` is a dict with patient_name, patient_id, study_uid, series_uid and instance_uid.
    `syntax` is only written down, never applied: with another one the file is wrong on purpose.
    """
    meta = (_put(0x0002, 0x0001, "OB", b"\0\1")
            + _put(0x0002, 0x0002, "UI", DIGITAL_XRAY)
            + _put(0x0002, 0x0003, "UI", identity["instance_uid"])
            + _put(0x0002, 0x0010, "UI", syntax)
            + _put(0x0002, 0x0012, "UI", identity["study_uid"]))
    length = _put(0x0002, 0x0000, "UL", struct.pack("<I", len(meta)))
    return (b"\0" * PREAMBLE_BYTES + b"DICM" + length + meta
            + _patient(identity) + _pixels(samples, photometric))


def _put(group, element, vr, value):
    if isinstance(value, str):
        padding = b"\0" if vr == "UI" else b" "
        value = value.encode("ascii") + padding * (len(value) % 2)
    elif isinstance(value, int):
        value = struct.pack("<H", value)
    if vr.encode() in LONG_VRS:
        return struct.pack("<HH2sHI", group, element, vr.encode(), 0, len(value)) + value
    return struct.pack("<HH2sH", group, element, vr.encode(), len(value)) + value


def _patient(identity):
    return (_put(0x0008, 0x0016, "UI", DIGITAL_XRAY)
            + _put(0x0008, 0x0018, "UI", identity["instance_uid"])
            + _put(0x0008, 0x0020, "DA", "19000101")
            + _put(0x0008, 0x0060, "CS", "DX")
            + _put(0x0010, 0x0010, "PN", identity["patient_name"])
            + _put(0x0010, 0x0020, "LO", identity["patient_id"])
            + _put(0x0010, 0x0030, "DA", "19000101")
            + _put(0x0018, 0x5101, "CS", "PA")
            + _put(0x0020, 0x000D, "UI", identity["study_uid"])
            + _put(0x0020, 0x000E, "UI", identity["series_uid"]))


def _pixels(samples, photometric):
    rows, columns = samples.shape
    return (_put(*SAMPLES, "US", 1) + _put(*PHOTOMETRIC, "CS", photometric)
            + _put(*ROWS, "US", rows) + _put(*COLUMNS, "US", columns)
            + _put(*BITS_ALLOCATED, "US", 16) + _put(*BITS_STORED, "US", 12)
            + _put(*HIGH_BIT, "US", 11) + _put(*REPRESENTATION, "US", 0)
            + _put(*PIXELS, "OW", samples.astype("<u2").tobytes()))
