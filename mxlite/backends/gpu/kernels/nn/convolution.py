"""Convolution, transposed convolution and their gradients, with channels first or last.

Everything in the family is one of three computations: the output from data and weight, the data (gradient)
from weight and output, the weight (gradient) from data and output. `ops/nn/conv_roles.py` says for each
operator which of these its outputs are, and from which arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .....graph.opdef import Op
from .....ops.layout import first
from .....ops.nn.conv import Convolution, geometry
from .....ops.nn.conv_channels_last import ConvolutionChannelsLast, ConvolutionEpilogue
from .....ops.nn.conv_gradients import ConvolutionDataGradient, ConvolutionWeightGradient
from .....ops.nn.conv_kernels import Geometry
from .....ops.nn.conv_roles import computed, ROLES
from .....ops.nn.deconv import Deconvolution, geometry_of
from .....ops.nn.deconv_channels_last import DeconvolutionChannelsLast
from ....base import ChosenKernel, Request
from ....elementwise.epilogue import RECTIFIER
from ....fused.accumulated_gradient import AccumulatedGradient
from ...compiler.kinds import floating
from ...convolution.apart import Apart
from ...convolution.by_cudnn import DATA, OUT, Tail, WEIGHT
from ...convolution.choice import chosen
from ...convolution.numbers import sides
from ...convolution.windowed import ChannelSums
from ...rows import answer, Row, table
from ...runtime.device import Device, InOrder, Run
from ...runtime.rates import precision_of
from ...runtime.scratch import aligned, room

BIAS = "bias"
Form = Mapping[str, tuple[str, ...]]
"""Output's name -> which of the three it is, and the names of its two input arrays; one for BIAS."""

_KINDS = {"y": (OUT, "xw"), "x": (DATA, "yw"), "w": (WEIGHT, "xy")}
"""The role of an output -> which of the three it is, and the roles of its input arrays, in their order."""

_PLAIN = (Convolution, ConvolutionDataGradient, ConvolutionWeightGradient)
_LAST: dict[type[Op] | None, type[Op]] = {
    Convolution: ConvolutionChannelsLast,
    Deconvolution: DeconvolutionChannelsLast,
}


def _form(op: type[Op]) -> Form:
    """The form of an operator, or of its gradient."""
    found: dict[str, tuple[str, ...]] = {}
    for name, names in computed(op).items():
        (role,) = (r for r, n in names.items() if n == name)
        kind, reads = _KINDS[role]
        found[name] = (kind, *(names[r] for r in reads))
    if op.forward_op in _LAST:
        found["d_bias"] = (BIAS, "d_out")
    return found


class Case:
    """One request: its convolution, the outputs it needs, and True if channels are last."""

    def __init__(self, r: Request, of: Callable[..., Geometry], place: int, form: Form, last: bool) -> None:
        self.r, self.last = r, last
        data = first(r.inputs[place]) if last else r.inputs[place]
        self.g = of(r.attrs, data, r.dtype)
        self.form = {n: f for n, f in form.items() if r.is_used(n)}
        self.side_of_bias = sides(self.g, last)[0 if of is geometry_of else 1]

    def tail(self, name: str) -> Tail:
        """The epilogue of the output `name`."""
        if name != "out":
            return Tail()
        r, names = self.r, self.r.op.input_names(self.r.attrs)
        bias, addend = ("" if n not in names or not r.is_used(n) else n for n in ("bias", "addend"))
        return Tail(bool(bias), bool(addend), getattr(r.attrs, "epilogue", None) is not None)


def _way(device: Device, case: Case, name: str, kind: str) -> Any:
    g = case.g
    if kind == BIAS:
        return ChannelSums(device, case.side_of_bias, g.n, g.dtype, g.acc)
    return chosen(device, kind, g, case.last, case.tail(name))


def _row(of: Callable[..., Geometry], place: int, form: Form, last: bool) -> Row:
    def answered(device: Device, r: Request) -> ChosenKernel | None:
        if len(set(r.dtypes)) != 1 or not floating(r.dtype) or getattr(r.attrs, "scale", False):
            return None
        if getattr(r.attrs, "epilogue", None) not in (None, RECTIFIER):
            return None
        case = Case(r, of, place, form, last)
        ways = {n: _way(device, case, n, kind) for n, (kind, *_) in case.form.items()}
        if not ways or any(w is None or not w.fits() for w in ways.values()):
            return None
        return _kernel(device, case, ways)

    return answered


def _added(device: Device, r: Request) -> ChosenKernel | None:
    found = _GRADIENTS.get(r.attrs.op)
    if found is None or r.attrs.of != "data" or len(set(r.dtypes)) != 1 or not floating(r.dtype):
        return None
    of, kind, last = found
    like = r.inputs[2]
    g = of(r.attrs.attrs, first(like) if last else like, r.dtype)
    way = chosen(device, kind, g, last, Tail(addend=True))
    if way is None:
        return None

    def connect(a: Any, d_out: Any, factor: Any, addend: Any, *, out: Any, d_bias: Any, work: Any) -> Run:
        run: Run = way.connect(d_out, factor, out, aligned(device, work), addend=addend)
        return run

    in_place = {} if isinstance(way, Apart) else {"out": ("addend",)}
    precision, nbytes = precision_of(r.dtype), room(way.nbytes)
    return answer(r, connect, nbytes, way.name, in_place=in_place, precision=precision, launches=way.launches)


def _kernel(device: Device, case: Case, ways: Mapping[str, Any]) -> ChosenKernel:
    """The calls of all outputs, one after the other, in the same scratch."""
    r = case.r
    names = r.op.signature.needs

    def connect(a: Any, *inputs: Any, work: Any, **rest: Any) -> Run:
        have, scratch = dict(zip(names, inputs)), aligned(device, work)
        runs: list[Run] = []
        for name, way in ways.items():
            if rest[name] is None or not rest[name].size:
                continue
            arrays = [have[n] for n in case.form[name][1:]]
            more = {}
            if name == "out":
                more = {n: have[n] for n in ("bias", "addend") if have.get(n) is not None}
                more |= {"relu": True} if getattr(a, "epilogue", None) is not None else {}
            runs.append(way.connect(*arrays, rest[name], scratch, **more))
        return InOrder(runs)

    nbytes = room(max(w.nbytes for w in ways.values()))
    called = ", ".join(dict.fromkeys(w.name for w in ways.values()))
    launches, precision = sum(w.launches for w in ways.values()), precision_of(r.dtype)
    return answer(r, connect, nbytes, called, precision=precision, launches=launches)


_EVERY = [
    (kind, last, geometry if op in _PLAIN else geometry_of, place, _form(op), _form(op.grad_op))
    for op in ROLES
    for place, name in enumerate(op.inputs)
    if name in ("data", "like") and op.grad_op is not None
    for kind, last in ((op, False), (_LAST.get(op), True))
    if kind is not None
]
_GRADIENTS = {
    op: (of, backward["d_data"][0], last)
    for op, last, of, _, _, backward in _EVERY
    if backward.get("d_data", ())[1:] == ("d_out", "weight")
}
"""Operators with a gradient of data to which a kernel can add: geometry, which of the three it is, layout."""

rows = table(
    *((op, _row(of, n, form, last), _row(of, n, back, last)) for op, last, of, n, form, back in _EVERY),
    (ConvolutionEpilogue, _row(geometry, 0, _form(Convolution), True), None),
    (AccumulatedGradient, _added, None),
)
