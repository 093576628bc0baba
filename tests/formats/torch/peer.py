"""A module's outputs and gradients beside those of the network imported from it."""

import copy
import inspect
from typing import Any, NamedTuple

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


class Beside(NamedTuple):
    """A network beside the module it was imported from: largest errors, relative to the largest numbers."""

    symbol: Any
    args: dict
    aux: dict
    each: list  # of the outputs
    gradients: dict  # by the parameter's name

    @property
    def outputs(self):
        return max(self.each)


def beside(module, inputs, imported=None):
    """One forward and backward of both, with random gradients of the outputs."""
    import torch

    symbol, args, aux = imported or mx.from_torch(module, inputs)
    reference = copy.deepcopy(module).train()
    outputs = reference(*inputs)
    outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    heads = [torch.ones_like(o) if o.ndim == 0 else torch.randn_like(o) for o in outputs]
    torch.autograd.backward(outputs, heads)
    data = named_inputs(module, inputs, symbol)
    executor, trains = bound(symbol, args, aux, data)
    ours = executor.forward(is_train=True, **{n: mx.nd.array(x, dtype=x.dtype) for n, x in data.items()})
    assert [o.shape for o in ours] == [tuple(o.shape) for o in outputs]
    each = [error_of(o.asnumpy(), t.detach().numpy()) for o, t in zip(ours, outputs)]
    executor.backward([mx.nd.array(h.numpy()) for h in heads])
    wanted = {n: p.grad for n, p in reference.named_parameters() if p.grad is not None}
    assert set(wanted) <= trains, sorted(set(wanted) - trains)
    # A bias before a normalization has the gradient 0 but for rounding: it is measured by the largest of all.
    least = max((float(g.abs().max()) for g in wanted.values()), default=0.0) / 10
    errors = {n: error_of(executor.grad_dict[n].asnumpy(), g.numpy(), least) for n, g in wanted.items()}
    return Beside(symbol, args, aux, each, errors)


def compare(module, inputs, tolerance=1e-4, imported=None):
    """Assert equal outputs, and equal gradients of every parameter for random gradients of the outputs."""
    found = beside(module, inputs, imported)
    assert found.outputs < tolerance
    wrong = {n: e for n, e in found.gradients.items() if not e < tolerance}
    assert not wrong
    return found.symbol, found.args, found.aux


def named_inputs(module, inputs, symbol):
    """The inputs that the symbol reads, as arrays by name."""
    called = inspect.signature(module.forward).parameters
    data = {n: x.numpy() for n, x in zip(called, inputs)}
    return {n: x for n, x in data.items() if n in symbol.list_arguments()}


def names_kept(module, args, aux):
    """True if each array is called as in the module's `state_dict`; constants of its code are not."""
    own = {n for n in (*args, *aux) if not mx.formats.torch.weights.is_constant(n)}
    return own <= {*dict(module.named_parameters()), *dict(module.named_buffers())}


def trained(module, inputs, steps, rate=0.01, momentum=0.9):
    """The losses of `steps` steps of gradient descent: of ours, by `mx.mod.Module`, and of PyTorch's.

    The loss is what the module gives, if that is a number, else the squared distance to random targets.
    """
    import torch

    loss = with_loss(copy.deepcopy(module).train(), inputs)
    symbol, args, aux = mx.from_torch(loss, inputs)
    data = {
        n: x.numpy()
        for n, x in zip((f"inputs_{i}" for i in range(len(inputs))), inputs)
        if n in symbol.list_arguments()
    }
    ours = mx.mod.Module(symbol, data_names=list(data), label_names=None)
    ours.bind([mx.io.DataDesc(n, x.shape, x.dtype) for n, x in data.items()])
    ours.set_params(args, aux)
    ours.init_optimizer(
        optimizer="sgd",
        optimizer_params={"learning_rate": rate, "momentum": momentum, "rescale_grad": 1.0},
    )
    batch = mx.io.DataBatch([mx.nd.array(x, dtype=x.dtype) for x in data.values()], [])
    theirs = torch.optim.SGD(loss.parameters(), lr=rate, momentum=momentum)
    losses = []
    for _ in range(steps):
        ours.forward_backward(batch)
        found = float(ours.get_outputs()[0].asnumpy())
        ours.update()
        theirs.zero_grad()
        out = loss(*inputs)
        out.backward()
        theirs.step()
        losses.append((found, out.item()))
    return losses


def with_loss(module, inputs):
    """The module with a loss behind it."""
    import torch

    class WithLoss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.module = module
            with torch.no_grad():
                self.targets = [torch.randn_like(o) for o in self.outputs(inputs)]

        def outputs(self, inputs):
            outputs = self.module(*inputs)
            return [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)

        def forward(self, *inputs):
            pairs = zip(self.outputs(inputs), self.targets)
            return sum(o if o.ndim == 0 else ((o - t) ** 2).mean() for o, t in pairs)

    return WithLoss()


def error_of(ours, theirs, least=1e-3):
    """The largest difference relative to the largest number, which counts as `least` at least."""
    assert ours.shape == theirs.shape
    return float(np.abs(ours - theirs).max(initial=0) / max(np.abs(theirs).max(initial=0), least, 1e-6))
