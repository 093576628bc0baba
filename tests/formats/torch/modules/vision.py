"""Convolutional networks."""

import torch
from torch import nn
from torch.nn import functional as F


def image(*shape):
    return (torch.randn(*shape),)


def norm_act(i, o, k=3, s=1, g=1, act=nn.ReLU):
    return nn.Sequential(
        nn.Conv2d(i, o, k, s, k // 2, groups=g, bias=False), nn.BatchNorm2d(o), act(inplace=True)
    )


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 4, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(4, 6, 3), nn.Tanh(), nn.AvgPool2d(2)
        )
        self.head = nn.Linear(6, 5)

    def forward(self, x):
        return self.head(torch.flatten(self.features(x), 1))


class AlexNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 5, 2, 2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(8, 8, 3, padding="same"),
        )
        self.pool = nn.AdaptiveAvgPool2d((2, 2))
        self.head = nn.Sequential(nn.Dropout(0.0), nn.Linear(32, 8), nn.ReLU(inplace=True), nn.Linear(8, 5))

    def forward(self, x):
        return self.head(self.pool(self.features(x)).flatten(1))


class VGG(nn.Module):
    def __init__(self):
        super().__init__()
        layers = []
        for i, o in ((3, 4), (4, 8)):
            layers += [nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2)]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(8 * 16, 5)

    def forward(self, x):
        return self.head(self.features(x).view(x.size(0), -1))


class Basic(nn.Module):
    def __init__(self, i, o, s):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o)
        self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        self.down = nn.Sequential(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.down(x)
        return F.relu(out, inplace=True)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True)
        )
        self.layers = nn.Sequential(Basic(8, 8, 1), Basic(8, 16, 2))
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(16, 5)

    def forward(self, x):
        return self.fc(torch.flatten(self.pool(self.layers(self.stem(x))), 1))


class Bottleneck(nn.Module):
    """As ResNeXt's: grouped."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            norm_act(8, 8, 1), norm_act(8, 8, 3, 1, 4), nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)
        )

    def forward(self, x):
        return F.relu(x + self.body(x)).mean((2, 3))


class SqueezeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.squeeze, self.one, self.three = (
            nn.Conv2d(6, 3, 1),
            nn.Conv2d(3, 4, 1),
            nn.Conv2d(3, 4, 3, padding=1),
        )

    def forward(self, x):
        x = F.relu(self.squeeze(F.max_pool2d(x, 3, 2, ceil_mode=True)))
        return torch.cat([F.relu(self.one(x)), F.relu(self.three(x))], 1)


class DenseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(4 + 3 * i), nn.ReLU(), nn.Conv2d(4 + 3 * i, 3, 3, padding=1))
            for i in range(3)
        )
        self.transition = nn.Conv2d(13, 6, 1)

    def forward(self, x):
        found = [x]
        for layer in self.layers:
            found.append(layer(torch.cat(found, 1)))
        return F.avg_pool2d(self.transition(torch.cat(found, 1)), 2)


class Inception(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = norm_act(4, 4, 1), nn.Sequential(norm_act(4, 3, 1), norm_act(3, 4, 3))
        self.c = nn.Sequential(
            nn.Conv2d(4, 3, (1, 5), padding=(0, 2)), nn.Conv2d(3, 4, (5, 1), padding=(2, 0))
        )
        self.d = nn.Conv2d(4, 2, 1)

    def forward(self, x):
        pooled = F.avg_pool2d(x, 3, stride=1, padding=1)
        return torch.cat([self.a(x), self.b(x), self.c(x), self.d(pooled)], 1)


class MobileNetV2(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            norm_act(4, 12, 1, act=nn.ReLU6),
            norm_act(12, 12, 3, 1, 12, act=nn.ReLU6),
            nn.Conv2d(12, 4, 1, bias=False),
            nn.BatchNorm2d(4),
        )

    def forward(self, x):
        return x + self.body(x)


class Squeeze(nn.Module):
    def __init__(self, channels, gate):
        super().__init__()
        self.down, self.up, self.gate = nn.Conv2d(channels, 2, 1), nn.Conv2d(2, channels, 1), gate

    def forward(self, x):
        scale = x.mean((2, 3), keepdim=True)
        return x * self.gate(self.up(F.relu(self.down(scale))))


class MobileNetV3(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            norm_act(3, 8, 3, 2, act=nn.Hardswish), norm_act(8, 8, 5, 1, 8, act=nn.Hardswish)
        )
        self.se = Squeeze(8, nn.Hardsigmoid())

    def forward(self, x):
        return self.se(self.body(x))


class EfficientNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(norm_act(4, 8, 1, act=nn.SiLU), norm_act(8, 8, 3, 1, 8, act=nn.SiLU))
        self.se, self.out, self.bn = (
            Squeeze(8, nn.Sigmoid()),
            nn.Conv2d(8, 4, 1, bias=False),
            nn.BatchNorm2d(4),
        )

    def forward(self, x):
        return x + self.bn(self.out(self.se(self.body(x))))


class ShuffleNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.branch = nn.Sequential(
            norm_act(4, 4, 1), nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.BatchNorm2d(4)
        )

    def forward(self, x):
        left, right = x.chunk(2, dim=1)
        x = torch.cat([left, self.branch(right)], 1)
        b, c, h, w = x.shape
        return x.view(b, 2, c // 2, h, w).transpose(1, 2).contiguous().view(b, c, h, w)


class RegNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            norm_act(8, 8, 1),
            norm_act(8, 8, 3, 2, 2),
            Squeeze(8, nn.Sigmoid()),
            nn.Conv2d(8, 8, 1),
            nn.BatchNorm2d(8),
        )
        self.skip = nn.Sequential(nn.Conv2d(8, 8, 1, 2, bias=False), nn.BatchNorm2d(8))

    def forward(self, x):
        return F.relu(self.skip(x) + self.body(x))


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm0 = nn.Conv2d(3, 8, 4, 4), LayerNorm2d(8, eps=1e-6)
        self.dw, self.norm = nn.Conv2d(8, 8, 7, padding=3, groups=8), nn.LayerNorm(8, eps=1e-6)
        self.up, self.down, self.gamma = (
            nn.Linear(8, 32),
            nn.Linear(32, 8),
            nn.Parameter(torch.full((8,), 0.5)),
        )

    def forward(self, x):
        x = self.norm0(self.stem(x))
        y = self.norm(self.dw(x).permute(0, 2, 3, 1))
        y = self.gamma * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class UNet(nn.Module):
    """Of a diffusion model: time embedding, group normalization, attention over pixels, skips."""

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


class Frozen(nn.Module):
    """Normalization that stays in evaluation mode while the rest trains."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.fc = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)
        self.bn.running_mean.uniform_()

    def train(self, mode=True):
        super().train(mode)
        self.bn.eval()
        return self

    def forward(self, x):
        return self.fc(self.bn(self.conv(x)).amax((2, 3)))


class Video(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.pool = nn.Conv3d(2, 4, 3, padding=1), nn.BatchNorm3d(4), nn.MaxPool3d(2)

    def forward(self, x):
        return self.pool(F.elu(self.bn(self.conv(x))))


NETWORKS = {
    "lenet": lambda: (LeNet(), image(2, 1, 14, 14)),
    "alexnet": lambda: (AlexNet(), image(2, 3, 19, 19)),
    "vgg": lambda: (VGG(), image(2, 3, 16, 16)),
    "resnet": lambda: (ResNet(), image(2, 3, 12, 12)),
    "resnext": lambda: (Bottleneck(), image(2, 8, 6, 6)),
    "squeezenet": lambda: (SqueezeNet(), image(2, 6, 10, 10)),
    "densenet": lambda: (DenseNet(), image(2, 4, 8, 8)),
    "inception": lambda: (Inception(), image(2, 4, 8, 8)),
    "mobilenet2": lambda: (MobileNetV2(), image(2, 4, 8, 8)),
    "mobilenet3": lambda: (MobileNetV3(), image(2, 3, 8, 8)),
    "efficientnet": lambda: (EfficientNet(), image(2, 4, 8, 8)),
    "shufflenet": lambda: (ShuffleNet(), image(2, 8, 6, 6)),
    "regnet": lambda: (RegNet(), image(2, 8, 8, 8)),
    "convnext": lambda: (ConvNeXt(), image(2, 3, 16, 16)),
    "unet": lambda: (UNet(), (torch.randn(2, 3, 8, 8), torch.rand(2))),
    "segmenter": lambda: (Segmenter(), image(2, 3, 8, 8)),
    "super-resolution": lambda: (SuperResolution(), image(2, 3, 8, 8)),
    "frozen": lambda: (Frozen().train(), image(2, 3, 8, 8)),
    "video": lambda: (Video(), image(2, 2, 4, 6, 6)),
}
