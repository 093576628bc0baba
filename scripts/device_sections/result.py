"""Results as printed lines, device_check.json and device_check.md."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TYPE_CHECKING

if TYPE_CHECKING:
    from . import Section

Row = dict[str, Any]
"""check, verdict (PASS, FAIL or SKIP), found (text or a dict), seconds."""

OFTEN = 5.0  # least seconds between two writes during a section


class Result:
    """Sections with their rows, in files of a folder. `about` describes the machine."""

    def __init__(self, out: Path, emulated: bool, about: Mapping[str, str]) -> None:
        self.out, self.emulated, self.about = out, emulated, dict(about)
        self.sections: list[dict[str, Any]] = []
        self._start = self._began = time.monotonic()
        self._written = 0.0
        for name, value in self.about.items():
            print(f"{name}: {value}", flush=True)
        self.write()

    def begin(self, section: Section) -> None:
        """Start a section, which the following rows belong to."""
        self._began = time.monotonic()
        self.sections.append({"section": section.name, "title": section.title, "seconds": 0.0, "rows": []})

    def add(self, row: Row) -> None:
        """Add a row to the present section."""
        now, present = time.monotonic(), self.sections[-1]
        present["rows"].append(row)
        found = short(row["found"])
        at = f"{now - self._start:4.0f} s"
        print(f"{at}  {row['verdict']:4}  {present['section']}: {row['check']}: {found}", flush=True)
        if now - self._written > OFTEN:
            self.write()

    def counts(self) -> dict[str, int]:
        """Numbers of rows that passed, failed, were skipped."""
        verdicts = [row["verdict"] for section in self.sections for row in section["rows"]]
        names = {"passed": "PASS", "failed": "FAIL", "skipped": "SKIP"}
        return {what: verdicts.count(v) for what, v in names.items()}

    def write(self) -> None:
        """Write both files completely."""
        now = time.monotonic()
        self._written, seconds = now, now - self._start
        if self.sections:
            self.sections[-1]["seconds"] = round(now - self._began, 1)
        about = {"date": time.strftime("%Y-%m-%d"), "seconds": round(seconds, 1), "emulated": self.emulated}
        whole = {**about, "about": self.about, "sections": self.sections}
        self._replace("device_check.json", json.dumps(whole, indent=1, default=str) + "\n")
        where = "the tests' emulated GPU: a test of the script itself" if self.emulated else "a GPU"
        lines = ["# Device check", "", f"{about['date']}, on {where}; {seconds:.0f} s.", ""]
        lines += [f"- {name}: {short(value, 400)}" for name, value in self.about.items()] + [""]
        for section in self.sections:
            lines += [f"## {section['title']} ({section['seconds']} s)", ""]
            lines += ["| check | verdict | found |", "| --- | --- | --- |"]
            for r in section["rows"]:
                lines.append(f"| {_cell(r['check'], 110)} | {r['verdict']} | {_cell(r['found'], 400)} |")
            lines.append("")
        self._replace("device_check.md", "\n".join(lines))

    def _replace(self, name: str, text: str) -> None:
        part = self.out / f"{name}.part"
        try:
            part.write_text(text, encoding="utf-8")
            os.replace(part, self.out / name)
        except OSError as error:  # a full disk: the results have been printed
            print(f"{name} cannot be written: {error}", flush=True)


def short(found: Any, most: int = 160) -> str:
    """`found` on one line of at most `most` characters."""
    text = found if isinstance(found, str) else json.dumps(found, default=str)
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 3] + "..."


def _cell(found: Any, most: int) -> str:
    return short(short(found, 4000).replace("|", "/"), most)
