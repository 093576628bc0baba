"""Recurrent networks, networks of waves, points and tables."""

import torch
from torch import nn
from torch.nn import functional as F


class LSTMTagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(20, 8), nn.LSTM(8, 6, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, 4)

    def forward(self, ids):
        return self.head(self.lstm(self.embed(ids))[0])


class GRUClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.head = nn.GRU(5, 6, bias=False), nn.Linear(6, 3)

    def forward(self, x):
        out, last = self.gru(x)
        return self.head(last[-1]) + out[-1].sum()


class Elman(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(5, 6, nonlinearity="relu")

    def forward(self, x, h):
        return self.rnn(x, h)


class Cells(nn.Module):
    """A cell in a loop of Python."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(4, 5)

    def forward(self, x):
        h, c = x.new_zeros(x.shape[1], 5), x.new_zeros(x.shape[1], 5)
        outs = []
        for step in x.unbind(0):
            h, c = self.cell(step, (h, c))
            outs.append(h)
        return torch.stack(outs)


class WaveNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Conv1d(1, 6, 1)
        self.filters = nn.ModuleList(nn.Conv1d(6, 12, 2, dilation=2**i) for i in range(3))
        self.skips, self.outs = (nn.ModuleList(nn.Conv1d(6, 6, 1) for _ in range(3)) for _ in range(2))

    def forward(self, x):
        x, total = self.inp(x), 0
        for i, conv in enumerate(self.filters):
            a, b = conv(F.pad(x, (2**i, 0))).chunk(2, 1)
            y = torch.tanh(a) * torch.sigmoid(b)
            total = total + self.skips[i](y)
            x = x + self.outs[i](y)
        return F.relu(total)


class TemporalBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 4, 3, padding=2))
        self.up = nn.ConvTranspose1d(4, 3, 4, 2, 1)

    def forward(self, x):
        y = self.conv(x)[:, :, :-2]
        return self.up(F.glu(torch.cat([y, y.detach()], 1), dim=1))


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.turn, self.a, self.b = nn.Linear(8, 9), nn.Conv1d(3, 8, 1), nn.Conv1d(8, 8, 1)
        self.bn, self.head = nn.BatchNorm1d(8), nn.Linear(8, 4)

    def forward(self, x):
        feature = torch.max(F.relu(self.a(x)), 2, keepdim=True)[0].view(-1, 8)
        turn = self.turn(feature).view(-1, 3, 3) + torch.eye(3)
        x = torch.bmm(x.transpose(2, 1), turn).transpose(2, 1)
        x = self.bn(self.b(F.relu(self.a(x)))).max(dim=2).values
        return F.log_softmax(self.head(x), dim=1)


class DLRM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(10, 4, mode="sum") for _ in range(3))
        self.bottom, self.top = nn.Sequential(nn.Linear(5, 4), nn.ReLU()), nn.Linear(10, 1)

    def forward(self, dense, sparse):
        x = self.bottom(dense)
        found = [x] + [table(sparse[:, i : i + 1]) for i, table in enumerate(self.tables)]
        all_of = torch.stack(found, 1)
        products = torch.bmm(all_of, all_of.transpose(1, 2))
        i, j = torch.tril_indices(4, 4, offset=-1)
        return torch.sigmoid(self.top(torch.cat([x, products[:, i, j]], 1)))


class GraphNetwork(nn.Module):
    """Messages along edges are added up at their ends."""

    def __init__(self):
        super().__init__()
        self.message, self.update = nn.Linear(6, 6), nn.Linear(12, 6)

    def forward(self, x, edges):
        sent = self.message(x)[edges[0]]
        got = torch.zeros_like(x).index_add(0, edges[1], sent)
        return self.update(torch.cat([x, got], -1))


class Autoencoder(nn.Module):
    """A variational one whose noise is an input."""

    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(8, 6), nn.Linear(3, 8)

    def forward(self, x, noise):
        mean, log_var = self.enc(x).chunk(2, dim=-1)
        z = mean + torch.exp(0.5 * log_var) * noise
        divergence = -0.5 * torch.sum(1 + log_var - mean.pow(2) - log_var.exp())
        return F.binary_cross_entropy_with_logits(self.dec(z), torch.sigmoid(x), reduction="sum") + divergence


NETWORKS = {
    "lstm": lambda: (LSTMTagger(), (torch.randint(0, 20, (2, 5)),)),
    "gru": lambda: (GRUClassifier(), (torch.randn(5, 2, 5),)),
    "rnn": lambda: (Elman(), (torch.randn(5, 2, 5), torch.randn(1, 2, 6))),
    "cells": lambda: (Cells(), (torch.randn(3, 2, 4),)),
    "wavenet": lambda: (WaveNet(), (torch.randn(2, 1, 16),)),
    "temporal": lambda: (TemporalBlock(), (torch.randn(2, 4, 9),)),
    "pointnet": lambda: (PointNet(), (torch.randn(3, 3, 7),)),
    "dlrm": lambda: (DLRM(), (torch.randn(3, 5), torch.randint(0, 10, (3, 3)))),
    "graph": lambda: (GraphNetwork(), (torch.randn(5, 6), torch.randint(0, 5, (2, 9)))),
    "autoencoder": lambda: (Autoencoder(), (torch.randn(3, 8), torch.randn(3, 3))),
}
