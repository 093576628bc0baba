"""The text of a result: sections that are written to the file as soon as they say something."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from harness import markdown


@dataclass
class Report:
    """`sections` by title, in the order in which they came; `path` None only prints."""

    heading: str
    path: Path | None = None
    sections: dict[str, str] = field(default_factory=dict)
    targets: list[list[str]] = field(default_factory=list)

    def put(self, title: str, body: str) -> None:
        """Add a section, or replace it by one that knows more; write the file."""
        self.sections[title] = body
        if self.path is not None:
            self.path.write_text(self.text(), encoding="utf-8")

    def target(self, name: str, target: str, reached: str, met: bool) -> None:
        self.targets.append([name, target, reached, "yes" if met else "NO"])

    def text(self) -> str:
        text = self.heading
        if self.targets:
            text += "\n## Targets\n\n" + markdown(["what", "target", "reached", "met"], self.targets)
        return text + "".join(f"\n## {title}\n\n{body}" for title, body in self.sections.items())


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def percent(share: float) -> str:
    return f"{100 * share:.2f}"
