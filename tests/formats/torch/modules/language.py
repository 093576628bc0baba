"""Language models."""

import math

import torch
from torch import nn
from torch.nn import functional as F


def tokens(*shape, count=32):
    return torch.randint(0, count, shape)


def padding():
    return torch.tensor([[1.0] * 6, [1.0] * 4 + [0.0] * 2])


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out, self.drop = (
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
            nn.Dropout(0.0),
        )

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.attn(self.ln_1(x)).split(c, dim=2)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.proj(y.transpose(1, 2).contiguous().view(b, t, c)))
        return x + self.drop(self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh")))


class GPT(nn.Module):
    def __init__(self, vocabulary=32, width=16, heads=2, layers=2, length=8, tied=True):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.lm_head.weight = self.wte.weight

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1], device=idx.device))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class GPTLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = GPT()

    def forward(self, idx, target):
        logits = self.model(idx)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), target.view(-1))


class OldGPT(nn.Module):
    """Scores written out, masked by a buffer."""

    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(16, 48), nn.Linear(16, 16)
        self.register_buffer("bias", torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, 2, c // 2).transpose(1, 2) for y in self.qkv(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-2, -1) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))
        y = F.softmax(scores, dim=-1) @ v
        return self.proj(y.transpose(1, 2).reshape(b, t, c))


class BERT(nn.Module):
    """Padding masks as additive numbers, segment embeddings, a pooled head."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads = heads
        self.word, self.place, self.kind = (
            nn.Embedding(32, width, padding_idx=0),
            nn.Embedding(8, width),
            nn.Embedding(2, width),
        )
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.dense, self.pooler, self.head = (
            nn.Linear(width, width),
            nn.Linear(width, width),
            nn.Linear(width, 2),
        )

    def maps(self):
        return self.query, self.key, self.value

    def forward(self, ids, segments, mask):
        b, t = ids.shape
        x = self.norm(self.word(ids) + self.place(torch.arange(t)[None]) + self.kind(segments))
        extended = (1.0 - mask[:, None, None, :]) * torch.finfo(x.dtype).min
        q, k, v = (
            f(x).view(b, t, self.heads, -1).permute(0, 2, 1, 3) for f in (self.query, self.key, self.value)
        )
        weights = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1]) + extended, -1)
        y = torch.matmul(weights, v).permute(0, 2, 1, 3).contiguous().view(b, t, -1)
        x = self.norm(x + self.dense(y))
        return self.head(torch.tanh(self.pooler(x[:, 0])))


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def turned(x):
    left, right = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-right, left), dim=-1)


class Llama(nn.Module):
    """Rotary positions, grouped queries, gated units."""

    def __init__(self, width=16, heads=4, groups=2):
        super().__init__()
        self.heads, self.groups, size = heads, groups, width // heads
        self.embed, self.norm, self.norm2 = (
            nn.Embedding(32, width),
            RMSNorm(width),
            nn.RMSNorm(width, eps=1e-5),
        )
        self.q, self.k, self.v = (nn.Linear(width, n * size, bias=False) for n in (heads, groups, groups))
        self.o, self.gate, self.up = (nn.Linear(width, n, bias=False) for n in (width, 24, 24))
        self.down, self.head = nn.Linear(24, width, bias=False), nn.Linear(width, 32, bias=False)
        rates = 1.0 / (10000 ** (torch.arange(0, size, 2).float() / size))
        self.register_buffer("rates", rates, persistent=False)

    def forward(self, ids):
        x = self.embed(ids)
        b, t, c = x.shape
        angles = torch.outer(torch.arange(t, dtype=torch.float32), self.rates)
        cos, sin = (f(torch.cat((angles, angles), -1))[None, None] for f in (torch.cos, torch.sin))
        y = self.norm(x)
        q = self.q(y).view(b, t, self.heads, -1).transpose(1, 2)
        k, v = (f(y).view(b, t, self.groups, -1).transpose(1, 2) for f in (self.k, self.v))
        q, k = q * cos + turned(q) * sin, k * cos + turned(k) * sin
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, c))
        y = self.norm2(x)
        return self.head(x + self.down(F.silu(self.gate(y)) * self.up(y)))


class RepeatedHeads(nn.Module):
    """Keys shared by writing them out, as older programs do."""

    def __init__(self):
        super().__init__()
        self.q, self.kv = nn.Linear(16, 16), nn.Linear(16, 8)

    def forward(self, x):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, 4, 4).transpose(1, 2)
        k = self.kv(x).view(b, t, 2, 4).transpose(1, 2)
        k = k[:, :, None].expand(b, 2, 2, t, 4).reshape(b, 4, t, 4)
        mask = torch.ones(t, t, dtype=torch.bool).tril()
        return F.scaled_dot_product_attention(q, k, k.repeat_interleave(1, dim=1), attn_mask=mask)


class T5(nn.Module):
    """Relative positions in buckets, no scale, no bias."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads = heads
        self.embed, self.norm = nn.Embedding(32, width), RMSNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.relative = nn.Embedding(8, heads)

    def bucket(self, apart, count=8, longest=16):
        count //= 2
        found = (apart > 0).long() * count
        apart = apart.abs()
        exact = count // 2
        far = exact + (torch.log(apart.float() / exact) / math.log(longest / exact) * (count - exact)).long()
        far = torch.min(far, torch.full_like(far, count - 1))
        return found + torch.where(apart < exact, apart, far)

    def forward(self, ids):
        x = self.embed(ids)
        b, t, c = x.shape
        y = self.norm(x)
        q, k, v = (f(y).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        places = torch.arange(t)
        bias = self.relative(self.bucket(places[None, :] - places[:, None])).permute(2, 0, 1).unsqueeze(0)
        weights = F.softmax((q @ k.transpose(3, 2) + bias).float(), dim=-1).type_as(q)
        return x + self.o((weights @ v).transpose(1, 2).contiguous().view(b, t, c))


class MixtureOfExperts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 3)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        weights, chosen = torch.topk(self.gate(x).softmax(-1), 2, dim=-1)
        full = torch.zeros_like(self.gate(x)).scatter(-1, chosen, weights)
        return torch.stack([e(x) for e in self.experts], -1).mul(full.unsqueeze(-2)).sum(-1)


NETWORKS = {
    "gpt": lambda: (GPT(), (tokens(2, 8),)),
    "gpt-loss": lambda: (GPTLoss(), (tokens(2, 8), tokens(2, 8))),
    "gpt-old": lambda: (OldGPT(), (torch.randn(2, 8, 16),)),
    "bert": lambda: (
        BERT(),
        (tokens(2, 6), tokens(2, 6, count=2), torch.tensor([[1.0] * 6, [1.0] * 4 + [0.0] * 2])),
    ),
    "llama": lambda: (Llama(), (tokens(2, 6),)),
    "repeated-heads": lambda: (RepeatedHeads(), (torch.randn(2, 5, 16),)),
    "t5": lambda: (T5(), (tokens(2, 6),)),
    "experts": lambda: (MixtureOfExperts(), (torch.randn(4, 8),)),
}
