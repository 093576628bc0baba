"""Comparison of two records: differences by section and kind."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SECTIONS = ("kernels", "plans", "code", "results")


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[str]]:
    """Differences of a section between two records: lines by kind."""
    found: dict[str, list[str]] = {"differs": [], "only before": [], "only after": []}
    for key in dict.fromkeys((*before, *after)):
        if key not in after or key not in before:
            where, side = ("only before", before) if key in before else ("only after", after)
            at = side[key].get("at")
            found[where].append(f"{key} (met at {at})" if at else key)
            continue
        was, now = before[key], after[key]
        fields = [f for f in dict.fromkeys((*was, *now)) if f != "at" and was.get(f) != now.get(f)]
        if fields:
            changes = ", ".join(f"{f} {was.get(f)} -> {now.get(f)}" for f in fields[:6])
            more = f", and {len(fields) - 6} more" if len(fields) > 6 else ""
            found["differs"].append(f"{key}: {changes}{more}")
    return {kind: lines for kind, lines in found.items() if lines}


def compare(before: dict[str, Any], after: dict[str, Any], limit: int) -> int:
    """Print the differences of two records; 1 if there are any, 2 if nothing could be compared."""
    was, now = before["header"], after["header"]
    for name in dict.fromkeys((*was, *now)):
        if was.get(name) != now.get(name):
            print(f"warning: {name} was {was.get(name)}, is {now.get(name)}")
    same_selection = all(was[n] == now[n] for n in ("sections", "match"))
    sections = [s for s in SECTIONS if s in before and s in after and (s != "code" or same_selection)]
    for section in SECTIONS:
        if section in {*before, *after} and section not in sections:
            print(f"warning: {section} is not compared: the records hold different selections")
    total = 0
    for section in sections:
        found = differences(before[section], after[section])
        total += sum(map(len, found.values()))
        count = ", ".join(f"{len(lines)} {kind}" for kind, lines in found.items()) or "no difference"
        print(f"{section}: {len(before[section])} keys, {count}")
        for kind, lines in found.items():
            for line in lines[:limit]:
                print(f"  {kind}: {line}")
            if len(lines) > limit:
                print(f"  {kind}: and {len(lines) - limit} more")
    return 2 if not sections else int(total > 0)


def load(path: Path, renamed: list[str]) -> dict[str, Any]:
    """A record, its words renamed as `renamed` says, "OLD=NEW" each."""
    text = path.read_text(encoding="utf-8")
    for pair in renamed:
        old, _, new = pair.partition("=")
        text = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", lambda _, new=new: new, text)
    found: dict[str, Any] = json.loads(text)
    return found
