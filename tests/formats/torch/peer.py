"""A module's outputs and gradients beside those of the network imported from it."""

import copy
import inspect

import numpy as np

import mxlite as mx


def bound(symbol, args, aux, data):
    """A bound network with gradients for what trains."""
    names = symbol.list_arguments()
    trains = {n for n in args if symbol.attr_dict().get(n, {}).get("__lr_mult__", "1") not in ("0", "0.0")}
    executor = symbol.simple_bind(
        mx.cpu(),
        grad_req={n: "write" if n in trains else "null" for n in names},
        **{n: x.shape for n, x in data.items()},
    )
    executor.copy_params_from(args, aux)
    return executor, trains


def compare(module, inputs, tolerance=1e-4):
    """Assert equal outputs, and equal gradients of every parameter for random gradients of the outputs."""
    import torch

    symbol, args, aux = mx.from_torch(module, inputs)
    reference = copy.deepcopy(module).train()
    outputs = reference(*inputs)
    outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    heads = [torch.ones_like(o) if o.ndim == 0 else torch.randn_like(o) for o in outputs]
    torch.autograd.backward(outputs, heads)
    called = list(inspect.signature(module.forward).parameters)
    data = {n: x.numpy() for n, x in zip(called, inputs)}
    data = {n: x for n, x in data.items() if n in symbol.list_arguments()}
    executor, trains = bound(symbol, args, aux, data)
    ours = executor.forward(is_train=True, **{n: mx.nd.array(x, dtype=x.dtype) for n, x in data.items()})
    assert [o.shape for o in ours] == [tuple(o.shape) for o in outputs]
    for o, t in zip(ours, outputs):
        assert error_of(o.asnumpy(), t.detach().numpy()) < tolerance
    executor.backward([mx.nd.array(h.numpy()) for h in heads])
    wanted = {n: p.grad for n, p in reference.named_parameters() if p.grad is not None}
    assert set(wanted) <= trains, sorted(set(wanted) - trains)
    # A bias before a normalization has the gradient 0 but for rounding: it is measured by the largest of all.
    least = max((float(g.abs().max()) for g in wanted.values()), default=0.0) / 10
    for name, gradient in wanted.items():
        found = error_of(executor.grad_dict[name].asnumpy(), gradient.numpy(), least)
        assert found < tolerance, (name, found)
    return symbol, args, aux


def error_of(ours, theirs, least=1e-3):
    """The largest difference relative to the largest number, which counts as `least` at least."""
    assert ours.shape == theirs.shape
    return float(np.abs(ours - theirs).max(initial=0) / max(np.abs(theirs).max(initial=0), least, 1e-6))
