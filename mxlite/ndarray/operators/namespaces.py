"""mx.nd._internal and mx.nd.op: operators as attributes of one object."""

from collections.abc import Callable, Mapping
from typing import Any

from ...core import UnknownAttributeError
from .functions import FUNCTIONS
from .zipfian import sample_unique_zipfian


class Namespace:
    """Functions as attributes: operators whose names begin with `prefix`, and `others`, plain functions."""

    def __init__(self, public: str, prefix: str, others: Mapping[str, Callable[..., Any]]) -> None:
        self._public, self._prefix, self._others = public, prefix, others

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in self._others:
            return self._others[name]
        if name.startswith(self._prefix) and name in FUNCTIONS:
            return FUNCTIONS[name]
        raise UnknownAttributeError(f"{self._public} has no function {name!r}.", name, self.__dir__)

    def __dir__(self) -> list[str]:
        return sorted({*self._others, *(n for n in FUNCTIONS if n.startswith(self._prefix))})


_internal = Namespace("mx.nd._internal", "_", {"_sample_unique_zipfian": sample_unique_zipfian})
op = Namespace("mx.nd.op", "", {})
