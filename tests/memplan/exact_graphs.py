"""Small training steps of many shapes, as planning problems: forward layers with one backward task each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mxlite.memplan import Problem, Task, Value


@dataclass(frozen=True)
class Layer:
    """Makes `nbytes` from the layers numbered `inputs` (-1: the data) in `seconds`.

    Backward reads the gradient of the output and, by letter, inputs (i) or output (o); it may write over
    that gradient if `in_place`, as forward may over its only input.
    """

    kind: str
    inputs: tuple[int, ...]
    nbytes: int
    seconds: float
    reads: str = "i"
    in_place: bool = False
    workspace: int = 0


def step(layers: Sequence[Layer], in_place: bool = True) -> Problem:
    """Forward and backward of `layers`; the last is the loss, and its gradient starts backward."""
    values = [Value("data", layers[0].nbytes, fixed=True)]
    tasks, names = [], []
    for i, layer in enumerate(layers):
        names.append(f"{layer.kind}{i}")
        values.append(Value(names[i], layer.nbytes))
        pairs = (
            ((i + 1, layer.inputs[0] + 1),) if in_place and layer.in_place and layer.inputs[0] >= 0 else ()
        )
        tasks.append(
            Task(
                names[i], layer.kind, tuple(j + 1 for j in layer.inputs), (i + 1,), pairs,
                workspace=layer.workspace, seconds=layer.seconds, cheap=layer.in_place,
            )
        )  # fmt: skip
    gradient: dict[int, int] = {}

    def new(name: str, nbytes: int) -> int:
        values.append(Value(name, nbytes))
        return len(values) - 1

    gradient[len(layers) - 1] = len(layers)  # backward of the loss starts from the loss itself
    for i in range(len(layers) - 1, -1, -1):
        layer = layers[i]
        own = gradient[i]
        reads = [own]
        if "i" in layer.reads:
            reads += [j + 1 for j in layer.inputs]
        if "o" in layer.reads:
            reads.append(i + 1)
        made = {j: new(f"d_{names[j]}_{i}", layers[j].nbytes) for j in layer.inputs if j >= 0}
        outputs = list(made.values()) or [new(f"d_weight{i}", 64)]
        if not made:
            values[-1] = Value(f"d_weight{i}", 64, fixed=True)
        pairs = ((outputs[0], own),) if in_place and layer.in_place and made else ()
        tasks.append(
            Task(
                f"{names[i]}_backward", layer.kind, tuple(dict.fromkeys(reads)), tuple(outputs), pairs,
                workspace=layer.workspace, seconds=2 * layer.seconds, recomputable=False,
            )
        )  # fmt: skip
        for j, d in made.items():
            if j in gradient:
                total = new(f"d_{names[j]}_sum{i}", layers[j].nbytes)
                pairs = ((total, gradient[j]), (total, d)) if in_place else ()
                tasks.append(
                    Task(f"{names[j]}_sum{i}", "add", (gradient[j], d), (total,), pairs, seconds=0.1)
                )
                gradient[j] = total
            else:
                gradient[j] = d
    return Problem(tuple(tasks), tuple(values), len(layers), {"arguments": 64})


def chain(sizes: Sequence[int], costs: Sequence[float], reads: str = "i") -> list[Layer]:
    """Layers in a row, of any sizes and costs."""
    return [Layer("f", (i - 1,), n, c, reads) for i, (n, c) in enumerate(zip(sizes, costs, strict=True))]


def wave(count: int) -> list[Layer]:
    """A row whose sizes and costs go up and down out of step."""
    sizes = [1024 * (2 + (5 * i) % 7) for i in range(count)]
    return chain(sizes, [1.0 + (3 * i) % 5 for i in range(count)])


def residual(blocks: int, size: int = 4096) -> list[Layer]:
    """Convolution, norm, rectifier, convolution, norm, sum: a block of a residual net; half the size after
    half of the blocks."""
    layers = [Layer("conv", (-1,), size, 8.0)]
    for b in range(blocks):
        n = size if b < (blocks + 1) // 2 else size // 2
        top = len(layers) - 1
        if layers[top].nbytes != n:
            layers.append(Layer("pool", (top,), n, 1.0))
            top += 1
        for inputs, kind, seconds, reads in (
            (top, "conv", 10.0, "i"),
            (top + 1, "norm", 1.5, "i"),
            (top + 2, "relu", 0.7, "o"),
            (top + 3, "conv", 9.0, "i"),
        ):
            layers.append(Layer(kind, (inputs,), n, seconds, reads, kind == "relu", 256 * (kind == "conv")))
        layers.append(Layer("add", (top + 4, top), n, 1.0, "", True))
    return layers


def u_net(levels: int, size: int = 1 << 14) -> list[Layer]:
    """Down to small maps and up again, with bridges between equal sizes."""
    layers: list[Layer] = []
    bridges = []
    last = -1

    def add(
        kind: str, inputs: tuple[int, ...], nbytes: int, seconds: float, reads: str, inside: bool = False
    ) -> int:
        layers.append(Layer(kind, inputs, nbytes, seconds, reads, inside))
        return len(layers) - 1

    for level in range(levels):
        n = size >> level
        for _ in range(2):
            last = add("conv", (last,), n, 12.0, "i")
            last = add("relu", (last,), n, n / 8192, "o", True)
        if level < levels - 1:
            bridges.append(last)
            last = add("pool", (last,), n // 4, n / 16384, "io")
    for level in range(levels - 2, -1, -1):
        n = size >> level
        last = add("up", (last,), n, 6.0, "i")
        last = add("join", (bridges[level], last), 2 * n, n / 4096, "")
        last = add("conv", (last,), n, 20.0, "i")
        last = add("relu", (last,), n, n / 8192, "o", True)
    add("score", (last,), size // 8, 2.0, "i")
    return layers


def branched(modules: int, branches: int = 3, size: int = 3072) -> list[Layer]:
    """Modules of parallel branches of different depth, joined."""
    layers = [Layer("conv", (-1,), size, 6.0)]
    for m in range(modules):
        top, ends = len(layers) - 1, []
        for b in range(branches):
            last = top
            for d in range(1 + b % 2):
                n = size // branches + 256 * ((b + d + m) % 3)
                layers.append(Layer("conv", (last,), n, 3.0 + 2 * ((b + 2 * d) % 3), "i"))
                last = len(layers) - 1
                layers.append(Layer("relu", (last,), n, 0.5, "o", True))
                last += 1
            ends.append(last)
        layers.append(Layer("join", tuple(ends), sum(layers[e].nbytes for e in ends), 1.0, ""))
    return layers


def vgg(counts: Sequence[int] = (2, 2, 3, 3, 3), size: int = 1 << 16) -> list[Layer]:
    """Maps that shrink by stages, large and cheap ones first; three affine layers behind."""
    layers: list[Layer] = []
    last = -1
    for stage, count in enumerate(counts):
        n = size >> stage
        for i in range(count):
            cost = 3.0 if not stage and not i else 12.0 + 2 * (stage % 2)
            for kind, seconds, reads in (("conv", cost, "i"), ("relu", n / 16384, "o")):
                layers.append(Layer(kind, (last,), n, seconds, reads, kind == "relu"))
                last = len(layers) - 1
        layers.append(Layer("pool", (last,), n // 4, n / 32768, "io"))
        last += 1
    for i in range(3):
        layers.append(Layer("fc", (last,), 512, 5.0 - i, "i"))
        last += 1
    return layers


def drawn(seed: int, count: int) -> list[Layer]:
    """A random graph in which each layer reads one to three of those shortly before it."""
    rng = np.random.default_rng(seed)
    layers = [Layer("f", (-1,), 1024, 2.0)]
    open_ends = {0}
    for i in range(1, count):
        near = range(max(0, i - 4), i)
        ends = [e for e in sorted(open_ends) if e < i - 2]  # nothing stays unread for long
        more = rng.choice(list(near), size=int(rng.integers(1, 3)), replace=True).tolist()
        inputs = (
            tuple(dict.fromkeys([*ends, *map(int, more)]))[:3] if i < count - 1 else tuple(sorted(open_ends))
        )
        open_ends.difference_update(inputs)
        open_ends.add(i)
        nbytes = int(rng.choice([512, 1024, 1536, 2048, 4096]))
        reads = str(rng.choice(["i", "o", "io", ""]))
        cheap = bool(rng.random() < 0.3)
        if cheap:
            nbytes = layers[inputs[0]].nbytes
        seconds = float(rng.integers(1, 4)) if cheap else float(rng.integers(4, 20))
        layers.append(
            Layer("g" if cheap else "f", inputs, nbytes, seconds, reads, cheap, int(rng.choice([0, 0, 200])))
        )
    return layers
