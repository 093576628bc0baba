"""Results of several runs in one JSON file: a whole run takes long, and can be split."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from harness import Spread
from harness.machine import cpu_model, usable_cores

from .column import Column
from .contest import Entries, Entry

_SPREADS = ("seconds", "processor")  # fields of an Entry


@dataclass
class Part:
    """One run. started: UTC; load: averages over 1, 5 and 15 minutes at its start; versions: those of each
    framework, by its name."""

    started: str
    load: str
    threads: int
    rounds: int
    seconds: float
    minutes: float = 0.0
    nets: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    machine: str = ""
    versions: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def begun(cls, threads: int, rounds: int, seconds: float) -> Part:
        now = datetime.datetime.now(datetime.UTC)
        load = " ".join(f"{x:.2f}" for x in os.getloadavg()) if hasattr(os, "getloadavg") else "unknown"
        machine = f"{cpu_model()}, {usable_cores()} cores"
        return cls(now.strftime("%Y-%m-%d %H:%M"), load, threads, rounds, seconds, machine=machine)


@dataclass
class Gathered:
    """Runs, and by network the newest entry of each column. `peak`: the highest rates measured so far."""

    parts: list[Part] = field(default_factory=list)
    entries: dict[str, Entries] = field(default_factory=dict)
    peak: dict[str, float] = field(default_factory=dict)

    def begin(self, part: Part) -> None:
        """Start `part`, which the next results belong to. Raises SystemExit if its machine, threads or
        versions differ from those before: the results would not be comparable in one table."""
        for old in self.parts:
            for what in ("machine", "threads"):
                here, there = getattr(part, what), getattr(old, what)
                if here != there:
                    raise SystemExit(f"This run has {what} {here!r}, what was gathered before has {there!r}.")
            for name in part.versions.keys() & old.versions.keys():
                if part.versions[name] != old.versions[name]:
                    raise SystemExit(
                        f"This run has {name} {part.versions[name]}, what was gathered before has "
                        f"{old.versions[name]}."
                    )
        self.parts.append(part)

    def add(self, net: str, entries: Entries) -> None:
        """Add results of the present part; a column that was measured before is replaced."""
        part = self.parts[-1]
        for name, e in entries.items():
            e.part = len(self.parts)
            if e.seconds or e.asked or name not in self.entries.get(net, {}):
                self.entries.setdefault(net, {})[name] = e
                if name not in part.columns:
                    part.columns.append(name)
        part.nets.append(net)

    def offer(self, peak: Mapping[str, float]) -> None:
        """Record measured rates of the machine; the maximum is kept."""
        for name, rate in peak.items():
            self.peak[name] = max(rate, self.peak.get(name, 0.0))

    def versions(self) -> dict[str, dict[str, str]]:
        """Versions of all frameworks in all parts."""
        return {name: own for part in self.parts for name, own in part.versions.items()}

    def write(self, path: Path) -> None:
        data = {
            "parts": [asdict(p) for p in self.parts],
            "entries": {n: [_plain(e) for e in es.values()] for n, es in self.entries.items()},
            "peak": self.peak,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path | None) -> Gathered:
        """Read the file; empty if it does not exist."""
        if path is None or not path.exists():
            return cls()
        data = json.loads(path.read_text(encoding="utf-8"))
        entries = {n: {x["column"]["name"]: _entry(x) for x in es} for n, es in data["entries"].items()}
        return cls([Part(**p) for p in data["parts"]], entries, data["peak"])


def _plain(e: Entry) -> dict[str, Any]:
    """The entry as plain JSON data: a Spread becomes a list of its values."""
    plain = {f.name: getattr(e, f.name) for f in fields(e)}
    plain["column"] = {f.name: getattr(e.column, f.name) for f in fields(e.column)}
    plain |= {n: None if plain[n] is None else list(plain[n].values) for n in _SPREADS}
    plain["beside"] = {n: list(x.values) for n, x in e.beside.items()}
    return plain


def _entry(plain: dict[str, Any]) -> Entry:
    return Entry(
        **plain
        | {n: None if plain[n] is None else Spread(tuple(plain[n])) for n in _SPREADS}
        | {
            "column": Column(**plain["column"]),
            "beside": {n: Spread(tuple(x)) for n, x in plain["beside"].items()},
        }
    )
