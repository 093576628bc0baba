"""PyTorch's own samples of its operators, imported by `mx.from_torch`: an oracle for every converter.

PyTorch tests each of its operators with samples of arguments: axes from the end, lengths of 0 and 1, modes,
thresholds. A sample is a module that calls the operator once. Either it is refused with an error of mxlite's
own, or outputs and gradients are PyTorch's.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import mxlite as mx

RELATIVE, ABSOLUTE = 2e-4, 2e-5
"""Of each number, and of the largest of its array: both sides are float32."""

KNOWN = {
    "linalg.norm.subgradients_at_zero": "a negative order at 0",
}
"""Operators that may have other gradients, and why."""


_NO_ORACLE = ("empty", "new_empty", "jiterator")
"""Operators whose numbers are not defined, or that run on a GPU only."""


class Verdict(NamedTuple):
    """What became of a sample: equal, refused (`why`), or `wrong`."""

    refused: str = ""
    wrong: str = ""


@dataclass(frozen=True)
class Sample:
    """An operator with arguments, of which `tensors` are the inputs of a module."""

    operator: Any
    leaves: tuple[Any, ...]
    structure: Any
    places: tuple[int, ...]

    @property
    def tensors(self) -> list[Any]:
        return [self.leaves[i] for i in self.places]

    def __str__(self) -> str:
        shapes = [(*t.shape, str(t.dtype).removeprefix("torch.")) for t in self.tensors]
        plain = [x for i, x in enumerate(self.leaves) if i not in self.places]
        return f"{name(self.operator)} of {shapes}, {plain}"

    def call(self, tensors: Any) -> tuple[Any, ...]:
        """The operator's results that are tensors."""
        import torch
        from torch.utils import _pytree

        leaves = list(self.leaves)
        for place, tensor in zip(self.places, tensors):
            leaves[place] = tensor
        args, kwargs = _pytree.tree_unflatten(leaves, self.structure)
        found = _pytree.tree_leaves(self.operator.op(*args, **kwargs))
        return tuple(x for x in found if isinstance(x, torch.Tensor))

    def module(self) -> Any:
        """A module whose forward takes the tensors."""
        import torch

        class Call(torch.nn.Module):
            def forward(_, *tensors: Any) -> Any:
                return self.call(tensors)

        return Call()


def operators() -> list[Any]:
    """PyTorch's descriptions of its operators."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    # This import forbids PyTorch's flags to be set, as later tests of this process do.
    torch.backends.disable_global_flags.__globals__["__allow_nonbracketed_mutation_flag"] = True
    return [o for o in op_db if not o.name.startswith(_NO_ORACLE)]


def name(operator: Any) -> str:
    """An operator's name with that of its variant."""
    variant = operator.variant_test_name
    return f"{operator.name}.{variant}" if variant else str(operator.name)


def samples(operator: Any, seed: int = 0) -> Iterator[Sample]:
    """The samples whose tensors are dense and of float32 or whole numbers, and that draw no number.

    `seed` gives the numbers in them.
    """
    import torch
    from torch.utils import _pytree

    if torch.float32 not in operator.dtypes:
        return
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, of its own samples
        torch.manual_seed(seed)
        found = list(operator.sample_inputs("cpu", torch.float32, requires_grad=False))
    for sample in found:
        leaves, structure = _pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        places = tuple(i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor))
        tensors = [leaves[i] for i in places]
        fits = all(
            t.layout == torch.strided and t.dtype != torch.float64 and not t.is_complex() for t in tensors
        )
        if places and fits:
            leaves = [x.detach().clone() if i in places else x for i, x in enumerate(leaves)]
            yield Sample(operator, tuple(leaves), structure, places)


def judge(sample: Sample) -> Verdict | None:
    """The verdict on a sample; None where PyTorch itself cannot run it, or draws numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = _theirs(sample)
    if wanted is None:
        return None
    outputs, gradients, heads = wanted
    try:
        symbol, arguments, states = mx.from_torch(sample.module(), tuple(sample.tensors))
    except mx.MXNetError as error:
        return Verdict(refused=str(error))
    fed = {f"tensors_{i}": t.numpy() for i, t in enumerate(sample.tensors)}
    names = [n for n in fed if n in symbol.list_arguments()]
    given = {n: mx.nd.array(fed[n], dtype=str(fed[n].dtype)) for n in names}
    slopes = {n: mx.nd.zeros_like(given[n]) for n in names if fed[n].dtype == np.float32}
    requests = {n: "write" if n in slopes else "null" for n in symbol.list_arguments()}
    executor = symbol.bind(mx.cpu(), {**given, **arguments}, slopes, requests, states)
    ours = executor.forward(is_train=True)
    if len(ours) != len(outputs):
        return Verdict(wrong=f"{len(ours)} results instead of {len(outputs)}")
    for i, (out, theirs) in enumerate(zip(ours, outputs)):
        if wrong := _difference(out.asnumpy(), theirs):
            return Verdict(wrong=f"result {i}: {wrong}")
    if gradients and slopes and name(sample.operator) not in KNOWN:
        executor.backward([mx.nd.array(h, dtype=o.dtype) for h, o in zip(heads, ours)])
        for n, slope in slopes.items():
            theirs = gradients[int(n.removeprefix("tensors_"))]
            if theirs is not None and (wrong := _difference(slope.asnumpy(), theirs)):
                return Verdict(wrong=f"gradient of {n}: {wrong}")
    return Verdict()


def _theirs(sample: Sample) -> tuple[list[np.ndarray], list[np.ndarray | None], list[np.ndarray]] | None:
    """PyTorch's outputs, its gradients, and the outputs' gradients; no gradients where it has none."""
    import torch

    tensors = [t.clone().requires_grad_(t.is_floating_point()) for t in sample.tensors]
    try:
        with _Draws() as draws:
            outputs = sample.call([t.clone() for t in sample.tensors])
        if draws.found or any(o.is_complex() or o.layout != torch.strided for o in outputs) or not outputs:
            return None
        outputs = sample.call(tensors)
        generator = torch.Generator().manual_seed(0)
        heads = [
            torch.randn(o.shape, generator=generator).to(o.dtype) if o.dim() else torch.ones_like(o)
            for o in outputs
        ]
        pairs = [(o, h) for o, h in zip(outputs, heads) if o.requires_grad]
        if pairs:
            torch.autograd.backward([o for o, _ in pairs], [h for _, h in pairs])
    except Exception:  # of many kinds: samples of what this PyTorch cannot run
        return None
    slopes = [None if t.grad is None or t.grad.layout != torch.strided else _array(t.grad) for t in tensors]
    return [_array(o) for o in outputs], slopes if pairs else [], [_array(h) for h in heads]


def _array(tensor: Any) -> np.ndarray:
    import torch

    tensor = tensor.detach()
    return np.array((tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy(force=True))


def _difference(ours: np.ndarray, theirs: np.ndarray) -> str:
    """The first element that differs; "" if none. A gradient of PyTorch's that is no number is no oracle."""
    if ours.shape != theirs.shape:
        return f"shape {ours.shape} instead of {theirs.shape}"
    x, y = ours.astype(np.float64), theirs.astype(np.float64)
    size = np.abs(y[np.isfinite(y)]).max(initial=0.0)
    with np.errstate(invalid="ignore"):
        equal = np.isclose(x, y, RELATIVE, ABSOLUTE * max(1.0, size), equal_nan=True)
    if equal.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~equal)[0])
    return f"{(~equal).sum()} of {equal.size} elements, at {list(at)} {x[at]} instead of {y[at]}"


def _Draws() -> Any:
    """A mode that notes in `found` whether an operator draws numbers."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Draws(TorchDispatchMode):
        found = False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if torch.Tag.nondeterministic_seeded in func.tags:
                self.found = True
            return func(*args, **(kwargs or {}))

    return Draws()
