"""Networks of pictures that move."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.formats.torch.modules.vision import image


class Video(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.pool = nn.Conv3d(2, 4, 3, padding=1), nn.BatchNorm3d(4), nn.MaxPool3d(2)

    def forward(self, x):
        return self.pool(F.elu(self.bn(self.conv(x))))


class Separated(nn.Module):
    """Convolutions in space and in time, one after the other, as R(2+1)D's."""

    def __init__(self):
        super().__init__()
        self.space, self.between = nn.Conv3d(2, 5, (1, 3, 3), (1, 2, 2), (0, 1, 1)), nn.BatchNorm3d(5)
        self.time, self.after = nn.Conv3d(5, 4, (3, 1, 1), (1, 1, 1), (1, 0, 0)), nn.BatchNorm3d(4)
        self.down = nn.Sequential(nn.Conv3d(2, 4, 1, (1, 2, 2), bias=False), nn.BatchNorm3d(4))
        self.pool, self.head = nn.AdaptiveAvgPool3d(1), nn.Linear(4, 3)

    def forward(self, x):
        y = self.after(self.time(F.relu(self.between(self.space(x)))))
        return self.head(torch.flatten(self.pool(F.relu(y + self.down(x))), 1))


NETWORKS = {
    "conv3d": lambda: (Video(), image(2, 2, 4, 6, 6)),
    "r2plus1d": lambda: (Separated(), image(2, 2, 4, 6, 6)),
}
