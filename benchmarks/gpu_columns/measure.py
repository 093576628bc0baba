"""Runs all measurements one after the other and updates the page after each of them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from peers.contest import Entries, say, Terms

from .batches import Search
from .choice import BATCH, DEEP, Wanted
from .columns import MOST_EXTRA, ROOM
from .contest import Clock, hold, NO_TIME
from .page import about, Page


def run(wanted: Sequence[Wanted], terms: Terms, clock: Clock, output: Path | None) -> bool:
    """Measure and print; the file is rewritten after each column, so that an interrupted run leaves a page.

    Returns whether a column of ours failed.
    """
    page = Page(output, terms)
    page.head = about([c for w in wanted for c in w.columns], clock)
    with tempfile.TemporaryDirectory() as name:
        for item in wanted:
            _measure(item, page, terms, clock, Path(name))
    print(page.write())
    return _has_failed(page)


def _measure(item: Wanted, page: Page, terms: Terms, clock: Clock, folder: Path) -> None:
    if item.kind == BATCH:
        say(f"{item.net.title}: largest batch")
        search = Search(item.net, ROOM, MOST_EXTRA, terms, folder, clock)
        for found in search.largest(item.columns):
            page.batches.append(found)
            page.write()
        return
    at = len(page.results)

    def tell(entries: Entries) -> None:
        if item.kind == DEEP:
            page.deep_net, page.deep = item.net, entries
        else:
            page.results[at:] = [(item.net, entries)]
        page.write()

    tell(hold(item.net, item.columns, terms, folder, clock, tell))


def _has_failed(page: Page) -> bool:
    """True if a column of ours failed; lack of time is no failure."""
    entries = [e for es in (*(es for _, es in page.results), page.deep or {}) for e in es.values()]
    notes = [e.note for e in entries if e.column.side == "ours"]
    notes += [f.note for f in page.batches if f.column.side == "ours"]
    return any(note not in ("", NO_TIME) for note in notes)
