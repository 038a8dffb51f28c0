#!/usr/bin/python3
"""Train a small multimodal model to write chest x-ray reports. One process per rank.

    train.py --data DIR --out DIR [--size tiny|base] [--steps N] ...

Prints JSON lines that hold numbers only, whatever the data is: see README.md for the events.
USR2 or TERM to any rank: all ranks stop at the same step, a checkpoint is written, exit 75.

Exit: 0 done · 1 match rate below --min-match · 2 usage · 64 bad launch · 65 a study or the
checkpoint was refused · 70 internal error · 75 preempted, start again to resume.
"""
import preempt

preempt.watch()                 # before torch, whose import takes seconds

# pylint: disable=wrong-import-position
import argparse                 # noqa: E402
import contextlib               # noqa: E402
import datetime                 # noqa: E402
import json                     # noqa: E402
import math                     # noqa: E402
import os                       # noqa: E402
import sys                      # noqa: E402
import time                     # noqa: E402
import traceback                # noqa: E402

import torch                    # noqa: E402
import torch.distributed as dist                # noqa: E402
import torch.nn.functional as F                 # noqa: E402
from torch import nn            # noqa: E402

import data                     # noqa: E402
from checkpoint import Checkpoint, CheckpointError      # noqa: E402
from model import SHAPES, ReportWriter          # noqa: E402
from ranks import LaunchError, from_environment         # noqa: E402
from refusal import Refused     # noqa: E402

EXIT_BELOW, EXIT_LAUNCH, EXIT_DATA, EXIT_INTERNAL, EXIT_PREEMPTED = 1, 64, 65, 70, 75
EVENTS = ("start", "data", "refused", "resume", "step", "epoch", "preempt", "done")
HERE = os.path.dirname(os.path.abspath(__file__))
RENDEZVOUS_S = 120
WARM_UP = 20                    # steps of rising learning rate
RATES = {"tiny": 5e-3, "base": 2e-4}


def log(event, **numbers):
    """Print one line. Numbers only: what was read from a patient's file cannot get out here."""
    if event not in EVENTS or not all(isinstance(v, (int, float)) for v in numbers.values()):
        raise TypeError("a log line holds an event and numbers")
    print(json.dumps({"ev": event, **numbers}), flush=True)


def complain(text):
    print(f"cxr-mllm: {text}", file=sys.stderr, flush=True)


# ---- setting up ---------------------------------------------------------------------------------

def parse_arguments(argv):
    parser = argparse.ArgumentParser(prog="train", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", required=True, help="folder of NNN.dcm and NNN.txt")
    add("--out", required=True, help="folder for the checkpoint")
    add("--size", choices=sorted(SHAPES), default="tiny")
    add("--steps", type=int, default=200)
    add("--batch", type=int, default=16, help="studies per rank and step")
    add("--rate", type=float, help="highest learning rate, instead of the size's own")
    add("--seed", type=int, default=0)
    add("--holdout", type=int, default=64, help="studies kept for the exact-match test")
    add("--precision", choices=("fp32", "bf16"), default="fp32")
    add("--image", type=int, help="image side in pixels, instead of the size's own")
    add("--patch", type=int, help="patch side in pixels, instead of the size's own")
    add("--no-flash", action="store_true", help="do without fused attention")
    add("--noise", action="store_true", help="replace the images by noise: it must not learn")
    add("--min-match", type=float, default=0.0, help="exit 1 if fewer reports match")
    add("--checkpoint-every", type=int, default=0, metavar="STEPS")
    add("--log-every", type=int, default=20, metavar="STEPS")
    args = parser.parse_args(argv)
    if min(args.steps, args.batch, args.log_every) < 1 or min(args.holdout, args.seed) < 0:
        parser.error("--steps, --batch and --log-every start at 1, --holdout and --seed at 0")
    args.rate = args.rate or RATES[args.size]
    return args


def choose_shape(args):
    shape = SHAPES[args.size]
    shape = shape._replace(image=args.image or shape.image, patch=args.patch or shape.patch)
    if shape.patch < 1 or shape.image < 1 or shape.image % shape.patch:
        raise LaunchError("the image side must be a multiple of the patch side")
    return shape


def choose_device(ranks):
    """One CUDA device per rank if there is one, else the CPU with OMP_NUM_THREADS threads."""
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    torch.set_num_threads(int(threads) if threads.isdecimal() and int(threads) else 1)
    if not torch.cuda.is_available():
        return torch.device("cpu")
    # Slurm may show a task all GPUs of the node, or its own one only, which is then number 0.
    device = torch.device("cuda", 0 if torch.cuda.device_count() == 1 else ranks.local)
    torch.cuda.set_device(device)
    return device


def meet(ranks, device):
    if ranks.world == 1:
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    try:
        dist.init_process_group(backend, init_method="env://", rank=ranks.rank,
                                world_size=ranks.world,
                                timeout=datetime.timedelta(seconds=RENDEZVOUS_S))
    except (RuntimeError, ValueError) as error:
        raise LaunchError(f"rank {ranks.rank} of {ranks.world} did not meet the others within "
                          f"{RENDEZVOUS_S} s: is every rank started, and MASTER_ADDR reachable?"
                          ) from error


class Summed:
    """Adds numbers over all ranks in one message."""

    def __init__(self, ranks, device):
        self.world = ranks.world
        self.device = device

    def __call__(self, *numbers):
        if self.world == 1:
            return list(numbers)
        packed = torch.tensor(numbers, dtype=torch.float32, device=self.device)
        dist.all_reduce(packed)
        return packed.tolist()


# ---- data ---------------------------------------------------------------------------------------

def load_data(args, shape, ranks, summed):
    """Read this rank's studies. Returns (split, train, test), the last two (images, tokens).

    If any rank refuses a study, all ranks raise: nobody waits for one that has left.
    """
    begun = time.monotonic()
    refused = split = train = test = None
    studies = None
    try:
        vocabulary = data.read_vocabulary(os.path.join(HERE, "vocabulary.txt"))
        studies = data.Studies(args.data, vocabulary, shape.image, shape.length)
        split = data.Split(len(studies), args.holdout, ranks, args.batch)
        if len(split.train) >= args.batch:
            train = studies.load(split.train)
            test = studies.load(split.test) if len(split.test) else None
    except OSError:
        refused = LaunchError("the data folder cannot be read")
    except Refused as error:
        refused = error
    check_data(refused, studies, train, ranks, summed)
    if args.noise:
        train = torch.randn_like(train[0]), train[1]
        test = test and (torch.randn_like(test[0]), test[1])
    if ranks.rank == 0:
        log("data", studies=len(studies), train=len(split.train), held_out=args.holdout,
            seconds=round(time.monotonic() - begun, 3), **studies.counts)
    return split, train, test


def check_data(refused, studies, train, ranks, summed):
    """Agree over all ranks that the data is good and the same; raise on each of them if not."""
    found = len(studies) if studies else 0
    bad, short, total, squares = summed(refused is not None, train is None, found, found * found)
    if isinstance(refused, Refused):
        log("refused", rank=ranks.rank, reason=int(refused.reason), index=refused.index)
    if refused:
        raise refused
    if bad:
        raise LaunchError("another rank refused its data")
    if total * total != ranks.world * squares:
        raise LaunchError("the ranks see different numbers of studies")
    if short:
        raise LaunchError(f"{found} studies are too few for the batch and the held-out part")


# ---- training -----------------------------------------------------------------------------------

class Trainer:
    """The training loop of one rank."""

    def __init__(self, args, ranks, device, summed):
        self.args, self.ranks, self.device, self.summed = args, ranks, device, summed
        self.shape = choose_shape(args)
        torch.manual_seed(args.seed)
        self.model = ReportWriter(self.shape, not args.no_flash).to(device)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=args.rate,
                                           betas=(0.9, 0.95), weight_decay=0.01)
        self.checkpoint = Checkpoint(args.out, self.shape, ranks, device)
        self.step = self.begun_at = self.checkpoint.restore(self.model, self.optimiser)
        self.parallel = self._wrap()

    def _wrap(self):
        if self.ranks.world == 1:
            return self.model
        ids = [self.device.index] if self.device.type == "cuda" else None
        return nn.parallel.DistributedDataParallel(self.model, device_ids=ids,
                                                   gradient_as_bucket_view=True)

    def announce(self):
        if self.ranks.rank != 0:
            return
        log("start", world=self.ranks.world, cuda=int(self.device.type == "cuda"),
            parameters=sum(p.numel() for p in self.model.parameters()),
            sequence=(self.shape.image // self.shape.patch) ** 2, batch=self.args.batch,
            threads=torch.get_num_threads())
        if self.step:
            log("resume", step=self.step)

    def _precision(self):
        if self.args.precision == "bf16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return contextlib.nullcontext()

    def _learn(self, images, tokens):
        """One step; returns the loss as a number."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.args.rate * self._rate_at(self.step)
        with self._precision():
            logits = self.parallel(images, tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten(),
                                   ignore_index=data.PAD)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        return loss.item()

    def _rate_at(self, step):
        """Linear warm-up, then half a cosine down: a function of the step, so resuming is exact."""
        warm = min(1.0, (step + 1) / WARM_UP)
        return warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / self.args.steps)))

    def run(self, split, images, tokens):
        """Train to the last step. Returns True if done, False if stopped by a notice, and saved."""
        meter = Meter(self, split.steps_per_epoch)
        while self.step < self.args.steps:
            chosen = torch.from_numpy(split.positions(self.step, self.args.seed, self.ranks.rank))
            loss = self._learn(images[chosen].to(self.device), tokens[chosen].to(self.device))
            self.step += 1
            loss, noticed = self.summed(loss, preempt.noticed())
            meter.count(loss / self.ranks.world)
            if noticed and self.step < self.args.steps:
                self.save()
                if self.ranks.rank == 0:
                    log("preempt", step=self.step)
                return False
            if self.args.checkpoint_every and self.step % self.args.checkpoint_every == 0:
                self.save()
        self.save()
        return True

    def save(self):
        self.checkpoint.save(self.model, self.optimiser, self.step)

    def exact_match(self, test):
        """The share of held-out reports that are written word for word, over all ranks."""
        right = total = 0
        if test is not None:
            self.model.eval()
            images, wanted = test[0].to(self.device), test[1].to(self.device)
            written = self.model.write(images, data.BEGIN, wanted.shape[1])
            same = (written == wanted) | (wanted == data.PAD)
            right, total = int(same.all(1).sum()), len(wanted)
        right, total = self.summed(right, total)
        return right / total if total else 0.0


class Meter:
    """Prints progress on rank 0: every few steps, and each epoch's time."""

    def __init__(self, trainer, steps_per_epoch):
        self.trainer, self.steps_per_epoch = trainer, steps_per_epoch
        self.lap = self.epoch_lap = time.monotonic()
        self.lap_step = self.epoch_step = trainer.step

    def count(self, loss):
        trainer = self.trainer
        if trainer.ranks.rank != 0:
            return
        args, step, now = trainer.args, trainer.step, time.monotonic()
        if step % args.log_every == 0 or step in (1, args.steps):
            studies = (step - self.lap_step) * args.batch * trainer.ranks.world
            log("step", step=step, loss=round(loss, 6),
                sps=round(studies / max(now - self.lap, 1e-9), 1), **self._memory())
            self.lap, self.lap_step = now, step
        if step % self.steps_per_epoch == 0:
            log("epoch", epoch=step // self.steps_per_epoch, steps=step - self.epoch_step,
                seconds=round(now - self.epoch_lap, 3))
            self.epoch_lap, self.epoch_step = now, step

    def _memory(self):
        if self.trainer.device.type != "cuda":
            return {}
        return {"mem_gb": round(torch.cuda.max_memory_allocated() / 1e9, 3)}


def train(args):
    begun = time.monotonic()
    ranks = from_environment()
    shape = choose_shape(args)
    device = choose_device(ranks)
    meet(ranks, device)
    summed = Summed(ranks, device)
    split, learn, test = load_data(args, shape, ranks, summed)
    trainer = Trainer(args, ranks, device, summed)
    trainer.announce()
    if not trainer.run(split, *learn):
        return EXIT_PREEMPTED
    match = trainer.exact_match(test)
    if ranks.rank == 0:
        log("done", step=trainer.step, seconds=round(time.monotonic() - begun, 1),
            exact_match=round(match, 4))
    return EXIT_BELOW if match < args.min_match else 0


def main(argv=None):
    args = parse_arguments(argv)
    try:
        return train(args)
    except Refused as error:
        complain(error)
        return EXIT_DATA
    except CheckpointError as error:
        complain(error)
        return EXIT_DATA
    except LaunchError as error:
        complain(error)
        return EXIT_LAUNCH
    except Exception as error:      # pylint: disable=broad-except
        # A traceback may quote paths and data; the kind and the place are enough to look it up.
        place = traceback.extract_tb(error.__traceback__)[-1]
        complain(f"internal error: {type(error).__name__} at "
                 f"{os.path.basename(place.filename)}:{place.lineno}")
        return EXIT_INTERNAL


if __name__ == "__main__":
    sys.exit(main())
