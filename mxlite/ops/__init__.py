"""Every operator, and the table from names to them.

A new operator is a class in one of these files, one line in the import and one in ALL.
"""

from __future__ import annotations

from ..core.errors import DefinitionError, nearest, UnknownNameError
from ..graph.opdef import Op
from .activation import (
    Activation as Activation,
    LeakyReLU as LeakyReLU,
    relu as relu,
    sigmoid as sigmoid,
    softmax as softmax,
    tanh as tanh,
)
from .broadcast import (
    broadcast_add as broadcast_add,
    broadcast_axis as broadcast_axis,
    broadcast_div as broadcast_div,
    broadcast_equal as broadcast_equal,
    broadcast_greater as broadcast_greater,
    broadcast_greater_equal as broadcast_greater_equal,
    broadcast_lesser as broadcast_lesser,
    broadcast_lesser_equal as broadcast_lesser_equal,
    broadcast_maximum as broadcast_maximum,
    broadcast_minimum as broadcast_minimum,
    broadcast_mod as broadcast_mod,
    broadcast_mul as broadcast_mul,
    broadcast_not_equal as broadcast_not_equal,
    broadcast_power as broadcast_power,
    broadcast_sub as broadcast_sub,
    broadcast_to as broadcast_to,
)
from .constant import (
    _arange as _arange,
    _full as _full,
    _ones as _ones,
    _zeros as _zeros,
)
from .conv import Convolution as Convolution
from .cut import (
    Concat as Concat,
    slice as slice,
    slice_axis as slice_axis,
    SliceChannel as SliceChannel,
    stack as stack,
)
from .dense import FullyConnected as FullyConnected
from .dropout import Dropout as Dropout
from .elemwise import (
    add_n as add_n,
    elemwise_add as elemwise_add,
    elemwise_div as elemwise_div,
    elemwise_mul as elemwise_mul,
    elemwise_sub as elemwise_sub,
)
from .index import (
    Embedding as Embedding,
    one_hot as one_hot,
    pick as pick,
    take as take,
    where as where,
)
from .linalg import (
    batch_dot as batch_dot,
    dot as dot,
)
from .loss import (
    BlockGrad as BlockGrad,
    LinearRegressionOutput as LinearRegressionOutput,
    LogisticRegressionOutput as LogisticRegressionOutput,
    MAERegressionOutput as MAERegressionOutput,
    make_loss as make_loss,
    MakeLoss as MakeLoss,
    SoftmaxOutput as SoftmaxOutput,
)
from .norm import BatchNorm as BatchNorm
from .optimizer_ops import (
    _fused_adam as _fused_adam,
    _fused_sgd as _fused_sgd,
    _fused_sgd_mom as _fused_sgd_mom,
    adam_update as adam_update,
    sgd_mom_update as sgd_mom_update,
    sgd_update as sgd_update,
)
from .philox import RandomStream as RandomStream
from .pool import Pooling as Pooling
from .random import (
    _random_normal as _random_normal,
    _random_uniform as _random_uniform,
)
from .reduce import (
    argmax as argmax,
    argmin as argmin,
    max as max,
    mean as mean,
    min as min,
    norm as norm,
    prod as prod,
    sum as sum,
)
from .reshape import (
    expand_dims as expand_dims,
    Flatten as Flatten,
    Reshape as Reshape,
    squeeze as squeeze,
)
from .scalar import (
    _div_scalar as _div_scalar,
    _equal_scalar as _equal_scalar,
    _greater_equal_scalar as _greater_equal_scalar,
    _greater_scalar as _greater_scalar,
    _lesser_equal_scalar as _lesser_equal_scalar,
    _lesser_scalar as _lesser_scalar,
    _maximum_scalar as _maximum_scalar,
    _minimum_scalar as _minimum_scalar,
    _minus_scalar as _minus_scalar,
    _mod_scalar as _mod_scalar,
    _mul_scalar as _mul_scalar,
    _not_equal_scalar as _not_equal_scalar,
    _plus_scalar as _plus_scalar,
    _power_scalar as _power_scalar,
    _rdiv_scalar as _rdiv_scalar,
    _rminus_scalar as _rminus_scalar,
    _rmod_scalar as _rmod_scalar,
    _rpower_scalar as _rpower_scalar,
)
from .shape import (
    Cast as Cast,
    repeat as repeat,
    reverse as reverse,
    SwapAxis as SwapAxis,
    tile as tile,
    transpose as transpose,
)
from .unary import (
    _copy as _copy,
    abs as abs,
    ceil as ceil,
    clip as clip,
    cos as cos,
    exp as exp,
    expm1 as expm1,
    floor as floor,
    log as log,
    log1p as log1p,
    negative as negative,
    ones_like as ones_like,
    reciprocal as reciprocal,
    rint as rint,
    round as round,
    rsqrt as rsqrt,
    sign as sign,
    sin as sin,
    sqrt as sqrt,
    square as square,
    zeros_like as zeros_like,
)

ALL: tuple[type[Op], ...] = (
    Activation,
    LeakyReLU,
    relu,
    sigmoid,
    softmax,
    tanh,
    broadcast_add,
    broadcast_axis,
    broadcast_div,
    broadcast_equal,
    broadcast_greater,
    broadcast_greater_equal,
    broadcast_lesser,
    broadcast_lesser_equal,
    broadcast_maximum,
    broadcast_minimum,
    broadcast_mod,
    broadcast_mul,
    broadcast_not_equal,
    broadcast_power,
    broadcast_sub,
    broadcast_to,
    _arange,
    _full,
    _ones,
    _zeros,
    Convolution,
    Concat,
    slice,
    slice_axis,
    SliceChannel,
    stack,
    FullyConnected,
    Dropout,
    add_n,
    elemwise_add,
    elemwise_div,
    elemwise_mul,
    elemwise_sub,
    Embedding,
    one_hot,
    pick,
    take,
    where,
    batch_dot,
    dot,
    BlockGrad,
    LinearRegressionOutput,
    LogisticRegressionOutput,
    make_loss,
    MAERegressionOutput,
    MakeLoss,
    SoftmaxOutput,
    BatchNorm,
    _fused_adam,
    _fused_sgd,
    _fused_sgd_mom,
    adam_update,
    sgd_mom_update,
    sgd_update,
    Pooling,
    _random_normal,
    _random_uniform,
    argmax,
    argmin,
    max,
    mean,
    min,
    norm,
    prod,
    sum,
    expand_dims,
    Flatten,
    Reshape,
    squeeze,
    _div_scalar,
    _equal_scalar,
    _greater_equal_scalar,
    _greater_scalar,
    _lesser_equal_scalar,
    _lesser_scalar,
    _maximum_scalar,
    _minimum_scalar,
    _minus_scalar,
    _mod_scalar,
    _mul_scalar,
    _not_equal_scalar,
    _plus_scalar,
    _power_scalar,
    _rdiv_scalar,
    _rminus_scalar,
    _rmod_scalar,
    _rpower_scalar,
    Cast,
    repeat,
    reverse,
    SwapAxis,
    tile,
    transpose,
    _copy,
    abs,
    ceil,
    clip,
    cos,
    exp,
    expm1,
    floor,
    log,
    log1p,
    negative,
    ones_like,
    reciprocal,
    rint,
    round,
    rsqrt,
    sign,
    sin,
    sqrt,
    square,
    zeros_like,
)
"""Every operator; no two share a name."""


def _table(operators: tuple[type[Op], ...]) -> dict[str, type[Op]]:
    table: dict[str, type[Op]] = {}
    for op in operators:
        for name in (op.op_name, *op.aliases):
            if table.setdefault(name, op) is not op:
                raise DefinitionError(f"both {table[name].__name__} and {op.__name__} are called {name!r}.")
    return table


TABLE: dict[str, type[Op]] = _table(ALL)
"""Public names and aliases to operators."""


def find_op(name: str) -> type[Op]:
    """The operator of that name or alias. Raises UnknownNameError, with the nearest name."""
    op = TABLE.get(name)
    if op is None:
        raise UnknownNameError(f"There is no operator {name!r}.{nearest(name, TABLE)}")
    return op
