"""`arena_ratio`: bytes of the placed arena / peak live bytes, over the zoo."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness import markdown

import mxlite as mx
from planning.asking import Asked
from planning.report import Report, say

ABOUT = """\
1 means that no byte is lost to gaps, and most live bytes is the proof that the schedule needs as many. Whole
training steps with SGD, workspaces of this machine's kernels included. Shares are of keep-all's arena; where
the planner knows no plan for one, the least it knows stands as a share.

"""
GATE = 1.01
SHARES = (0.50, 0.25)

ZOO: dict[str, tuple[str, int, dict[str, Any]]] = {
    "ResNet-50": ("resnet50", 32, {}),
    "ResNet, 199 convolutions": ("resnet200_memonger", 32, {}),
    "VGG-16": ("vgg16", 32, {"dropout": 0.0}),
    "U-Net": ("unet", 8, {}),
    "Inception-BN": ("inception_bn", 32, {}),
    "MobileNet": ("mobilenet_v1", 32, {}),
    "DenseNet-121": ("densenet121", 32, {}),
    "LSTM, 32 steps": ("lstm_unrolled", 64, {"steps": 32}),
    "Transformer encoder, 12 layers": ("bert_base", 8, {}),
    "ResNet, 991 convolutions": ("resnet50_memonger", 32, {"stages": (15, 120, 180, 15)}),
}
QUICK = ("ResNet-50", "VGG-16", "MobileNet")
WHOLE_ZOO = """\
Every network of `mx.models` by its name, at batch {batch}: the placed arena / most live bytes of the plan
that keeps all, and of the plan within half of that arena (or the least known).

"""
BATCH = 4


def problem_of(name: str, batch: int, options: dict[str, Any]) -> Any:
    """The planning problem of a training step."""
    net, shapes = mx.models.get(name, **options), mx.models.shapes_of(name, batch, **options)
    return net.memory_plan(mx.cpu(), optimizer=mx.optimizer.SGD(momentum=0.9), **shapes).problem


def ratios(asked: Asked) -> Iterator[tuple[str, float | None]]:
    """(cell, ratio) for keep-all, the shares and the least."""
    keep_all = asked.keep_all
    plans = [keep_all, *(asked.within(int(s * keep_all.arena_bytes)) for s in SHARES), asked.least()]
    for plan in plans:
        if plan is None:
            yield "-", None
            continue
        ratio = plan.placed_bytes / plan.max_live_bytes
        share = f" at {plan.arena_bytes / keep_all.arena_bytes:.2f}" if plan is plans[-1] else ""
        yield f"{ratio:.4f}{share}", ratio


def measure_zoo(report: Report, quick: bool) -> None:
    """Measure all named networks."""
    rows: list[list[object]] = []
    found: list[float] = []
    names = mx.models.list_models()
    for name in names[:6] if quick else names:
        say(f"zoo: {name}")
        asked = Asked(problem_of(name, BATCH, {}))
        keep_all = asked.keep_all
        plans = [keep_all, asked.within(keep_all.arena_bytes // 2) or asked.least()]
        ratios = [p.placed_bytes / p.max_live_bytes for p in plans]
        found += ratios
        rows.append([name, len(keep_all.problem.tasks), *(f"{r:.4f}" for r in ratios)])
        head = ["network", "tasks", "keep all", "half"]
        report.put("The whole zoo", WHOLE_ZOO.format(batch=BATCH) + markdown(head, rows))
    exact = sum(r == 1 for r in found)
    report.target(
        "zoo: arena / most live bytes, worst",
        "1",
        f"{max(found):.4f} ({exact} of {len(found)} are 1)",
        max(found) == 1,
    )


def measure(report: Report, quick: bool) -> None:
    title = "Arena / most live bytes"
    rows: list[list[object]] = []
    found: list[float] = []
    for label, (name, batch, options) in ZOO.items():
        if quick and label not in QUICK:
            continue
        say(f"arena: {label}")
        problem = problem_of(name, batch, options)
        cells = list(ratios(Asked(problem)))
        found += [r for _, r in cells if r is not None]
        rows.append([label, batch, len(problem.tasks), *(c for c, _ in cells)])
        head = ["network", "batch", "tasks", "keep all", *(f"{s:.2f}" for s in SHARES), "least"]
        report.put(title, ABOUT + markdown(head, rows))
    exact = sum(r == 1 for r in found)
    reached = f"{max(found):.4f} ({exact} of {len(found)} are 1)"
    report.target("arena / most live bytes, worst", f"1, at most {GATE}", reached, max(found) <= GATE)
