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


class Inception1(nn.Module):
    """Four branches, as GoogLeNet's, and a second head that helps the gradient on its way."""

    def __init__(self):
        super().__init__()
        self.one, self.three = norm_act(3, 4, 1), nn.Sequential(norm_act(3, 2, 1), norm_act(2, 4, 3))
        self.five, self.pooled = nn.Sequential(norm_act(3, 2, 1), norm_act(2, 2, 3)), norm_act(3, 2, 1)
        self.pool = nn.MaxPool2d(3, stride=1, padding=1, ceil_mode=True)
        self.helper, self.head = nn.Linear(12, 5), nn.Linear(12, 5)
        self.last = norm_act(12, 12, 3)

    def forward(self, x):
        x = torch.cat([self.one(x), self.three(x), self.five(x), self.pooled(self.pool(x))], 1)
        helped = self.helper(F.adaptive_avg_pool2d(x, 1).flatten(1))
        return self.head(self.last(x).mean((2, 3))), helped


class MNASNet(nn.Module):
    """Inverted residuals whose averages move slowly."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 12, 1, bias=False),
            nn.BatchNorm2d(12, momentum=3e-4),
            nn.ReLU(inplace=True),
            nn.Conv2d(12, 12, 5, padding=2, groups=12, bias=False),
            nn.BatchNorm2d(12, momentum=3e-4),
            nn.ReLU(inplace=True),
            nn.Conv2d(12, 4, 1, bias=False),
            nn.BatchNorm2d(4, momentum=3e-4),
        )
        self.head = nn.Sequential(nn.Dropout(0.0, inplace=True), nn.Linear(4, 5))

    def forward(self, x):
        return self.head((self.body(x) + x).mean([2, 3]))


class EfficientNetV2(nn.Module):
    """A fused block, then one with a gate; paths are dropped sample by sample, here none."""

    def __init__(self):
        super().__init__()
        self.fused = nn.Sequential(norm_act(4, 8, 3, act=nn.SiLU), nn.Conv2d(8, 4, 1), nn.BatchNorm2d(4))
        self.body = nn.Sequential(
            norm_act(4, 8, 1, act=nn.SiLU),
            norm_act(8, 8, 3, 1, 8, act=nn.SiLU),
            Squeeze(8, nn.Sigmoid()),
            nn.Conv2d(8, 4, 1),
            nn.BatchNorm2d(4),
        )

    def dropped(self, x, kept=1.0):
        noise = torch.empty([x.shape[0], 1, 1, 1], dtype=x.dtype).bernoulli_(kept)
        return x * noise.div_(kept)

    def forward(self, x):
        x = x + self.dropped(self.fused(x))
        return x + self.dropped(self.body(x))


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


NETWORKS = {
    "lenet": lambda: (LeNet(), image(2, 1, 14, 14)),
    "alexnet": lambda: (AlexNet(), image(2, 3, 19, 19)),
    "vgg": lambda: (VGG(), image(2, 3, 16, 16)),
    "resnet": lambda: (ResNet(), image(2, 3, 12, 12)),
    "resnext": lambda: (Bottleneck(), image(2, 8, 6, 6)),
    "squeezenet": lambda: (SqueezeNet(), image(2, 6, 10, 10)),
    "densenet": lambda: (DenseNet(), image(2, 4, 8, 8)),
    "googlenet": lambda: (Inception1(), image(2, 3, 6, 6)),
    "inception": lambda: (Inception(), image(2, 4, 8, 8)),
    "mobilenet2": lambda: (MobileNetV2(), image(2, 4, 8, 8)),
    "mobilenet3": lambda: (MobileNetV3(), image(2, 3, 8, 8)),
    "efficientnet": lambda: (EfficientNet(), image(2, 4, 8, 8)),
    "efficientnet2": lambda: (EfficientNetV2(), image(3, 4, 6, 6)),
    "mnasnet": lambda: (MNASNet(), image(2, 4, 6, 6)),
    "shufflenet": lambda: (ShuffleNet(), image(2, 8, 6, 6)),
    "regnet": lambda: (RegNet(), image(2, 8, 8, 8)),
    "convnext": lambda: (ConvNeXt(), image(2, 3, 16, 16)),
    "frozen": lambda: (Frozen().train(), image(2, 3, 8, 8)),
}
