"""Plans of MXNet 1.9.1 and dmlc's memonger for networks of `mx.models`: constants that we measured once.

MiB of internal memory (outputs counted; arguments, gradients of arguments, auxiliary states and workspaces
not) after simple_bind(grad_req="write") on the CPU, MXNET_SUBGRAPH_BACKEND=NONE. memonger's search ran
with its context changed to cpu. Batch and shapes as in the benchmark.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """`none`: the sum of all outputs of the training graph; `in_place`: NNVM_EXEC_MATCH_RANGE=0; `mirror`:
    MXNET_BACKWARD_DO_MIRROR=1. `nodes`: operators of the training graph. None: not measured."""

    none: int | None
    in_place: int
    sharing: int
    mirror: int
    memonger: int
    nodes: int


RESNET = {
    ("memonger", 50): Measured(9461, 8112, 4899, 2920, 1658, 361),
    ("memonger", 101): Measured(14043, 12069, 7190, 4170, 2050, 701),
    ("memonger", 152): Measured(19702, 16957, 10020, 5713, 2350, 1041),
    ("memonger", 200): Measured(28326, 24405, 14332, 8065, 2520, 1361),
    ("memonger", 500): Measured(66057, 56991, 33198, 18355, 3262, 3361),
    ("memonger", 1001): Measured(129122, 111456, 64731, 35554, 4366, 6701),
    ("v2", 50): Measured(9048, 5292, 2640, 2732, 1219, 353),
    ("v2", 101): Measured(13630, 7792, 3890, 3982, 1543, 693),
    ("v2", 152): Measured(19290, 10879, 5434, 5525, 1636, 1033),
    ("v2", 200): Measured(27914, 15583, 7786, 7877, 1673, 1353),
    ("v2", 500): Measured(65645, 36164, 18077, 18167, 2224, 3353),
    ("v2", 1001): Measured(128709, 70563, 35277, 35366, 3192, 6693),
}

LSTM = {
    ("loss per step", 8): Measured(None, 1436, 428, 416, 350, 1032),
    ("loss per step", 16): Measured(None, 2872, 576, 548, 416, 2064),
    ("loss per step", 32): Measured(None, 5745, 871, 812, 471, 4128),
    ("loss per step", 64): Measured(None, 11491, 1462, 1339, 590, 8256),
    ("one softmax over concat", 8): Measured(None, 1282, 392, 380, 319, 990),
    ("one softmax over concat", 16): Measured(None, 2564, 545, 517, 390, 1974),
    ("one softmax over concat", 32): Measured(None, 5128, 864, 803, 545, 3942),
    ("one softmax over concat", 64): Measured(19409, 10256, 1502, 1377, 855, 7878),
}
"""With memonger's marks at every step. "loss per step" with a cross-entropy whose output is only the sum, as
in memonger's own example, plans 1460 and 518 at 64 steps: SoftmaxOutput keeps 78 MiB of outputs."""

PUBLISHED = (
    "Chen et al. 2016 report 48 GB to 7 GB for a 1000-layer ResNet (stages not given), for about 30 % more "
    "time, and more than 4 times less than the optimized plan for the LSTM."
)
