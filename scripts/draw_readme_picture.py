"""Draw docs/images/plan.svg: two memory plans of one network, address against step, on the same scale.

    python scripts/draw_readme_picture.py            write the picture
        python scripts/draw_readme_picture.py --check    exit 1 if the file is out of date

The picture does not depend on time, random numbers or the machine: the same planner draws the same bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

from train_resnet import preactivation_resnet  # noqa: E402

import mxlite as mx  # noqa: E402
from mxlite.memplan import MemoryPlan, padded  # noqa: E402

PICTURE = ROOT / "docs" / "images" / "plan.svg"
DEPTH, BATCH, BUDGET = 56, 64, "2.5MiB"

COLOURS = {  # in the order of the key; distinguishable with common kinds of colour blindness
    "forward": "#4c78a8",
    "recomputed": "#f58518",
    "backward": "#54a24b",
    "workspace": "#c4c4c4",
}
LEFT, TOP, WIDTH, HEIGHT, GAP = 46, 62, 1010, 330, 30  # pixels


def plans() -> tuple[MemoryPlan, MemoryPlan]:
    """The plan that keeps everything, and the one within BUDGET."""
    net = preactivation_resnet(DEPTH, 16, 10)
    optimizer = mx.optimizer.SGD(momentum=0.9)
    shapes = {"data": (BATCH, 1, 8, 8), "softmax_label": (BATCH,)}
    keep_all, within = (
        net.memory_plan(mx.cpu(), memory_budget=budget, optimizer=optimizer, **shapes)
        for budget in (None, BUDGET)
    )
    return keep_all, within


def kind_of(plan: MemoryPlan, buffer: int) -> str:
    """Colour class of a buffer, by the task that wrote its first content."""
    r = plan.liveness.ranges[buffer]
    if not r.members:
        return "workspace"
    if plan.schedule.copy[r.start]:
        return "recomputed"
    return "forward" if plan.schedule.task[r.start] < plan.problem.num_forward else "backward"


def number(x: float) -> str:
    return f"{x:.1f}".removesuffix(".0")


def blocks(plan: MemoryPlan, x0: float, step_px: float, byte_px: float) -> list[str]:
    """Paths with one rectangle per buffer, by colour; those large enough for a white edge separately."""
    paths: dict[tuple[str, bool], list[str]] = defaultdict(list)
    for b, r in enumerate(plan.liveness.ranges):
        x, width = x0 + r.start * step_px, (r.stop - r.start) * step_px
        height = padded(r.nbytes) * byte_px
        y = TOP + HEIGHT - plan.offsets[b] * byte_px - height
        if height < 0.15:
            continue  # too thin to be visible
        w = number(width)
        large = min(width, height) >= 3
        paths[kind_of(plan, b), large].append(f"M{number(x)} {number(y)}h{w}v{number(height)}h-{w}z")
    edge = ' stroke="#fff" stroke-width=".4"'
    return [
        f'<path fill="{COLOURS[kind]}"{edge if large else ""} d="{"".join(paths[kind, large])}"/>'
        for kind in COLOURS
        for large in (False, True)
        if (kind, large) in paths
    ]


def text(x: float, y: float, words: str, **style: object) -> str:
    attributes = "".join(f' {k.replace("_", "-")}="{v}"' for k, v in style.items())
    return f'<text x="{number(x)}" y="{number(y)}"{attributes}>{escape(words)}</text>'


def draw(keep_all: MemoryPlan, within: MemoryPlan) -> str:
    """The picture as text."""
    both = (keep_all, within)
    steps = [len(p.schedule.task) for p in both]
    step_px = (WIDTH - GAP) / sum(steps)
    byte_px = HEIGHT / max(p.arena_bytes for p in both)
    right = LEFT + WIDTH
    bottom = TOP + HEIGHT
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right + 14} {bottom + 62}" role="img"'
        f' font-family="Helvetica, Arial, sans-serif" font-size="13" fill="#222">',
        f"<title>Arena of a {DEPTH}-layer ResNet, address against step, without and with a budget</title>",
        f'<rect width="{right + 14}" height="{bottom + 62}" fill="#fff"/>',
    ]
    mib = 2**20
    for k in range(0, keep_all.arena_bytes // mib + 1, 2):
        y = bottom - k * mib * byte_px
        out.append(f'<path stroke="#e4e4e4" d="M{LEFT} {number(y)}H{right}"/>')
        out.append(text(LEFT - 8, y + 4, f"{k}", text_anchor="end", fill="#666"))
    out.append(text(LEFT - 8, TOP - 8, "MiB", text_anchor="end", fill="#666"))
    x = float(LEFT)
    for plan, count in zip(both, steps):
        width = count * step_px
        split = x + plan.schedule.num_forward * step_px
        top = bottom - plan.arena_bytes * byte_px
        recomputed = f", {plan.recomputed} of them run again" if plan.recomputed else ""
        title = "no budget" if plan.budget_bytes is None else f'memory_budget="{BUDGET}"'
        size = f"peak {plan.peak_bytes / mib:.2f} MiB, arena {plan.arena_bytes / mib:.2f} MiB"
        out.append(text(x, 20, title, font_weight="bold", font_size=15))
        out.append(text(x, 39, f"{size}; {count} steps{recomputed}", fill="#444"))
        out += blocks(plan, x, step_px, byte_px)
        out.append(
            f'<path fill="none" stroke="#222" stroke-width="1.2" d="M{number(x)} {number(top)}'
            f'h{number(width)}V{bottom}h-{number(width)}z"/>'
        )
        out.append(
            f'<path stroke="#222" stroke-dasharray="4 3" d="M{number(split)} {number(top)}V{bottom + 6}"/>'
        )
        out.append(text(split - 6, bottom + 18, "forward", text_anchor="end", fill="#666"))
        out.append(text(split + 6, bottom + 18, "backward and update", fill="#666"))
        x += width + GAP
    x = float(LEFT)
    names = {
        "forward": "made in forward",
        "backward": "made in backward",
        "recomputed": "made again for backward",
    }
    for kind, colour in COLOURS.items():
        words = names.get(kind, kind)
        out.append(f'<rect x="{number(x)}" y="{bottom + 36}" width="12" height="12" fill="{colour}"/>')
        out.append(text(x + 18, bottom + 47, words))
        x += 44 + 6.6 * len(words)
    out.append(
        text(
            right,
            bottom + 47,
            "address in the arena (up) against step (right)",
            text_anchor="end",
            fill="#666",
        )
    )
    out.append("</svg>\n")
    return "\n".join(out)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    picture = draw(*plans())
    if args.check:
        return 0 if PICTURE.read_text(encoding="utf-8") == picture else 1
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(picture, encoding="utf-8")
    print(f"{PICTURE.relative_to(ROOT)}: {len(picture):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
