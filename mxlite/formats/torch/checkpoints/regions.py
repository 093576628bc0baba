"""The submodules of a rehearsed step that can be recomputed as a whole."""

from __future__ import annotations

from .rehearsal import Rehearsal, Span

COVERED = (0.5, 0.7, 0.9)
"""Shares of a module's bytes: it is taken apart if its submodules keep this share of them inside; the larger
the share, the larger the regions."""


def chains_of(seen: Rehearsal) -> list[list[Span]]:
    """The chains of regions that a step can be cut into, from small regions to large ones."""
    chains: list[list[Span]] = []
    for covered in COVERED:
        chain = _chain(seen, covered)
        if chain and chain not in chains:
            chains.append(chain)
    return chains


def _chain(seen: Rehearsal, covered: float) -> list[Span]:
    """Spans that do not overlap, in the order of the forward pass; backward meets them in the other order."""
    chosen, waiting = [], _children(seen, "")
    while waiting:
        span = waiting.pop()
        inner = _children(seen, span.name)
        if inner and sum(s.saved_bytes for s in inner) >= covered * span.saved_bytes:
            waiting += inner
        elif span.calls == 1 and span.backward >= 0 and span.saved_bytes and _repeats(seen, span):
            chosen.append(span)
    chosen.sort(key=lambda span: span.start)
    found: list[Span] = []
    for span in reversed(chosen):  # the last one's gradient is there first
        if not found or (span.stop <= found[-1].start and span.backward > found[-1].backward):
            found.append(span)
    return found[::-1]


def _repeats(seen: Rehearsal, span: Span) -> bool:
    """True if a second run finds what the first one did: it writes nothing that was there before, but the
    counters of batch normalizations, which stay then, and what does not change a second time.
    """
    for call in (seen.calls[i] for i in seen.calls_of(span)):
        before = (n for n in call.writes - seen.counters if seen.storages[n].made < span.start)
        if call.operator != "aten.relu_.default" and any(before):
            return False
    return True


def _children(seen: Rehearsal, name: str) -> list[Span]:
    """The submodules directly in one; a list is never called itself: what it holds stands for it."""
    inside = f"{name}." if name else ""
    found: list[Span] = []
    for other, span in seen.spans.items():
        if other.startswith(inside) and "." not in other[len(inside) :]:
            found += [span] if span.calls else _children(seen, other)
    return found
