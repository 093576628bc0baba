"""The result file of benchmarks/cpu.py."""

from __future__ import annotations

from harness import markdown
from networks.suite import by_name, deep_resnet, DIGITS, Net

from . import memory_tables, tables
from .contest import Entries, FEW
from .floors import floors
from .gathered import Gathered, Part
from .targets import LEAST, targets

BUDGET, DEEP = "budget", "deep"
"""Names of contests besides those of the networks."""
PRECISIONS = {"fp32": "float32", "bf16": "bfloat16", "narrow": "bfloat16 parameters"}

ABOUT = """\
Median (least-most) of the rounds. Ratios are taken round by round; above 1, mxlite is faster. Columns take
turns, {seconds:g} s (at least one step) in each of {rounds} rounds ({few} where a step takes seconds), each
begun by another column. A step is forward, cross entropy, backward and SGD with momentum (PyTorch: the fused
one), on one batch that stays the same; mxlite and MXNet copy it into the network's inputs at each step.
channels_last, compile and PyTorch bf16 (autocast) have images in channels_last; compile is torch.compile's
default mode for network and loss. Where parameters are bfloat16, in inference, no framework keeps float32 of
them. Dropout is left out. The LSTM is a language model of 10,000 words. "numpy
only" is mxlite without oneDNN and without generated code: one step.

"""
PARTS = """\
Not all was measured at once. Each column was measured beside mxlite, so every ratio is of one run, round by
round; milliseconds of columns in different runs are not comparable by themselves. Where a figure was measured
twice, the later one stands.

"""
MEMORY = """\
mxlite: planned and measured bytes: weights, gradients, states of the optimizer, inputs, outputs, activations
and workspaces. PyTorch: the peak of its allocator, which counts tensors and not what libraries take behind
its back. No plan recomputes here, and no product runs twice; kernels of mxlite normalize, add and rectify
again while they read, and what is cheap is made again backwards (`..._remade`), as always without a budget.
fixed: weights, states of the optimizer, batch and outputs, which no plan changes. kept: what backward reads
of the forward pass. No step of these kernels that runs nothing twice takes less than both.

"""
WITHIN = """\
`memory_budget` is {share:g} of the bytes that the least PyTorch column takes; the ratio is that of times, in
the same rounds, against the fastest PyTorch column, which takes all the memory it likes. Extra time is
against mxlite without a budget. Where fixed bytes and the largest call need more than the budget, no plan
fits.

"""
PROCESS = """\
Resident memory of the process: what came since before the network was built (code that was loaded or
generated meanwhile included) of all of it, at the peak of the timed steps.

"""
PROFILE = """\
Every call of the bound program was timed (`mx.profiler`). flops are those of the direct algorithms, of which
Winograd's does without many; bytes are those of all inputs and outputs, some of which come from caches. The
rate is whichever of arithmetic and traffic is nearer to the peak of this machine, measured in this run with
as many threads: {flops:.0f} GFLOP/s in a float32 matrix product, {bandwidth:.1f} GB/s read and written in
a copy.

"""


def report(found: Gathered) -> str:
    """The page below the heading."""
    results: tables.Results = [(n, found.entries[n.name]) for n in by_name(None) if n.name in found.entries]
    budget, deep = found.entries.get(BUDGET), found.entries.get(DEEP)
    peak = tables.best_seen(results, found.peak)
    last = found.parts[-1]
    minutes = sum(p.minutes for p in found.parts)
    text = f"- threads: {last.threads}; all of it took {minutes:.1f} minutes\n\n"
    text += ABOUT.format(seconds=last.seconds, rounds=last.rounds, few=FEW)
    rows = [t.row() for t in targets(results, budget, deep)]
    text += "## Targets\n\n" + markdown(["ratio", "target", "reached", "met"], rows)
    sections = {"Runs": PARTS + parts(found.parts) if len(found.parts) > 1 else ""}
    for precision, name in PRECISIONS.items():
        sections[name] = tables.times(results, precision)
        if precision in LEAST:
            sections[f"{name}: the floor"] = floors(results, precision, peak)
    sections["Without oneDNN and generated code"] = tables.fallback(results)
    share = next((e.column.share for _, es in results for e in es.values() if e.asked), 0.0)
    for title, make, about in (
        ("Memory", memory_tables.memory, MEMORY),
        ("Within a share of PyTorch's memory", memory_tables.budgeted, WITHIN.format(share=share)),
        ("Processes", memory_tables.processes, PROCESS),
    ):
        for precision, name in PRECISIONS.items():
            body = make(results, precision)
            sections[f"{title}, {name}"] = body and about + body
            about = "" if body else about
    everything = list(results)
    if budget is not None:
        everything.append((by_name(["resnet50"])[0], budget))
        sections["ResNet-50 224 B8 in a third of PyTorch eager's peak"] = tables.contest(budget, "a step")
    if deep is not None:
        everything.append((deep_resnet(), deep))
        batches = -(-DIGITS // 32)
        sections[f"1001 layers: seconds for an epoch of {batches} batches, from steps measured"] = (
            tables.contest(deep, "an epoch", per=batches, unit="s")
        )
    sections["Losses"] = (
        "The difference is the largest of the steps, relative to PyTorch eager (else MXNet).\n\n"
        + tables.losses(everything)
    )
    sections["Left out"] = tables.notes(results)
    sections["Where the time goes"] = profiles(results, peak)
    return text + "".join(f"\n## {title}\n\n{body}" for title, body in sections.items() if body)


def parts(found: list[Part]) -> str:
    """List of the runs, one per line."""
    head = ["run", "UTC", "load before", "minutes", "rounds", "networks", "columns"]
    rows = [
        (
            i,
            p.started,
            p.load,
            f"{p.minutes:.1f}",
            f"{p.rounds} of {p.seconds:g} s",
            ", ".join(p.nets),
            ", ".join(p.columns),
        )
        for i, p in enumerate(found, 1)
    ]
    return markdown(head, rows)


def profiles(results: list[tuple[Net, Entries]], peak: dict[str, float]) -> str:
    """Tables of kernels."""
    text = ""
    for net, entries in results:
        for e in entries.values():
            if e.profile is not None:
                text += f"\n### {net.title}, {e.column.title}\n\n{tables.profile(e, peak)}"
    rates = {k: v / 1e9 for k, v in peak.items()}
    return PROFILE.format(**rates) + text.lstrip("\n") if text else ""
