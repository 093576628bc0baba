"""`mxlite tune`: measured schedules of a network's kernels, kept in a file that binding reads."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..backends.tune.measure import Measurer
from ..backends.tune.records import GAIN, RecordFile, Records
from ..backends.tune.tuner import Progress, Tuner
from ..core import config
from ..core.bytesize import format_bytes
from ..core.errors import MXLiteError
from ..core.table import table
from ..executor.plan.tasks import tasks_of_step
from ..executor.request.bind_request import BindRequest
from ..memplan.cost.device import MEASURED
from .request import add_model, add_request, request_of
from .words import show

FILE = "mxlite-records.sqlite"
MOST_MINUTES = 10_000
ROWS = 12  # kernels of the table that have no better schedule; all that have one are shown


def add(commands: Any) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        "tune", help="measure other schedules of a network's kernels, and keep those that are faster"
    )
    add_model(command)
    add_request(command)
    command.add_argument("--minutes", type=float, default=10.0, metavar="M", help="how long (default 10)")
    command.add_argument(
        "--records", metavar="FILE",
        help=f"the file of records, which is added to (default: MXLITE_RECORDS, or {FILE})",
    )  # fmt: skip
    command.add_argument(
        "--serial", action="store_true", help="build and time in one process, one schedule after the other"
    )
    command.add_argument(
        "--random", action="store_true", help="search at random, also where xgboost is installed"
    )
    return command


def run(arguments: argparse.Namespace) -> int:
    request = request_of(arguments)
    if request.gpu:
        raise MXLiteError(
            "tune measures this machine's processor; schedules of a GPU's kernels are not tuned yet."
        )
    if not 0 < arguments.minutes <= MOST_MINUTES:
        raise MXLiteError(f"--minutes must be above 0 and at most {MOST_MINUTES}, got {arguments.minutes:g}.")
    path = arguments.records or config.records() or FILE
    net, shapes, options = request.asked()
    for name in ("memory_budget", "device"):
        options.pop(name)
    tasks, step = tasks_of_step(BindRequest(net.graph, shapes=shapes, records=Records(), **options))
    show(
        f"{request.describe()}: {len(step.calls)} kernel calls, {len(tasks)} distinct ones that can be tuned."
    )
    new = not os.path.exists(path)
    with RecordFile(path) as file, Measurer(step.threads, arguments.serial) as measurer:
        with _bar() as tell:
            by_model = False if arguments.random else None
            tuner = Tuner(tasks, step.backend, file, measurer, tell, by_model=by_model)
            try:
                tuner.run(arguments.minutes * 60)
                stopped = ""
            except KeyboardInterrupt:
                stopped = "Stopped: what was found until then is kept. "
    show(_table(tuner.tasks))
    show(f"\n{stopped}{_gain(tuner.tasks)}")
    how = "Made" if new else "Added to"
    if not stopped and any(p.best for p in tuner.tasks):
        plan = net.memory_plan(**options, **shapes, device=MEASURED, records=path)  # type: ignore[arg-type]
        show(
            f"Planned with it, and with measured times where it has none, a step takes "
            f"{1e3 * plan.predicted_seconds:.2f} ms and {format_bytes(plan.peak_bytes)}."
        )
    show(f"{how} {path}; simple_bind(records={path!r}), Module(records=...) or MXLITE_RECORDS use it.")
    return 0


@contextmanager
def _bar() -> Iterator[Any]:
    """A function that moves a bar: it hears what was measured, and how many schedules."""
    from tqdm import tqdm

    with tqdm(unit=" schedules", leave=False, disable=None, desc="tuning") as bar:

        def tell(line: str, count: int) -> None:
            bar.set_postfix_str(line[:40])
            bar.update(count)

        yield tell


def _table(found: Sequence[Progress]) -> str:
    """The kernels whose schedule changes, then those that take the most time."""
    known = sorted((p for p in found if p.seconds), key=lambda p: -p.task.count * min(p.before_s, 1e6))
    better = [p for p in known if p.best]
    shown = better + [p for p in known if not p.best][:ROWS]
    rows: list[tuple[str, ...]] = []
    for p in shown:
        is_timed = p.before_s < float("inf")
        times = (f"{1e6 * p.before_s:.1f}", f"{1e6 * p.after_s:.1f}") if is_timed else ("-", "-")
        gain = f"{p.before_s / p.after_s:.2f}x" if p.best else ""
        name = f"{p.task.request.op.op_name} {p.task.name}"[:48]
        tried = f"{len(p.seconds)}/{len(p.space.legal)}" + (f", {p.failures} failed" if p.failures else "")
        rows.append((name, str(p.task.count), tried, *times, gain, p.space.named(p.best or p.default)))
    headings = ("kernel", "calls", "tried", "before us", "after us", "gain", "schedule")
    return table(headings, rows, left=(0, 6), gives_way=6)


def _gain(found: Sequence[Progress]) -> str:
    timed = [p for p in found if p.before_s < float("inf")]
    before, after = (sum(p.task.count * getattr(p, n) for p in timed) for n in ("before_s", "after_s"))
    better = sum(p.best is not None for p in timed)
    if not better:
        return f"No kernel has a schedule that is more than {GAIN:.0%} faster than its default one."
    return (
        f"{better} of {len(timed)} kernels have a faster schedule: by their own times a step takes "
        f"{1e3 * after:.2f} ms instead of {1e3 * before:.2f}, {before / after:.2f} times as fast."
    )
