"""The largest batch of a network within a number of bytes.

PyTorch's is found by trial. Ours is planned, and then run: the device memory used must stay within the limit,
and the step must be no slower than promised, compared with the fastest plan of the same batch in its own
process. Otherwise a smaller batch is tried.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from networks.suite import Net
from peers.column import Column
from peers.contest import Entry, say, Terms, told

from .columns import PLENTY
from .contest import Clock, compare, Limited, NO_TIME, one, OVER
from .search import below

TRIES = 4


@dataclass(frozen=True)
class Trial:
    """A batch of ours that was run: device bytes used, and extra time relative to the fastest plan, whose
    step takes `fastest_s`; `extra` is None if it already used too many bytes.
    """

    batch: int
    gone: int
    extra: float | None = None
    fastest_s: float = 0.0

    def __str__(self) -> str:
        text = f"{self.batch} with {self.gone / 1e9:.3f} GB gone from the device"
        if self.extra is None:
            return text
        return f"{text}, {100 * self.extra:+.1f} % over {self.fastest_s * 1e3:.1f} ms of the fastest plan"


@dataclass
class Found:
    """Result of one column. batch: 0 if unknown; for ours the planned one, until it `ran`. note: why there is
    no batch, or why it did not run.
    """

    column: Column
    batch: int = 0
    ran: Trial | None = None
    tried: list[Trial] = field(default_factory=list)
    note: str = ""

    @property
    def is_planned_only(self) -> bool:
        return self.column.side == "ours" and self.batch > 0 and self.ran is None

    def __str__(self) -> str:
        text = str(self.ran or self.batch or "none") + (", planned only" if self.is_planned_only else "")
        if self.note:
            text += f": {self.note}"
        return "; before that ".join([text, *(str(t) for t in self.tried if t is not self.ran)])


@dataclass(frozen=True)
class Search:
    """Search for the largest batch of `net` within `nbytes`, up to `most`. most_extra: largest allowed extra
    time of our step relative to the fastest plan's, as a fraction.
    """

    net: Net
    nbytes: int
    most_extra: float
    terms: Terms
    folder: Path
    clock: Clock
    most: int = 4096

    def largest(self, columns: Sequence[Column]) -> Iterator[Found]:
        """Yield the largest batch of each column, while there is time."""
        spec: dict[str, Any] = {}
        for column in columns:
            if column.missing():
                continue
            found = Found(column)
            try:
                self._need_time()
                spec = spec or self.net.prepare(self.folder)
                if column.side == "ours":
                    self._planned_and_run(found, spec)
                else:
                    found.batch = self._ask(column, spec=spec, **column.options_for(self.net))
            except Exception as error:
                found.note = told(error)
            say(f"  {column.title}: {found}")
            yield found

    def _planned_and_run(self, found: Found, spec: dict[str, Any]) -> None:
        """Modules, graphs and libraries take memory besides the plan: if the total is too large, the budget
        is reduced by their size, and the batch is retried if it can still be as fast.
        """
        column, budget, first = found.column, self.nbytes, 0
        shapes = {n: list(s) for n, s in self.net.shapes.items()}
        asked = dict(symbol=spec["symbol"], shapes=shapes, amp=column.options.get("amp"))
        for _ in range(TRIES):
            batch = self._ask(column, **asked, most_extra=self.most_extra, nbytes=budget, first=first)
            if not batch:
                break
            found.batch = batch
            trial = self._trial(column, batch, budget)
            found.tried.append(trial)
            if trial.extra is not None and trial.extra <= self.most_extra:
                found.ran = trial
                return
            first = batch if trial.extra is None else below(batch)
            budget -= max(0, trial.gone - self.nbytes)
        found.batch, found.note = 0, "none that was run keeps to the bytes and the time"

    def _trial(self, column: Column, batch: int, budget: int) -> Trial:
        """Run that batch within the budget, and if it fits also with the fastest plan."""
        cut = {n: (batch, *s[1:]) for n, s in (("data", self.net.data), ("labels", self.net.labels))}
        net, folder = replace(self.net, **cut), self.folder / "trial"
        folder.mkdir()
        try:
            spec = net.prepare(folder)
            entry = self._timed(net, spec, column, budget)
            gone = entry.memory["gone"]
            if gone > self.nbytes:
                return Trial(batch, gone)
            fastest = self._timed(net, spec, column, PLENTY)
            compare({"fastest": fastest, "within": entry})
            if entry.seconds is None or fastest.seconds is None:
                raise RuntimeError(entry.note)
            best = fastest.seconds.median
            return Trial(batch, gone, entry.seconds.median / best - 1, best)
        finally:
            shutil.rmtree(folder)

    def _timed(self, net: Net, spec: dict[str, Any], column: Column, budget: int) -> Entry:
        """Measure the batch; raises RuntimeError if it cannot be run."""
        self._need_time()
        entry = Entry(replace(column, options={**column.options, "memory_budget": budget}))
        one(net, spec, entry, self.terms, self.clock)
        if entry.note:
            raise RuntimeError(entry.note)
        return entry

    def _ask(self, column: Column, **request: Any) -> int:
        """The largest batch, found in a new process of the column."""
        self._need_time()
        with column.start(self.terms.threads) as worker:
            limited = Limited(worker, self.terms.limit, self.clock)
            return int(limited.ask(do="largest", **{"nbytes": self.nbytes, "most": self.most, **request}))

    def _need_time(self) -> None:
        if self.clock.left < OVER:
            raise RuntimeError(NO_TIME)
