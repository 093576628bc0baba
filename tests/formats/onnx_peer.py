"""Networks of PyTorch as its two exporters write them, and as they train after import."""

import contextlib
import inspect
import io
import logging
import warnings
from typing import NamedTuple

import numpy as np
import onnx
import torch

import mxlite as mx
from mxlite.formats.onnx import import_model

from .torch.modules import NETWORKS
from .torch.peer import error_of


def settled(name):
    """A network whose parameters all differ, as exporters join equal ones, and its inputs."""
    torch.manual_seed(7)
    module, inputs = NETWORKS[name]()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return module.train(), inputs


def written(module, inputs, **how):
    """The model that an exporter writes, its inputs called as those of `forward`."""
    names = list(inspect.signature(module.forward).parameters)[: len(inputs)]
    file = io.BytesIO()
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            program = torch.onnx.export(module, inputs, file, input_names=names, **how)
    finally:
        logging.disable(logging.NOTSET)
    return program.model_proto if program is not None else onnx.load_from_string(file.getvalue())


def older(module, inputs, opset=17):
    return written(
        module, inputs, dynamo=False, opset_version=opset, do_constant_folding=False,
        training=torch.onnx.TrainingMode.TRAINING,
    )  # fmt: skip


def newer(module, inputs, opset=None, optimize=False):
    """Without its optimizer every parameter has its own name, and normalization is not folded."""
    return written(module, inputs, dynamo=True, opset_version=opset, optimize=optimize, verbose=False)


class Errors(NamedTuple):
    """The largest errors of outputs, of gradients, and of outputs after a step along these."""

    outputs: float
    gradients: float
    after: float


def trained_as(module, inputs, model):
    """The errors of an imported model beside the module, whose parameters move a step; relative to the
    largest numbers, of gradients at least to a tenth of the largest of all.
    """
    symbol, args, aux = import_model(model)
    names = symbol.list_arguments()
    feed = {n: x.numpy() for n, x in zip(inspect.signature(module.forward).parameters, inputs)}
    feed = {n: mx.nd.array(x, dtype=x.dtype) for n, x in feed.items() if n in names}
    trained = {n: p for n, p in module.named_parameters(remove_duplicate=False) if n in names}
    executor = symbol.simple_bind(
        mx.cpu(),
        grad_req={n: "write" if n in trained else "null" for n in names},
        **{n: x.shape for n, x in feed.items()},
    )
    executor.copy_params_from(args, aux)

    def outputs_of(made):
        return [made] if isinstance(made, torch.Tensor) else list(made)

    theirs = outputs_of(module(*inputs))
    heads = [torch.ones_like(o) if o.ndim == 0 else torch.randn_like(o) for o in theirs]
    torch.autograd.backward(theirs, heads)
    found = {id(p) for p in trained.values()}
    assert not [n for n, p in module.named_parameters() if p.grad is not None and id(p) not in found]
    ours = executor.forward(is_train=True, **feed)
    assert [o.shape for o in ours] == [tuple(o.shape) for o in theirs]
    outputs = max(error_of(o.asnumpy(), t.detach().numpy()) for o, t in zip(ours, theirs))
    executor.backward([mx.nd.array(h.numpy()) for h in heads])
    wanted = {n: p.grad.numpy() for n, p in trained.items() if p.grad is not None}
    largest = max(float(np.abs(g).max()) for g in wanted.values())
    errors = [error_of(executor.grad_dict[n].asnumpy(), g, largest / 10) for n, g in wanted.items()]
    with torch.no_grad():
        for n, gradient in wanted.items():
            trained[n] -= torch.from_numpy(gradient) * (0.01 / largest)
            executor.arg_dict[n][:] = executor.arg_dict[n] - executor.grad_dict[n] * (0.01 / largest)
        pairs = zip(executor.forward(is_train=True, **feed), outputs_of(module(*inputs)))
        after = max(error_of(o.asnumpy(), t.numpy()) for o, t in pairs)
    return Errors(outputs, max(errors), after)
