#!/usr/bin/env python3
"""What two kinds of training take on one GPU: a ViT-base over image sizes and patches, and LoRA on a model of Llama-2-7B's shape.

usage: gpu_memory.py [vit] [lora] [--seconds N]     one JSON line a measurement; random data and weights; needs torch with CUDA.

GB are 10^9 bytes. `peak_gb` is what tensors took at most, `reserved_gb` what the allocator held for them. `cap_gb` is a limit set on the
process to stand for a smaller card; with `"fits":false` the step ran out of it.
"""
import gc
import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

GB, GIB = 1e9, 2**30
VIT = dict(width=768, layers=12, heads=12)
LLAMA = dict(width=4096, layers=32, heads=32, inner=11008, words=32000, rank=8, length=2048)
PAIRS = [(image, patch) for patch in (32, 16, 8) for image in (384, 512, 1024, 2048)]


def attend(q, k, v, flash, causal=False):
    """Flash, or the scores written out with a softmax of 32 bits, as models did before it."""
    if flash:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return scores.softmax(-1, dtype=torch.float32).to(v.dtype) @ v


def heads_of(x, n):
    b, s, h = x.shape
    return x.view(b, s, n, h // n).transpose(1, 2)


class VitBlock(nn.Module):
    def __init__(self, width, heads, flash):
        super().__init__()
        self.heads, self.flash = heads, flash
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (heads_of(t, self.heads) for t in self.qkv(self.first(x)).chunk(3, -1))
        x = x + self.out(attend(q, k, v, self.flash).transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Vit(nn.Module):
    def __init__(self, image, patch, flash, width, layers, heads):
        super().__init__()
        self.patches = nn.Conv2d(1, width, patch, patch)
        self.place = nn.Parameter(torch.zeros(1, (image // patch) ** 2, width))
        self.blocks = nn.Sequential(*[VitBlock(width, heads, flash) for _ in range(layers)])
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.place
        return self.head(self.blocks(x).mean(1))


class Bytes(torch.autograd.Function):
    """A frozen weight in 8 bits, made wide again where it is used, forward and backward."""
    @staticmethod
    def forward(ctx, x, weight, scale):
        ctx.save_for_backward(weight, scale)
        return x @ (weight.to(x.dtype) * scale).t()

    @staticmethod
    def backward(ctx, grad):
        weight, scale = ctx.saved_tensors
        return grad @ (weight.to(grad.dtype) * scale), None, None


class Frozen(nn.Module):
    def __init__(self, inside, outside, rank=0):
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (outside, inside), dtype=torch.int8, device="cuda"))
        self.register_buffer("scale", torch.full((outside, 1), inside**-0.5 / 73, dtype=torch.bfloat16, device="cuda"))
        self.a = nn.Parameter(torch.randn(rank, inside, device="cuda") * 0.01) if rank else None
        self.b = nn.Parameter(torch.zeros(outside, rank, device="cuda")) if rank else None

    def forward(self, x):
        y = Bytes.apply(x, self.weight, self.scale)
        return y if self.a is None else y + (x @ self.a.to(x.dtype).t()) @ self.b.to(x.dtype).t()


def norm(x):
    return (x.float() * x.float().pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt()).to(x.dtype)


class LlamaBlock(nn.Module):
    def __init__(self, c, flash):
        super().__init__()
        self.heads, self.flash = c["heads"], flash
        w, i = c["width"], c["inner"]
        self.q, self.k, self.v, self.o = Frozen(w, w, c["rank"]), Frozen(w, w), Frozen(w, w, c["rank"]), Frozen(w, w)
        self.gate, self.up, self.down = Frozen(w, i), Frozen(w, i), Frozen(i, w)

    def forward(self, x):
        y = norm(x)
        q, k, v = (heads_of(f(y), self.heads) for f in (self.q, self.k, self.v))
        x = x + self.o(attend(q, k, v, self.flash, causal=True).transpose(1, 2).reshape(x.shape))
        y = norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, c, flash, recompute):
        super().__init__()
        self.recompute = recompute
        self.register_buffer("words", torch.randn(c["words"], c["width"], device="cuda", dtype=torch.bfloat16) * 0.02)
        self.blocks = nn.ModuleList(LlamaBlock(c, flash) for _ in range(c["layers"]))
        self.head = Frozen(c["width"], c["words"])

    def forward(self, ids):
        x = F.embedding(ids, self.words).requires_grad_()
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(norm(x)).float()


def measure(model, step, steps):
    """(peak GB, reserved GB, seconds a step), or None when the memory does not do."""
    torch.cuda.reset_peak_memory_stats()
    try:
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
        for i in range(steps + 1):
            if i == 1:
                torch.cuda.synchronize()
                start = time.monotonic()
            optimizer.zero_grad()
            step().backward()
            optimizer.step()
        torch.cuda.synchronize()
    except torch.cuda.OutOfMemoryError:
        return None
    return torch.cuda.max_memory_allocated() / GB, torch.cuda.max_memory_reserved() / GB, (time.monotonic() - start) / steps


def capped(make, cap_gb, steps, about):
    """Measure under the cap; once more without it when that does not do."""
    whole = torch.cuda.get_device_properties(0).total_memory
    for limit in (cap_gb, None):
        torch.cuda.set_per_process_memory_fraction(min(limit * GB / whole, 1.0) if limit else 1.0)
        model = step = None
        try:
            model, step = make()
            got = measure(model, step, steps)
        except torch.cuda.OutOfMemoryError:
            got = None
        del model, step
        gc.collect()
        torch.cuda.empty_cache()
        row = dict(about, cap_gb=limit and round(limit, 2), fits=got is not None)
        if got:
            row.update(zip(("peak_gb", "reserved_gb", "step_s"), (round(x, 4) for x in got)))
        print(json.dumps(row), flush=True)
        if got:
            return


def vit_row(image, patch, flash, batch):
    def make():
        model = Vit(image, patch, flash, **VIT).cuda()
        x = torch.randn(batch, 1, image, image, device="cuda")
        y = torch.randint(0, 2, (batch,), device="cuda")

        def step():
            with torch.autocast("cuda", torch.bfloat16):
                return F.cross_entropy(model(x), y)
        return model, step
    capped(make, 80.0, 3, dict(bench="vit", image=image, patch=patch, tokens=(image // patch) ** 2, flash=flash, batch=batch))


def lora_row(batch, flash, recompute):
    def make():
        model = Llama(LLAMA, flash, recompute)
        ids = torch.randint(0, LLAMA["words"], (batch, LLAMA["length"]), device="cuda")
        return model, lambda: F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    capped(make, 40 * GIB / GB, 2, dict(bench="lora", batch=batch, flash=flash, recompute=recompute))


def rows():
    for recompute, flash in ((True, False), (True, True), (False, True)):
        for batch in (1, 4, 7, 8):
            yield "lora", (batch, flash, recompute)
    for image, patch in PAIRS:
        s, w = (image // patch) ** 2, VIT["width"]
        plain = VIT["layers"] * (34 * s * w + 5 * VIT["heads"] * s * s)
        batch = max(1, min(64, int(50 * GB / plain)))     # one that both ways can take, where there is one
        for flash in (False, True):
            yield "vit", (image, patch, flash, batch)


def main(words):
    limit = float(words[words.index("--seconds") + 1]) if "--seconds" in words else 3600
    wanted = [w for w in words if w in ("vit", "lora")] or ["vit", "lora"]
    begin = time.monotonic()
    print(json.dumps(dict(bench="where", device=torch.cuda.get_device_name(0), torch=torch.__version__)), flush=True)
    for kind, args in rows():
        if kind in wanted and time.monotonic() - begin < limit:
            (vit_row if kind == "vit" else lora_row)(*args)


if __name__ == "__main__":
    main(sys.argv[1:])
