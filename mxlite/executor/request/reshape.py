"""An executor for other input shapes, made from one that exists; see `Executor.reshape`."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ...core import BindError, nearest, ShapeError
from ...core.compat.npshape import from_user
from ...graph import Entry, Graph, LOSS_SCALE, Shape
from ...graph.update import HISTORY
from ...ndarray import NDArray
from ..executor import Executor
from ..plan.candidates import Planned
from ..plan.lower import STAGING
from ..plan.step import input_names, Key
from ..run.link import link
from .amp import typed
from .bind_request import Shapes
from .replanning import replanned


def _first(array: NDArray, shape: Shape) -> NDArray:
    """The array, or a view of its first elements with other axes."""
    return array if array.shape == shape else array.reshape((-1,))[: prod(shape)].reshape(shape)


def rebind(executor: Executor, shapes: Shapes, partial_shaping: bool, allow_up_sizing: bool) -> Executor:
    """See `Executor.reshape`. The plan is made from that of `executor`, in milliseconds."""
    request = executor._request
    graph = executor._planned.graph
    bare = Graph(graph.outputs)
    old = {n: a.shape for n, a in executor.arg_dict.items()}
    known = {**request.shapes, **{n: from_user(s, n) for n, s in shapes.items()}}
    data = input_names(executor._planned.graph, list(known))
    for name in shapes:
        if name not in old:
            raise BindError(f"reshape: {name!r} is no argument of this symbol.{nearest(name, old)}")
    types = {n: a.dtype for n, a in {**executor.arg_dict, **executor.aux_dict}.items()}
    inferred, stored = typed(bare, known, types, request.amp)
    for n in inferred.arguments:
        new = inferred.shapes[Entry(n)]
        if new != old[n.name] and n.name not in data and not partial_shaping:
            raise ShapeError(
                f"reshape changes {n.name!r} from {old[n.name]} to {new}; partial_shaping=True allows that."
            )
        if prod(new) > prod(old[n.name]) and not allow_up_sizing:
            raise ShapeError(
                f"reshape makes {n.name!r} larger, {new}, not {old[n.name]}; allow_up_sizing=True allows it."
            )

    def there(planned: Planned) -> dict[Key, NDArray]:
        """The arrays of `executor` that can be reused; of larger ones the first elements."""
        owned = {k: kind for one in planned.of_devices for k, kind in one.train.step.owned.items()}
        return {
            k: _first(a, owned[k][0])
            for k, a in executor._arrays.items()
            if k in owned
            and prod(owned[k][0]) <= a.size
            and (k != ("var", LOSS_SCALE) or ("var", HISTORY) in executor._arrays)
            and k != STAGING
        }

    templates = executor.templates()
    template = None if request.devices.are_several else templates[0]
    scale, value = request.scale, executor.loss_scale
    if scale is not None and value is not None:
        scale = replace(scale, value=value)
    request = replace(request, shapes=known, type_dict=None, loss_scale=scale, metrics=())
    planned, requests = replanned(
        executor,
        request,
        (inferred, stored),
        known,
        there,
        choose=lambda _, steps, usual: steps.plan(request.budget, template),
        template=templates[1],
        like=executor._planned.lowered,
        in_place=bool(executor._planned.infer.step.forms),
    )
    return link(planned, request, there(planned), requests, executor, executor._anew)
