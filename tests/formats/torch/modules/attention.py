"""Transformers of pictures, and attention in several ways of writing it."""

import torch
from torch import nn
from torch.nn import functional as F


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 4, 4)
        self.cls, self.pos = nn.Parameter(torch.randn(1, 1, 16)), nn.Parameter(torch.randn(1, 5, 16) * 0.1)
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, F.gelu, batch_first=True, norm_first=True)
        self.encoder, self.head = (
            nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
            nn.Linear(16, 5),
        )

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.pos
        return self.head(self.encoder(x)[:, 0])


class Swin(nn.Module):
    """A shifted window: roll, partition, relative bias, mask, and back."""

    def __init__(self, size=8, window=4, width=16, heads=2):
        super().__init__()
        self.window, self.heads = window, heads
        self.norm, self.qkv, self.proj = (
            nn.LayerNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )
        self.bias = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads) * 0.1)
        at = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        apart = at[:, :, None] - at[:, None, :] + window - 1
        self.register_buffer("place", apart[0] * (2 * window - 1) + apart[1])
        region = torch.zeros(size, size)
        for i, rows in enumerate((slice(0, 4), slice(4, 6), slice(6, 8))):
            for j, columns in enumerate((slice(0, 4), slice(4, 6), slice(6, 8))):
                region[rows, columns] = 3 * i + j
        parts = region.view(2, 4, 2, 4).permute(0, 2, 1, 3).reshape(-1, 16)
        self.register_buffer("mask", (parts[:, None] != parts[:, :, None]).float() * -100.0)

    def forward(self, x):
        b, h, w, c = x.shape
        m = self.window
        y = torch.roll(self.norm(x), (-2, -2), dims=(1, 2))
        y = y.view(b, h // m, m, w // m, m, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, m * m, c)
        qkv = self.qkv(y).reshape(-1, m * m, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        scores = (q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1)
        bias = self.bias[self.place.view(-1)].view(m * m, m * m, -1).permute(2, 0, 1).contiguous()
        scores = scores + bias.unsqueeze(0)
        scores = scores.view(b, -1, self.heads, m * m, m * m) + self.mask.unsqueeze(1).unsqueeze(0)
        weights = scores.view(-1, self.heads, m * m, m * m).softmax(-1)
        y = self.proj((weights @ v).transpose(1, 2).reshape(-1, m * m, c))
        y = y.view(b, h // m, w // m, m, m, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return x + torch.roll(y, shifts=(2, 2), dims=(1, 2))


class Multihead(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x, y):
        return self.attention(x, y, y, need_weights=False)[0]


class Translator(nn.Module):
    """Encoder and decoder, with a causal mask."""

    def __init__(self):
        super().__init__()
        self.model = nn.Transformer(16, 2, 1, 1, 32, 0.0, batch_first=True)

    def forward(self, x, y):
        mask = torch.triu(torch.full((y.shape[1], y.shape[1]), float("-inf")), diagonal=1)
        return self.model(x, y, tgt_mask=mask, tgt_is_causal=True)


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.tokens, self.channels = nn.LayerNorm(8), nn.Linear(6, 6), nn.Linear(8, 8)

    def forward(self, x):
        x = x + self.tokens(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return x + F.gelu(self.channels(x), approximate="tanh")


class Perceiver(nn.Module):
    """Latent vectors ask the data; numpy's matmul with broadcasting, layers without scale."""

    def __init__(self):
        super().__init__()
        self.latents, self.key = nn.Parameter(torch.randn(3, 8)), nn.Linear(8, 8, bias=False)
        self.norm = nn.LayerNorm(8, elementwise_affine=False)

    def forward(self, x):
        x = self.norm(x)
        weights = torch.matmul(self.latents, self.key(x).mT).softmax(-1)
        return torch.baddbmm(weights @ x, weights, x)


NETWORKS = {
    "vit": lambda: (ViT(), (torch.randn(2, 3, 8, 8),)),
    "swin": lambda: (Swin(), (torch.randn(2, 8, 8, 16),)),
    "multihead": lambda: (Multihead(), (torch.randn(2, 5, 16), torch.randn(2, 7, 16))),
    "translator": lambda: (Translator(), (torch.randn(2, 5, 16), torch.randn(2, 4, 16))),
    "mixer": lambda: (Mixer(), (torch.randn(2, 6, 8),)),
    "perceiver": lambda: (Perceiver(), (torch.randn(2, 6, 8),)),
}
