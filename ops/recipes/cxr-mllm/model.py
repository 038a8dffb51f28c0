"""The network: a vision transformer reads the image, a causal decoder writes the report.

`tiny` learns the synthetic data in seconds on one CPU core. `base` has the shape of ViT-base and
RoBERTa-base (about 238 million parameters). Runs on torch 1.13 and 2.x.
"""
import collections

import torch
import torch.nn.functional as F
from torch import nn

Shape = collections.namedtuple(
    "Shape", "width encoder decoder heads hidden image patch vocabulary length")

SHAPES = {
    "tiny": Shape(width=64, encoder=2, decoder=2, heads=2, hidden=128, image=64, patch=16,
                  vocabulary=64, length=24),
    "base": Shape(width=768, encoder=12, decoder=12, heads=12, hidden=3072, image=224, patch=16,
                  vocabulary=50265, length=128),
}

FUSED = getattr(F, "scaled_dot_product_attention", None)      # torch 2 and later


def attend(query, key, value, causal, flash):
    """Attention over batch x heads x length x depth, fused where torch can and `flash` allows."""
    if FUSED is not None and flash:
        return FUSED(query, key, value, is_causal=causal)
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    if causal:
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(ahead, float("-inf"))
    return scores.softmax(-1) @ value


class Attention(nn.Module):
    """Multi-head attention of `x` over `memory`."""

    def __init__(self, width, heads, flash):
        super().__init__()
        self.heads = heads
        self.flash = flash
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def _split(self, x):
        return x.unflatten(-1, (self.heads, x.shape[-1] // self.heads)).transpose(1, 2)

    def forward(self, x, memory, causal=False):
        key, value = self.key_value(memory).chunk(2, -1)
        mixed = attend(self._split(self.query(x)), self._split(key), self._split(value),
                       causal, self.flash)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """One transformer layer. A decoder layer is causal and also looks at the image."""

    def __init__(self, shape, decoder, flash):
        super().__init__()
        width = shape.width
        self.decoder = decoder
        self.norm_self = nn.LayerNorm(width)
        self.attention = Attention(width, shape.heads, flash)
        if decoder:
            self.norm_cross = nn.LayerNorm(width)
            self.cross = Attention(width, shape.heads, flash)
        self.norm_feed = nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, shape.hidden), nn.GELU(),
                                  nn.Linear(shape.hidden, width))

    def forward(self, x, memory=None):
        normed = self.norm_self(x)
        x = x + self.attention(normed, normed, causal=self.decoder)
        if self.decoder:
            x = x + self.cross(self.norm_cross(x), memory)
        return x + self.feed(self.norm_feed(x))


class ReportWriter(nn.Module):
    """Image in, logits of the next word out."""

    def __init__(self, shape, flash=True):
        super().__init__()
        width, tokens = shape.width, (shape.image // shape.patch) ** 2
        self.patches = nn.Conv2d(1, width, shape.patch, shape.patch)
        # Places start louder than words: where something is decides what the report says of it.
        spread = 0.64 * width ** -0.5
        self.image_places = nn.Parameter(torch.randn(1, tokens, width) * 2.5 * spread)
        self.text_places = nn.Parameter(torch.randn(1, shape.length, width) * 2.5 * spread)
        self.encoder = nn.ModuleList(Block(shape, False, flash) for _ in range(shape.encoder))
        self.decoder = nn.ModuleList(Block(shape, True, flash) for _ in range(shape.decoder))
        self.words = nn.Embedding(shape.vocabulary, width)
        nn.init.normal_(self.words.weight, std=spread)
        self.norm = nn.LayerNorm(width)

    def encode(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2) + self.image_places
        for block in self.encoder:
            x = block(x)
        return x

    def decode(self, memory, tokens):
        x = self.words(tokens) + self.text_places[:, :tokens.shape[1]]
        for block in self.decoder:
            x = block(x, memory)
        return F.linear(self.norm(x), self.words.weight)      # output tied to the embedding

    def forward(self, images, tokens):
        return self.decode(self.encode(images), tokens)

    @torch.no_grad()
    def write(self, images, begin, length):
        """Write reports of `length` tokens greedily, starting from the token `begin`."""
        memory = self.encode(images)
        tokens = torch.full((len(images), 1), begin, dtype=torch.long, device=images.device)
        while tokens.shape[1] < length:
            best = self.decode(memory, tokens)[:, -1:].argmax(-1)
            tokens = torch.cat([tokens, best], 1)
        return tokens
