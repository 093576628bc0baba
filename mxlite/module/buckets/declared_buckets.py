"""Declared buckets: those that are to come, according to a user and the iterators of `fit`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core import BindError
from ...core.wanted import found, wanted
from ..binding import Binding
from ..evaluation import other_shapes, Shapes, shapes_of

Buckets = Mapping[Any, Shapes]  # by key


@dataclass(frozen=True)
class DeclaredBuckets:
    """Buckets of one `fit`: those of its steps, `trained`, and of inference beside them, `evaluated`.

    `names_all`: True if no other bucket is trained.
    """

    trained: Buckets
    evaluated: Buckets
    names_all: bool

    @classmethod
    def of(cls, train_data: Any, eval_data: Any, asked: Buckets | None, default: Any) -> DeclaredBuckets:
        """Buckets of iterators; for those that a user `asked` for, only their shapes. Raises BindError."""
        trained = _provided("train_data", train_data, default)
        names_all = asked is not None or bool(getattr(train_data, "provide_buckets", None))
        if asked is not None:
            mine = {k: s for k, s in trained.items() if k == default}  # which is bound in any case
            trained = mine | {k: trained.get(k, shapes) for k, shapes in asked.items()}
        evaluated = {} if eval_data is None else _provided("eval_data", eval_data, default)
        return cls(trained, evaluated, names_all)

    def keeps(self, key: Any, binding: Binding) -> bool:
        """True if a bucket comes as it is bound, or may come."""
        idle, bound = binding.forward_only, binding.shapes
        if (trained := self.trained.get(key)) is not None:
            return not idle and other_shapes(bound, *trained) is None
        evaluated = self.evaluated.get(key)
        if evaluated is not None and (idle or self.names_all):
            return idle and other_shapes(bound, *evaluated) is None
        return not self.names_all


def declared(what: str, buckets: Any) -> dict[Any, Shapes]:
    """Data and label shapes by key. Raises BindError."""
    wanted(what, buckets, "a dict: key -> (data shapes, label shapes)", Mapping)
    for key, shapes in buckets.items():
        if not isinstance(shapes, (tuple, list)) or len(shapes) != 2:
            raise BindError(f"{what}: {key!r} must have (data shapes, label shapes), got {found(shapes)}.")
    return {key: (data, labels) for key, (data, labels) in buckets.items()}


def _provided(what: str, data: Any, default: Any) -> dict[Any, Shapes]:
    """The buckets of an iterator, or its single one. Raises BindError."""
    provided = getattr(data, "provide_buckets", None)
    listed = declared(f"fit: {what}.provide_buckets", provided or {})
    return listed or {getattr(data, "default_bucket_key", default): shapes_of(data)}
