"""Planning an executor anew, as an executor is given it: what does so stands above, and makes executors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TYPE_CHECKING

from ...graph import Shape

if TYPE_CHECKING:
    from ..executor import Executor
    from .watch import Watch


class Anew(NamedTuple):
    """`reshape` makes an executor for other shapes, `rewatch` lets one keep other inner results."""

    reshape: Callable[[Executor, Mapping[str, Shape], bool, bool], Executor]
    rewatch: Callable[[Executor, Watch | None], None]
