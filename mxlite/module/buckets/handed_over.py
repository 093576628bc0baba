"""Members of one module that are those of another, to which it hands over."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from ..base_module import BaseModule
from ..module import Module


def handed_over(name: str, to: str, then: str = "", **needs: bool) -> Any:
    """Module's method or property `name`, of the module that is found as `to`; the method `then` follows.

    `bound`, `params` and `optimizer` in `needs` say what must have been called before: see BaseModule.need.
    """
    own = getattr(Module, name)
    is_needed = needs.pop("bound", bool(needs))

    def found(self: BaseModule) -> Any:
        if is_needed:
            self.need(**needs)
        return getattr(getattr(self, to), name)

    if isinstance(own, property):
        return property(found, doc=inspect.getdoc(own))

    @functools.wraps(own)
    def method(self: BaseModule, *args: Any, **options: Any) -> Any:
        result = found(self)(*args, **options)
        if then:
            getattr(self, then)()
        return result

    method.__doc__ = inspect.getdoc(own)  # the base's, where the method has none of its own
    return method
