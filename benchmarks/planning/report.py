"""The text of a result: sections that are written to the file as soon as they are available."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import markdown


@dataclass
class Report:
    """`sections` by title, in order of arrival; with `path` None they are only printed.

    `began` says when the present run began, and is written below each of its sections' titles if runs are
    collected; `gathered` is the file that collects them. `tallies` are figures by section title, from which
    targets over several sections are computed.
    """

    heading: str
    path: Path | None = None
    gathered: Path | None = None
    began: str = ""
    sections: dict[str, str] = field(default_factory=dict)
    targets: dict[str, list[str]] = field(default_factory=dict)
    tallies: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Load the results of earlier runs."""
        if self.gathered is not None and self.gathered.exists():
            found = json.loads(self.gathered.read_text(encoding="utf-8"))
            self.sections, self.targets = found["sections"], found["targets"]
            self.tallies = found.get("tallies", {})

    def put(self, title: str, body: str) -> None:
        """Add a section, or replace it by a more complete one; write the file."""
        self.sections[title] = f"Measured {self.began}.\n\n{body}" if self.began else body
        self.write()

    def target(self, name: str, target: str, reached: str, met: bool | None) -> None:
        """Add a row to the targets, or replace it; `met` None: no target, but related to one."""
        self.targets[name] = [name, target, reached, {True: "yes", False: "NO", None: "-"}[met]]

    def write(self) -> None:
        """Write everything so far."""
        if self.gathered is not None:
            found = {"sections": self.sections, "targets": self.targets, "tallies": self.tallies}
            self.gathered.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        if self.path is not None:
            self.path.write_text(self.text(), encoding="utf-8")

    def text(self) -> str:
        text = self.heading
        if self.targets:
            rows = list(self.targets.values())
            text += "\n## Targets\n\n" + markdown(["what", "target", "reached", "met"], rows)
        return text + "".join(f"\n## {title}\n\n{body}" for title, body in self.sections.items())


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def percent(share: float) -> str:
    return f"{100 * share:.2f}"
