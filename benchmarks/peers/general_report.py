"""The tables of benchmarks/generality.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from harness import markdown
from harness.table import number
from networks.network import Case
from planning.calibrated import Study

from . import memory_tables, tables
from .agreement import Agreement, OUTPUTS
from .contest import Entries
from .memory_tables import lightness
from .tables import mean, speed

ABOUT = """\
Ratios are PyTorch's best column divided by mxlite, round by round; above 1, mxlite is faster. Columns take
turns. A step is forward, loss, backward and SGD with momentum (PyTorch: the fused one), in float32, on one
batch that stays the same; inference is of a batch of one. Bytes are mxlite's plan without a budget, divided
by those of PyTorch's most frugal column by its allocator's count. Names are those of modules in
benchmarks/networks/general.

"""
AGREEMENT = """\
Relative differences from PyTorch in float64, by norms: of losses, outputs and running means of batch
normalization, which may be {outputs:g}, and the largest of all parameters' gradients, with its bound. Where a
rectifier's input is 0 but for rounding, its gradient may be there or not, for PyTorch as well.

"""
BUDGETS = """\
Extra time is what recomputation adds, as a share of the step that keeps everything: predicted by the plan
with `device="measured"`, and measured. Points are the difference of predicted and measured per cents. Budgets
are 0.8, 0.6, 0.45 and 0.3 of the arena without one, or the least that is feasible.

"""
NEAR = 5  # points


@dataclass
class Result:
    """A case, what was measured of it, and how far each column agrees, by the column's name."""

    case: Case
    entries: Entries
    agreements: dict[str, Agreement] = field(default_factory=dict)

    @property
    def is_wrong(self) -> bool:
        """True if mxlite is; a wrong column of PyTorch's is left out, and listed."""
        return "mxlite" in self.entries and self.entries["mxlite"].note.startswith("wrong")


def report(results: Sequence[Result]) -> str:
    """The page below the heading."""
    sections = {"Ratios": ABOUT + ratios(results)}
    for title, train in (("Training", True), ("Inference", False)):
        timed = [(r.case, r.entries) for r in results if r.case.train is train]
        if any(e.seconds for _, entries in timed for e in entries.values()):
            sections[title] = tables.times(timed, "fp32")  # type: ignore[arg-type]
            sections[f"{title}: MiB"] = memory_tables.memory(timed, "fp32")  # type: ignore[arg-type]
    sections["Agreement"] = AGREEMENT.format(outputs=OUTPUTS) + agreement(results)
    sections["Left out"] = tables.notes([(r.case, r.entries) for r in results])  # type: ignore[misc]
    return "".join(f"## {title}\n\n{body}\n" for title, body in sections.items() if body)


def ratios(results: Sequence[Result]) -> str:
    """Time and bytes of each network, their geometric means and the worst of them."""
    names = list(dict.fromkeys(r.case.name for r in results))
    columns: list[dict[str, float]] = [{}, {}, {}]
    wrong = {(r.case.name, r.case.train) for r in results if r.is_wrong}
    for r in results:
        found = speed(r.entries, "torch", "fp32")
        if found is not None:
            columns[0 if r.case.train else 1][r.case.name] = found.median
        bytes_ = lightness(r.entries, "fp32")
        if r.case.train and bytes_ is not None:
            columns[2][r.case.name] = bytes_

    def cell(values: dict[str, float], name: str, train: bool) -> str:
        return "WRONG" if (name, train) in wrong else number(values[name]) if name in values else "-"

    rows = [
        [f"{name}: {title}", *(cell(c, name, train) for c, train in zip(columns, (True, False, True)))]
        for name, title in {
            r.case.name: r.case.network.title for r in results if r.case.name in names
        }.items()
    ]
    means = [mean(c.values()) for c in columns]
    worsts = [pick(c.values(), default=None) for c, pick in zip(columns, (min, min, max))]
    for title, values in (("geometric mean", means), ("worst", worsts)):
        rows.append([f"**{title}**", *("-" if v is None else number(v) for v in values)])
    return markdown(["network", "training", "inference, B1", "bytes / PyTorch's"], rows)


def agreement(results: Sequence[Result]) -> str:
    rows = []
    for r in results:
        ours = r.agreements.get("mxlite")
        theirs = [a for n, a in r.agreements.items() if n != "mxlite"]
        if ours is None:
            rows.append([r.case.title, *["-"] * 7, "not checked"])
            continue
        rows.append(
            [
                r.case.title,
                f"{ours.outputs:.1e}",
                *(
                    (f"{ours.gradients:.1e}", f"{r.case.network.bound:g}", ours.worst, str(ours.count))
                    if r.case.train
                    else "----"
                ),
                f"{min(a.outputs for a in theirs):.1e}" if theirs else "-",
                f"{min(a.gradients for a in theirs):.1e}" if theirs and r.case.train else "-",
                "WRONG" if r.is_wrong else "right",
            ]
        )
    head = [
        "network",
        "outputs",
        "gradients",
        "bound",
        "worst gradient",
        "number",
        "PyTorch's outputs",
        "gradients",
    ]
    return markdown([*head, "result"], rows)


def budgets_report(studies: dict[str, Study]) -> str:
    """The page of extra times below the heading."""
    text = "".join(
        f"## {name}\n\nWithout a budget a step takes {1e3 * s.measured_s:.2f} ms; "
        f"{1e3 * s.predicted_s:.2f} ms are predicted.\n\n{s.table()}\n"
        for name, s in studies.items()
    )
    points = [abs(100 * (r.predicted - r.measured)) for s in studies.values() for r in s.rows]
    near = sum(p <= NEAR for p in points)
    worst = max(studies, key=lambda n: studies[n].worst)
    return (
        f"{BUDGETS}Of {len(points)} plans {near} are predicted within {NEAR} points; the largest difference "
        f"is {studies[worst].worst:.1f} points, {worst}.\n\n{text}"
    )
