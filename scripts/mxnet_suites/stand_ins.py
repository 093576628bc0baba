"""Stand-ins for what MXNet's tests import: nose, names of numpy 1, parts that mxlite does not have."""

from __future__ import annotations

import functools
import re
import sys
import types
import unittest

_OLD_NAMES = {
    "bool": bool, "int": int, "float": float, "object": object, "str": str, "long": int, "complex": complex,
    "float_": "float64", "product": "prod", "cumproduct": "cumprod", "alltrue": "all", "sometrue": "any",
    "round_": "round", "infty": "inf", "Inf": "inf", "NaN": "nan", "NAN": "nan", "PINF": "inf",
    "in1d": "isin",
    "row_stack": "vstack", "asscalar": lambda a: a.item(), "unicode_": "str_", "string_": "bytes_",
    "complex_": "complex128", "trapz": "trapezoid",
}  # fmt: skip


def _nose() -> None:
    """Install stand-ins for the parts of nose that the tests use."""
    nose, tools = types.ModuleType("nose"), types.ModuleType("nose.tools")
    case = unittest.TestCase()
    case.maxDiff = None

    def raises(*errors):
        def decorate(function):
            @functools.wraps(function)
            def inside(*args, **kwargs):
                with case.assertRaises(errors):
                    function(*args, **kwargs)

            return inside

        return decorate

    def make_decorator(function):
        return lambda new: functools.wraps(function)(new)

    def ok_(expression, message=None):
        assert expression, message

    def eq_(a, b, message=None):
        assert a == b, message or f"{a!r} != {b!r}"

    for name in dir(case):
        if name.startswith("assert"):
            snake = re.sub("([A-Z])", lambda m: "_" + m[0].lower(), name)
            setattr(tools, snake, getattr(case, name))
    tools.assert_raises_regexp = case.assertRaisesRegex
    tools.raises, tools.make_decorator, tools.ok_, tools.eq_ = raises, make_decorator, ok_, eq_
    nose.tools, nose.SkipTest, nose.runmodule, nose.main = tools, unittest.SkipTest, print, print
    nose.plugins = types.ModuleType("nose.plugins")
    nose.plugins.attrib = types.ModuleType("nose.plugins.attrib")
    nose.plugins.attrib.attr = lambda *_, **__: lambda function: function
    nose.plugins.skip = types.ModuleType("nose.plugins.skip")
    nose.plugins.skip.SkipTest = unittest.SkipTest
    for module in (nose, tools, nose.plugins, nose.plugins.attrib, nose.plugins.skip):
        sys.modules[module.__name__] = module


def _absent(name: str) -> types.ModuleType:
    """A stand-in for a module that mxlite lacks and only some tests of a file use: raises if called."""

    class Absent:
        def __init__(self, *_, **__):
            raise NotImplementedError(f"{name}: mxlite has none")

    module = types.ModuleType(name)
    module.__path__ = []
    module.__all__ = []

    def find(attribute):
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        inner = f"{name}.{attribute}"
        return sys.modules[inner] if inner in sys.modules else type(attribute, (Absent,), {})

    module.__getattr__ = find
    sys.modules[name] = module
    return module


def _wrapping(arange):
    """numpy 1's arange, which wraps around on overflow of the dtype."""

    @functools.wraps(arange)
    def inside(*args, dtype=None, **kwargs):
        try:
            return arange(*args, dtype=dtype, **kwargs)
        except OverflowError:
            return arange(*args, **kwargs).astype(dtype)

    return inside


def install() -> None:
    """Install them all in this process."""
    import numpy as np

    for old, new in _OLD_NAMES.items():
        if old not in np.__dict__ and not hasattr(np, old):
            setattr(np, old, getattr(np, new) if isinstance(new, str) else new)
    np.arange = _wrapping(np.arange)
    _nose()
    import mxnet as mx

    if mx.__name__ != "mxnet":
        for name in ("np", "npx", "numpy", "numpy_extension", "contrib.amp"):
            _absent(f"mxnet.{name}")
        mx.np, mx.npx = sys.modules["mxnet.np"], sys.modules["mxnet.npx"]
        mx.numpy, mx.numpy_extension = sys.modules["mxnet.numpy"], sys.modules["mxnet.numpy_extension"]
        mx.nd.ndarray._STORAGE_TYPE_STR_TO_ID = {"undefined": -1, "default": 0, "row_sparse": 1, "csr": 2}
