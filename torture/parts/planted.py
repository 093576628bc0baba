"""Faults planted in a copy of the code, one at a time: the test named for each has to fail."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter

import torture.planted
from torture.allowance import Allowance, Outcome
from torture.copied_tree import CopiedTree
from torture.planted.fault import Fault

CASES = 1000  # all there are
SMALL = 2
_SECONDS = 300  # of one test


def faults() -> list[Fault]:
    """Every fault of every module in torture/planted that has a list FAULTS."""
    return [fault for area in areas().values() for fault in area]


def areas() -> dict[str, list[Fault]]:
    """Module of torture/planted -> its faults, for those that have a list FAULTS."""
    names = sorted(found.name for found in pkgutil.iter_modules(torture.planted.__path__))
    modules = {name: importlib.import_module(f"torture.planted.{name}") for name in names}
    return {name: module.FAULTS for name, module in modules.items() if hasattr(module, "FAULTS")}


def run(allowance: Allowance) -> Outcome:
    """Case number n plants fault number n; those from behind the last are no cases."""
    listed = [(area, fault) for area, listed in areas().items() for fault in listed]
    failures: list[str] = []
    planted: Counter[str] = Counter()
    caught: Counter[str] = Counter()
    with CopiedTree() as tree:
        passed: set[str] = set()
        for number in allowance:
            if number >= len(listed):
                break
            area, fault = listed[number]
            planted[area] += 1
            if verdict := _verdict(fault, tree, passed):
                failures.append(f"{fault.name} ({fault.file}): {verdict}")
            else:
                caught[area] += 1
    counts = ", ".join(f"{area} {caught[area]} of {number}" for area, number in planted.items())
    return Outcome(
        planted.total(), failures, f"{planted.total()} of {len(listed)} faults planted; caught: {counts}"
    )


def _verdict(fault: Fault, tree: CopiedTree, passed: set[str]) -> str:
    """Nothing where the catcher fails, as it should; otherwise what it did.

    passed: the catchers known to pass without a fault; one that fails always would catch everything.
    """
    if fault.caught_by not in passed:
        status, said = tree.run([fault.caught_by], _SECONDS, sound=True)
        if status != 0:
            return f"{fault.caught_by} does not pass without it: {said[-300:]}"
        passed.add(fault.caught_by)
    before = fault.plant(tree)
    try:
        status, said = tree.run([fault.caught_by], _SECONDS)
    finally:
        tree.write(fault.file, before)
    if status is None:
        return f"its test did not end within {_SECONDS} s"
    if status == 0:
        return f"{fault.caught_by} passed"
    crashed = status < 0  # a fault may write where nothing is
    return "" if crashed or status == 1 else f"{fault.caught_by} did not run: {said[-300:]}"
