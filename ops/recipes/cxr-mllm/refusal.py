"""Why a study is refused.

A refusal carries a number and a fixed sentence. It never carries a file name or anything read from
a file: both may identify a patient, and messages end up in logs that leave the enclave.
"""
import enum


class Reason(enum.IntEnum):
    """Reasons as they appear in the `reason` field of a log line: numbers are never reused."""
    UNREADABLE = 1
    EMPTY = 2
    NOT_DICOM = 3
    TRUNCATED = 4
    COMPRESSED = 5
    TRANSFER_SYNTAX = 6
    MALFORMED = 7
    NOT_GREYSCALE = 8
    PIXEL_LAYOUT = 9
    SIZE = 10
    NO_PIXELS = 11
    NO_REPORT = 12
    NO_IMAGE = 13
    NO_FINDINGS = 14
    TOO_BIG = 15


SENTENCES = {
    Reason.UNREADABLE: "the file cannot be read",
    Reason.EMPTY: "the file is empty",
    Reason.NOT_DICOM: "the file is not DICOM (no DICM mark)",
    Reason.TRUNCATED: "the DICOM file is truncated",
    Reason.COMPRESSED: "the pixel data is compressed; decompress the dataset before import",
    Reason.TRANSFER_SYNTAX: "the transfer syntax is not explicit VR little endian",
    Reason.MALFORMED: "the DICOM elements are malformed",
    Reason.NOT_GREYSCALE: "the image is not MONOCHROME1 or MONOCHROME2",
    Reason.PIXEL_LAYOUT: "the pixels are not one frame of unsigned 16-bit samples",
    Reason.SIZE: "rows, columns and pixel data do not agree or are out of range",
    Reason.NO_PIXELS: "the DICOM file holds no pixel data",
    Reason.NO_REPORT: "the image has no report",
    Reason.NO_IMAGE: "the report has no image",
    Reason.NO_FINDINGS: "the report has no 'findings :' line or is not text",
    Reason.TOO_BIG: "the file is larger than the recipe reads",
}


class Refused(Exception):
    """One study cannot be used. `index` is its place in the sorted dataset, or None if unknown."""

    def __init__(self, reason, index=None):
        super().__init__(SENTENCES[reason])
        self.reason = reason
        self.index = index

    def __str__(self):
        where = "study" if self.index is None else f"study {self.index}"
        return f"{where}: {SENTENCES[self.reason]}"
