"""`mx.sym.Variable`: the inputs of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core import flag_of
from ..core.errors import OpAttributeError, UnknownNameError
from ..core.wanted import wanted
from ..graph import Entry, Node, Shape
from ..ops.linalg.sparse_storage import STYPES
from .attribute import AttrScope, HIDDEN, is_annotation, require_text, stored_key
from .inference import checked_shape
from .symbol import Symbol


def Variable(
    name: str,
    attr: Mapping[str, str] | None = None,
    shape: Shape | None = None,
    lr_mult: float | None = None,
    wd_mult: float | None = None,
    dtype: Any = None,
    init: Any = None,
    stype: str | None = None,
    **kwargs: Any,
) -> Symbol:
    """A free input of a graph: data, a label, a parameter.

    shape: tuple or one length, 0 for unknown dimensions.  dtype: as numpy's.  lr_mult, wd_mult: factors on
    the learning rate and the weight decay.  init: an initializer, or its text form.  kwargs: `__key__`
    attributes.  stype: 'default', 'csr' or 'row_sparse'; a bound program has dense arrays all the same, but
    knows which rows a gradient reaches. Raises UnknownNameError for other keywords.
    """
    if not isinstance(name, str) or not name:
        raise OpAttributeError(f"The name of a variable must be text, got {name!r}.")
    if stype is not None and stype not in STYPES:
        raise OpAttributeError(f"Variable {name!r}: stype is one of {', '.join(STYPES)}, got {stype!r}.")
    about: dict[str, str] = {}
    for key, value in AttrScope.current.get(attr).items():
        require_text(key, value, f"Variable {name!r}")
        about[stored_key(key)] = value
    settings = {
        "__shape__": None
        if shape is None
        else checked_shape(name, (shape,) if hasattr(shape, "__index__") else shape),
        "__lr_mult__": lr_mult,
        "__wd_mult__": wd_mult,
        "__dtype__": None if dtype is None else flag_of(dtype),
        "__storage_type__": None if stype is None else STYPES[stype],
        "__init__": init if init is None or isinstance(init, str) else _dumped(name, init),
    }
    for key in kwargs:
        if not is_annotation(key) or key in HIDDEN:
            raise UnknownNameError(
                f"Variable {name!r} has no parameter {key!r}; further attributes are written '__{key}__'."
            )
    about |= {k: str(v) for k, v in {**settings, **kwargs}.items() if v is not None}
    return Symbol((Entry(Node(None, None, (), name, annotations=about)),))


def _dumped(name: str, init: Any) -> str:
    text: str = wanted(f"Variable {name!r}: init", init, "an Initializer or its text", has=("dumps",)).dumps()
    return text


var = Variable
