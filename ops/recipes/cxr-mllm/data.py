"""The dataset as a rank sees it: read, checked, and turned into tensors.

A study is NNN.dcm with its report NNN.txt. Studies are known by their index in the sorted folder,
so that no message needs a file name. The vocabulary is a closed list that ships with the recipe:
a word outside it becomes UNKNOWN, and no name in a report can become a token in a checkpoint.
"""
import os

import numpy as np
import torch
import torch.nn.functional as F

import dicom
from refusal import Reason, Refused

PAD, BEGIN, END, UNKNOWN = range(4)
SPECIAL = 4                              # the first number of an ordinary word
MAX_IMAGE_BYTES = 256 << 20
MAX_REPORT_BYTES = 64 << 10
FINDINGS = "findings :"
MEAN, SPREAD = 0.5, 0.25                 # bring pixels to about zero mean and unit spread


def read_vocabulary(path):
    with open(path, encoding="ascii") as file:
        return {word: number for number, word in enumerate(file.read().split(), SPECIAL)}


def list_studies(folder):
    """Return the sorted study names; each must have both its files."""
    kinds = {".dcm": set(), ".txt": set()}
    for entry in os.listdir(folder):
        stem, suffix = os.path.splitext(entry)
        if suffix in kinds:
            kinds[suffix].add(stem)
    names = sorted(kinds[".dcm"] | kinds[".txt"])
    for index, name in enumerate(names):
        if name not in kinds[".txt"]:
            raise Refused(Reason.NO_REPORT, index)
        if name not in kinds[".dcm"]:
            raise Refused(Reason.NO_IMAGE, index)
    return names


def strip_header(report):
    """Return the words of a report (bytes) from its findings line on; the header is dropped."""
    if not report:
        raise Refused(Reason.EMPTY)
    try:
        lines = report.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        # The exception would quote the report: raise ours without it as context.
        raise Refused(Reason.NO_FINDINGS) from None
    for number, line in enumerate(lines):
        if line.startswith(FINDINGS):
            return " ".join(lines[number:]).split()
    raise Refused(Reason.NO_FINDINGS)


class Studies:
    """Reads the studies of one folder and counts what it met on the way."""

    def __init__(self, folder, vocabulary, image_side, report_length):
        self.folder = folder
        self.names = list_studies(folder)
        self.vocabulary = vocabulary
        self.image_side = image_side
        self.report_length = report_length
        self.counts = {"bytes": 0, "inverted": 0, "unknown_words": 0, "cut_reports": 0}

    def __len__(self):
        return len(self.names)

    def load(self, indexes):
        """Return (images n x 1 x side x side, tokens n x length). Raises Refused with the index."""
        images, tokens = [], []
        for index in indexes:
            try:
                images.append(self._image(index))
                tokens.append(self._tokens(index))
            except Refused as refused:
                raise Refused(refused.reason, int(index)) from None
        return torch.stack(images), torch.from_numpy(np.stack(tokens))

    def _read(self, index, suffix, limit):
        try:
            with open(os.path.join(self.folder, self.names[index] + suffix), "rb") as file:
                data = file.read(limit + 1)
        except OSError:
            raise Refused(Reason.UNREADABLE) from None
        if len(data) > limit:
            raise Refused(Reason.TOO_BIG)
        self.counts["bytes"] += len(data)
        return data

    def _image(self, index):
        samples, inverted = dicom.decode(self._read(index, ".dcm", MAX_IMAGE_BYTES))
        self.counts["inverted"] += inverted
        image = torch.from_numpy((samples - MEAN) / SPREAD)[None]
        if image.shape[1:] != (self.image_side, self.image_side):
            image = F.interpolate(image[None], size=(self.image_side, self.image_side),
                                  mode="bilinear", align_corners=False)[0]
        return image

    def _tokens(self, index):
        words = strip_header(self._read(index, ".txt", MAX_REPORT_BYTES))
        numbers = [self.vocabulary.get(word, UNKNOWN) for word in words]
        self.counts["unknown_words"] += numbers.count(UNKNOWN)
        room = self.report_length - 2
        self.counts["cut_reports"] += len(numbers) > room
        row = np.full(self.report_length, PAD, np.int64)
        numbers = [BEGIN] + numbers[:room] + [END]
        row[:len(numbers)] = numbers
        return row


class Split:
    """Which studies this rank trains on and which it is tested on; the last ones are held out."""

    def __init__(self, total, holdout, ranks, batch):
        kept = total - holdout
        self.train = np.arange(ranks.rank, kept, ranks.world)
        self.test = np.arange(kept + ranks.rank, total, ranks.world)
        # Every rank must take the same number of steps: the smallest shard decides.
        self.steps_per_epoch = max(kept // ranks.world // batch, 1)
        self.batch = batch

    def positions(self, step, seed, rank):
        """Places within `train` for this step: a function of its arguments alone.

        So a resumed run draws the very batches it would have drawn without the stop.
        """
        epoch, place = divmod(step, self.steps_per_epoch)
        order = np.random.default_rng((seed, rank, epoch)).permutation(len(self.train))
        return order[place * self.batch:(place + 1) * self.batch]
