"""Checkpoints that are either whole or absent, holding tensors and numbers only.

Rank 0 alone reads and writes; the other ranks get the bytes from it, so that the folder need not be
shared. A checkpoint names the shape it belongs to and is refused for any other.
"""
import contextlib
import io
import os

import torch
import torch.distributed as dist

NAME = "last.pt"


class CheckpointError(Exception):
    """The checkpoint there cannot be used; the text is for the user."""


class Checkpoint:
    """One run's checkpoint in `folder`."""

    def __init__(self, folder, shape, ranks, device):
        self.path = os.path.join(folder, NAME)
        self.shape = list(shape)
        self.ranks = ranks
        self.device = device
        if ranks.rank == 0:
            os.makedirs(folder, mode=0o750, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):     # what a killed save left behind
                os.unlink(self.path + ".tmp")

    def save(self, model, optimiser, step):
        """Write whole or not at all: temporary file, fsync, rename, fsync of the folder."""
        if self.ranks.rank != 0:
            return
        # Moments only: rates come from the arguments, and the safe loader of torch 1.13 reads
        # tensors and integers but no floats.
        state = {"shape": self.shape, "step": step, "model": model.state_dict(),
                 "moments": optimiser.state_dict()["state"]}
        with open(self.path + ".tmp", "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.path + ".tmp", self.path)
        folder = os.open(os.path.dirname(self.path) or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def restore(self, model, optimiser):
        """Load the checkpoint if there is one; return the number of steps already done."""
        data = self._share(self._read())
        if not data:
            return 0
        try:
            # weights_only: a checkpoint is data and must never be able to run code.
            state = torch.load(io.BytesIO(data), map_location=self.device, weights_only=True)
            if state["shape"] != self.shape:
                raise CheckpointError("the checkpoint there belongs to another model shape")
            model.load_state_dict(state["model"])
            optimiser.load_state_dict({**optimiser.state_dict(), "state": state["moments"]})
            return int(state["step"])
        except CheckpointError:
            raise
        except Exception as error:          # torch raises many kinds for a damaged file
            raise CheckpointError("the checkpoint there is damaged; move it away") from error

    def _read(self):
        if self.ranks.rank != 0 or not os.path.exists(self.path):
            return b""
        with open(self.path, "rb") as file:
            return file.read()

    def _share(self, data):
        if self.ranks.world == 1:
            return data
        size = torch.tensor([len(data)], device=self.device)
        dist.broadcast(size, 0)
        if not int(size):
            return b""
        if self.ranks.rank == 0:
            content = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(self.device)
        else:
            content = torch.empty(int(size), dtype=torch.uint8, device=self.device)
        dist.broadcast(content, 0)
        return content.cpu().numpy().tobytes()
