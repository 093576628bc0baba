"""Transformers of pictures, and attention in several ways of writing it."""

import math

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


class SwinV2(nn.Module):
    """A window whose scores are cosines, with a bias that a small network computes from distances."""

    def __init__(self, window=4, width=16, heads=2):
        super().__init__()
        self.window, self.heads = window, heads
        self.qkv, self.proj, self.norm = (
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
            nn.LayerNorm(width),
        )
        self.scale = nn.Parameter(torch.log(10 * torch.ones(heads, 1, 1)))
        self.bias = nn.Sequential(nn.Linear(2, 12), nn.ReLU(inplace=True), nn.Linear(12, heads, bias=False))
        line = torch.arange(1.0 - window, window)
        apart = torch.stack(torch.meshgrid([line, line], indexing="ij")).permute(1, 2, 0) * 8 / (window - 1)
        self.register_buffer("apart", torch.sign(apart) * torch.log2(apart.abs() + 1.0) / 3.0)
        at = torch.stack(torch.meshgrid([torch.arange(window)] * 2, indexing="ij")).flatten(1)
        two = (at[:, :, None] - at[:, None, :] + window - 1).permute(1, 2, 0)
        self.register_buffer("place", (two[..., 0] * (2 * window - 1) + two[..., 1]).flatten())

    def forward(self, x):
        b, h, w, c = x.shape
        m, count = self.window, self.window**2
        y = x.view(b, h // m, m, w // m, m, c).transpose(2, 3).reshape(-1, count, c)
        q, k, v = self.qkv(y).reshape(-1, count, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        scores = scores * torch.clamp(self.scale, max=math.log(100.0)).exp()
        bias = self.bias(self.apart).view(-1, self.heads)[self.place].view(count, count, -1)
        scores = scores + 16 * torch.sigmoid(bias.permute(2, 0, 1).contiguous()).unsqueeze(0)
        y = self.proj((F.softmax(scores, dim=-1) @ v).transpose(1, 2).reshape(-1, count, c))
        y = y.view(b, h // m, w // m, m, m, c).transpose(2, 3).reshape(b, h, w, c)
        return x + self.norm(y)


class MaxViT(nn.Module):
    """Attention in windows, then on a grid that reaches over all of them: the same, with two axes swapped."""

    def __init__(self, part=4, width=8):
        super().__init__()
        self.part, self.stem = part, nn.Conv2d(3, width, 3, padding=1)
        self.near, self.far = (nn.MultiheadAttention(width, 2, batch_first=True) for _ in range(2))

    def parted(self, x):
        b, c, h, w = x.shape
        p = self.part
        x = x.reshape(b, c, h // p, p, w // p, p).permute(0, 2, 4, 3, 5, 1)
        return x.reshape(b, (h // p) * (w // p), p * p, c)

    def joined(self, x, h, w):
        b, p = x.shape[0], self.part
        x = x.reshape(b, h // p, w // p, p, p, -1).permute(0, 5, 1, 3, 2, 4)
        return x.reshape(b, -1, h, w)

    def forward(self, x):
        x = self.stem(x)
        h, w = x.shape[-2:]
        y = self.parted(x)
        flat = y.reshape(-1, *y.shape[2:])
        y = y + self.near(flat, flat, flat, need_weights=False)[0].view_as(y)
        y = torch.swapaxes(y, -2, -3)
        flat = y.reshape(-1, *y.shape[2:])
        y = y + self.far(flat, flat, flat, need_weights=False)[0].view_as(y)
        return self.joined(torch.swapaxes(y, -2, -3), h, w).mean((2, 3))


class CLIP(nn.Module):
    """Pictures and texts in one space; each must find its partner."""

    def __init__(self, width=12):
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(3, width, 4, 4), nn.Flatten(2))
        self.words, self.last = nn.Embedding(16, width), nn.Linear(width, width, bias=False)
        self.temperature = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, pictures, texts):
        x = self.image(pictures).mean(-1)
        y = self.last(self.words(texts)[torch.arange(texts.shape[0]), texts.argmax(dim=-1)])
        x, y = x / x.norm(dim=-1, keepdim=True), y / y.norm(dim=-1, keepdim=True)
        scores = self.temperature.exp() * x @ y.t()
        partners = torch.arange(scores.shape[0])
        return (F.cross_entropy(scores, partners) + F.cross_entropy(scores.t(), partners)) / 2


NETWORKS = {
    "vit": lambda: (ViT(), (torch.randn(2, 3, 8, 8),)),
    "swin": lambda: (Swin(), (torch.randn(2, 8, 8, 16),)),
    "swin2": lambda: (SwinV2(), (torch.randn(2, 8, 8, 16),)),
    "maxvit": lambda: (MaxViT(), (torch.randn(2, 3, 8, 8),)),
    "clip": lambda: (CLIP(), (torch.randn(3, 3, 8, 8), torch.randint(0, 16, (3, 5)))),
    "multihead": lambda: (Multihead(), (torch.randn(2, 5, 16), torch.randn(2, 7, 16))),
    "translator": lambda: (Translator(), (torch.randn(2, 5, 16), torch.randn(2, 4, 16))),
    "mixer": lambda: (Mixer(), (torch.randn(2, 6, 8),)),
    "perceiver": lambda: (Perceiver(), (torch.randn(2, 6, 8),)),
}
