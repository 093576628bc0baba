"""Networks that say something of every pixel: noise, classes, boxes, motion."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.formats.torch.modules.vision import image, norm_act


class UNet(nn.Module):
    """The U-Net of a diffusion model: time embedding, group normalization, attention over pixels, skips."""

    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
        self.inp, self.down, self.up = (
            nn.Conv2d(3, 8, 3, 1, 1),
            nn.Conv2d(8, 16, 3, 2, 1),
            nn.Conv2d(24, 8, 3, 1, 1),
        )
        self.norm, self.qkv, self.proj = nn.GroupNorm(4, 16), nn.Conv2d(16, 48, 1), nn.Conv2d(16, 16, 1)
        self.out = nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x, t):
        frequencies = torch.exp(torch.arange(4) * -1.5)
        angles = t[:, None] * frequencies[None]
        embedded = self.time(torch.cat([angles.sin(), angles.cos()], dim=-1))
        skip = self.inp(x)
        h = self.down(F.silu(skip)) + embedded[:, :, None, None]
        b, c, height, width = h.shape
        q, k, v = self.qkv(self.norm(h)).reshape(b, 3, c, height * width).unbind(1)
        weights = torch.softmax(torch.einsum("bci,bcj->bij", q, k) * c**-0.5, dim=-1)
        h = h + self.proj(torch.einsum("bij,bcj->bci", weights, v).reshape(b, c, height, width))
        h = F.interpolate(h, scale_factor=2, mode="nearest")
        return self.out(F.silu(self.up(torch.cat([h, skip], 1))))


class Segmenter(nn.Module):
    """Dilated convolutions, transposed ones, bilinear interpolation."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 6, 3, padding=2, dilation=2), nn.Conv2d(6, 6, 3, 2, 1)
        self.up = nn.ConvTranspose2d(6, 4, 3, 2, 1, output_padding=1, groups=2)
        self.head = nn.Conv2d(10, 2, 1)

    def forward(self, x):
        a = F.leaky_relu(self.a(x), 0.1)
        b = self.b(a)
        wide = F.interpolate(b, size=(8, 8), mode="bilinear", align_corners=False)
        return self.head(torch.cat([self.up(b), wide], 1))


class SuperResolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.act, self.out = (
            nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect"),
            nn.PReLU(8),
            nn.Conv2d(8, 12, 3, padding=1),
        )
        self.norm = nn.InstanceNorm2d(8, affine=True)

    def forward(self, x):
        return F.pixel_shuffle(self.out(self.act(self.norm(self.conv(x)))), 2)


class DeepLab(nn.Module):
    """Convolutions of several widths side by side, and the mean of the whole, at the size of the image."""

    def __init__(self):
        super().__init__()
        self.stem = norm_act(3, 6, 3, 2)
        self.branches = nn.ModuleList(
            nn.Sequential(nn.Conv2d(6, 4, 3, padding=d, dilation=d, bias=False), nn.BatchNorm2d(4), nn.ReLU())
            for d in (1, 2, 3)
        )
        self.whole = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(6, 4, 1), nn.ReLU())
        self.head = nn.Conv2d(16, 3, 1)

    def forward(self, x):
        size, x = x.shape[-2:], self.stem(x)
        whole = F.interpolate(self.whole(x), size=x.shape[-2:], mode="bilinear", align_corners=False)
        found = torch.cat([*(branch(x) for branch in self.branches), whole], 1)
        return F.interpolate(self.head(found), size=size, mode="bilinear", align_corners=False)


class RetinaNet(nn.Module):
    """A pyramid of features, and one pair of heads for all of its levels: classes and boxes."""

    def __init__(self, anchors=2, classes=3):
        super().__init__()
        self.levels = nn.ModuleList([norm_act(3, 4, 3, 2), norm_act(4, 6, 3, 2), norm_act(6, 8, 3, 2)])
        self.inner = nn.ModuleList(nn.Conv2d(c, 4, 1) for c in (4, 6, 8))
        self.outer = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))
        self.classes, self.scores = classes, nn.Conv2d(4, anchors * classes, 3, padding=1)
        self.boxes = nn.Conv2d(4, anchors * 4, 3, padding=1)

    def of_anchors(self, x, count):
        n, _, h, w = x.shape
        return x.view(n, -1, count, h, w).permute(0, 3, 4, 1, 2).reshape(n, -1, count)

    def forward(self, x):
        found = []
        for level in self.levels:
            x = level(x)
            found.append(x)
        top, merged = None, []
        for i in reversed(range(3)):
            side = self.inner[i](found[i])
            top = side if top is None else side + F.interpolate(top, size=side.shape[-2:], mode="nearest")
            merged.append(self.outer[i](top))
        scores = [self.of_anchors(self.scores(y), self.classes) for y in merged]
        boxes = [self.of_anchors(self.boxes(y), 4) for y in merged]
        return torch.cat(scores, 1), torch.cat(boxes, 1)


class RAFT(nn.Module):
    """Motion between two images: all products of features, looked up around where each pixel has gone."""

    def __init__(self, width=4, radius=1):
        super().__init__()
        self.radius, count = radius, (2 * radius + 1) ** 2
        self.features, self.state = nn.Conv2d(3, width, 3, 2, 1), nn.Conv2d(3, width, 3, 2, 1)
        self.update, self.gate = nn.Conv2d(width + count + 2, width, 3, padding=1), nn.Conv2d(width, width, 1)
        self.motion = nn.Conv2d(width, 2, 3, padding=1)

    def places(self, n, h, w):
        y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        return torch.stack([x, y]).float()[None].repeat(n, 1, 1, 1)

    def forward(self, first, second):
        a, b = self.features(first), self.features(second)
        n, c, h, w = a.shape
        products = torch.matmul(a.flatten(2).transpose(1, 2), b.flatten(2)) / c**0.5
        products = products.view(n * h * w, 1, h, w)
        line = torch.linspace(-self.radius, self.radius, 2 * self.radius + 1)
        around = torch.stack(torch.meshgrid(line, line, indexing="ij"), dim=-1)
        state, start = torch.tanh(self.state(first)), self.places(n, h, w)
        at = start + 0.3
        for _ in range(2):
            at = at.detach()
            grid = at.permute(0, 2, 3, 1).reshape(n * h * w, 1, 1, 2) + around
            grid = 2 * grid / torch.tensor([w - 1.0, h - 1.0]) - 1
            looked = F.grid_sample(products, grid, align_corners=True).view(n, h, w, -1).permute(0, 3, 1, 2)
            new = torch.tanh(self.update(torch.cat([state, looked, at - start], 1)))
            kept = torch.sigmoid(self.gate(state))
            state = kept * state + (1 - kept) * new
            at = at + self.motion(state)
        return at - start


NETWORKS = {
    "unet": lambda: (UNet(), (torch.randn(2, 3, 8, 8), torch.rand(2))),
    "segmenter": lambda: (Segmenter(), image(2, 3, 8, 8)),
    "super-resolution": lambda: (SuperResolution(), image(2, 3, 8, 8)),
    "deeplab": lambda: (DeepLab(), image(2, 3, 12, 12)),
    "retinanet": lambda: (RetinaNet(), image(2, 3, 16, 16)),
    "raft": lambda: (RAFT(), (torch.randn(1, 3, 8, 8), torch.randn(1, 3, 8, 8))),
}
