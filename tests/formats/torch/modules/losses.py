"""Losses of an affine map."""

import torch
from torch import nn
from torch.nn import functional as F


class Loss(nn.Module):
    def __init__(self, loss, size=4):
        super().__init__()
        self.fc, self.loss = nn.Linear(5, size), loss

    def forward(self, x, y):
        return self.loss(self.fc(x), y)


def of(loss, target):
    return lambda: (Loss(loss), (torch.randn(6, 5), target()))


def classes():
    return torch.tensor([0, 3, 1, 2, 0, 3])


def numbers():
    return torch.randn(6, 4)


def shares():
    return torch.rand(6, 4)


NETWORKS = {
    "cross-entropy": of(nn.CrossEntropyLoss(ignore_index=2), classes),
    "smoothed": of(nn.CrossEntropyLoss(label_smoothing=0.1), classes),
    "shares": of(F.cross_entropy, lambda: torch.softmax(numbers(), 1)),
    "nll": of(lambda x, y: F.nll_loss(F.log_softmax(x, 1), y, reduction="sum"), classes),
    "mse": of(F.mse_loss, numbers),
    "l1": of(F.l1_loss, numbers),
    "smooth-l1": of(lambda x, y: F.smooth_l1_loss(x, y, beta=0.5), numbers),
    "huber": of(lambda x, y: F.huber_loss(x, y, delta=0.5), numbers),
    "bce": of(lambda x, y: F.binary_cross_entropy(torch.sigmoid(x), y), shares),
    "bce-logits": of(nn.BCEWithLogitsLoss(pos_weight=torch.full((4,), 2.0)), shares),
    "kl": of(lambda x, y: F.kl_div(F.log_softmax(x, 1), torch.softmax(y, 1), reduction="batchmean"), numbers),
    "hinge": of(lambda x, y: torch.clamp(1 - x * y.sign(), min=0).mean(), numbers),
}
