"""Bulk: collects the pushes of one thread into segments."""

from __future__ import annotations

from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING

from .operation import Operation, Segment

if TYPE_CHECKING:
    from .threaded import ThreadedEngine


class Bulk:
    """One thread's open segment, for `with engine.bulk(size):`.

    It is handed over at `size` members, when device or kind change, when the thread waits, and at the end. An
    inner bulk hands over what the outer has collected.
    """

    def __init__(self, engine: ThreadedEngine, size: int) -> None:
        self._engine = engine
        self._size = size
        self._segment: Segment | None = None
        self._outer: Bulk | None = None
        self._thread = 0

    def __enter__(self) -> Bulk:
        bulks = self._engine.bulks
        self._thread = get_ident()
        self._outer = bulks.get(self._thread)
        if self._outer is not None:
            self._outer.flush()
        bulks[self._thread] = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._outer is None:
            self._engine.bulks.pop(self._thread, None)
        else:
            self._engine.bulks[self._thread] = self._outer
        self.flush()

    def add(self, operation: Operation) -> None:
        pool = operation.pool
        assert pool is not None
        # A finalizer may push at any step here, and fill or flush the segment; so look before each.
        while True:
            segment = self._segment
            if segment is None:
                segment = Segment(pool, operation.generation)
                if self._segment is None:
                    self._segment = segment
            elif segment.pool is not pool:
                self.flush()
            else:
                segment.members.append(operation)
                break
        if len(segment.members) >= self._size:
            self.flush()

    def flush(self) -> None:
        segment = self._segment
        self._segment = None
        if segment is None or not segment.members:  # empty: an interrupt came before its first member
            return
        engine = self._engine
        try:
            segment.close()
            engine.make_room()
        except BaseException:  # an interrupt; but these pushes have returned, so they happen
            segment.close()
            engine.inbox.append(segment)
            raise
        engine.inbox.append(segment)
        engine.ring_for(segment)
