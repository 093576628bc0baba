"""A case as a Python program that judges it again: the same network, the same numbers, the same verdict.

The network is written out, not drawn: one that was made smaller has no seed. Numbers follow from the names
and kinds of its variables (`values.py`), and all else that a run depends on is in the setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .draw import Case
from .network import Call, Value, Variable


def program(case: Case) -> str:
    """Lines to run at the root of the repository."""
    net = case.network
    return "\n".join(
        (
            f"# seed {case.seed}",
            "import sys",
            "",
            'sys.path.insert(0, ".")',
            "from tests.differential import agreement",
            "from tests.differential.network import Call, Network, Value, Variable",
            "from tests.differential.setting import Setting",
            "",
            "network = Network(",
            *_listed("variables", map(_variable, net.variables)),
            *_listed("calls", map(_call, net.calls)),
            f"    outputs={_values(net.outputs)},",
            f"    data=frozenset({sorted(net.data)}),",
            f"    zero={net.zero},",
            ")",
            f"setting = {case.setting}",
            "verdict = agreement.judge(network, setting)",
            "print(verdict)",
        )
    )


def _listed(name: str, lines: Iterable[str]) -> Iterable[str]:
    return (f"    {name}=(", *(f"        {line}," for line in lines), "    ),")


def _variable(v: Variable) -> str:
    return f"Variable({v.name!r}, {v.shape}, {v.kind!r}{f', {v.dtype!r}' if v.dtype else ''})"


def _call(c: Call) -> str:
    more = [_written(c.attrs)] if c.attrs or c.annotations else []
    more += [_written(c.annotations)] if c.annotations else []
    return f"Call({', '.join((repr(c.name), repr(c.op), _values(c.inputs), str(c.shapes), *more))})"


def _written(attrs: Mapping[str, object]) -> str:
    return f"dict({', '.join(f'{k}={v!r}' for k, v in attrs.items())})"


def _values(values: tuple[Value, ...]) -> str:
    found = [f"Value({v.name!r}{f', {v.index}' if v.index else ''})" for v in values]
    return f"({', '.join(found)}{',' if len(found) == 1 else ''})"
