"""The page of the outcomes: how many tests pass, and which do not, with the reasons that the guide names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness import markdown

Outcomes = Mapping[str, Mapping]  # by test


@dataclass(frozen=True)
class File:
    """A file of tests: the outcomes under the wheel and under mxlite."""

    name: str
    wheel: Outcomes
    mxlite: Outcomes

    @property
    def concerned(self) -> list[str]:
        """The tests that concern what mxlite has."""
        return [test for test, row in self.wheel.items() if row["outcome"] != "left out"]

    @property
    def counted(self) -> list[str]:
        """Those of them that the wheel passes."""
        return [test for test in self.concerned if self.wheel[test]["outcome"] == "passed"]

    @property
    def failing(self) -> dict[str, Mapping]:
        """Those that count and that mxlite does not pass, with their outcomes."""
        rows = {test: self.mxlite.get(test) or self.mxlite.get("(import)") for test in self.counted}
        return {
            test: row or {"outcome": "not run"}
            for test, row in rows.items()
            if row is None or row["outcome"] != "passed"
        }


def reasons(guide: str) -> dict[str, str]:
    """Why tests fail on purpose, by test: the rows of the guide's table whose first cell names tests."""
    found = {}
    for tests, why in re.findall(r"^\| (`\w*[Tt]est[\w.`, ]*`) \| (.*) \|$", guide, re.MULTILINE):
        found |= dict.fromkeys(re.findall(r"`([\w.]+)`", tests), why)
    return found


def page(suites: Mapping[str, Sequence[File]], why: Mapping[str, str]) -> str:
    """The tables of all suites, by MXNet's version; `why` has the reasons by test."""
    counts, failing, missing = [], [], []
    for version, every in suites.items():
        files = [file for file in every if file.wheel and file.mxlite]
        missing += [f"{file.name}.py of {version}" for file in every if file not in files]
        concerned = sum(len(file.concerned) for file in files)
        counted = sum(len(file.counted) for file in files)
        passed = counted - sum(len(file.failing) for file in files)
        counts.append([version, concerned, counted, passed, f"{passed / max(counted, 1):.1%}"])
        failing += [
            f"| {version} | {file.name}.py | `{test}` | {row['outcome']} | {why.get(test, '')} |"
            for file in files
            for test, row in file.failing.items()
        ]
    return "\n".join(
        [
            "The tests are MXNet's own, out of a checkout of each version: those in files on what mxlite",
            "has, without tests whose text names gluon.contrib, mx.np, the C interface or SVRG. A test",
            "counts if the wheel passes it.",
            "",
            *(
                [f"Not run on both sides, and in no number here: {', '.join(missing)}.", ""]
                if missing
                else []
            ),
            markdown(
                ["tests of", "on what mxlite has", "the wheel passes", "mxlite passes of these", "share"],
                counts,
            ),
            "## What mxlite does not pass",
            "",
            "The reasons are those that the [guide](../../docs/guide.md#mxnets-own-tests) gives.",
            "",
            "| tests of | file | test | outcome | reason |",
            "|---|---|---|---|---|",
            *failing,
            "",
        ]
    )
