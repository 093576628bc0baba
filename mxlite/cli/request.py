"""A question to the planner: a model, a batch, training or inference, types, an optimizer."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ..core import as_dtype, cpu, gpu
from ..core.bytesize import format_bytes, parse_bytes, UNBOUNDED
from ..core.errors import DTypeError, MXLiteError, nearest, ShapeError
from ..executor.plan.step import input_names
from ..executor.request.amp import SHORT_NAMES
from ..executor.request.bind_request import Offload
from ..formats.building.losses import LOSSES
from ..graph import Entry, infer_shapes, Node
from ..graph.opdef import known_shape
from ..memplan import MemoryPlan, Ranks, STRATEGIES
from ..memplan.cost.device import MEASURED
from ..memplan.cost.ranks import ALONE, SHARDS
from ..module.optim import optimizer as optimizers
from ..symbol import Symbol
from .source import call, given_shapes, ModelSource, named_options, Shapes

DTYPES = {n: n for n in ("float32", "float64", "bfloat16", "float16")} | SHORT_NAMES
"""Values of `--dtype`, and the type that each means."""


@dataclass(frozen=True)
class Request:
    """One question to the planner; `dataclasses.replace` makes the next."""

    source: ModelSource
    batch: int | None = None
    train: bool = True
    dtype: str = "float32"
    optimizer: str | None = None
    strategy: str = "sharing"
    device: str | None = None
    offload: Offload = None
    gpu: bool = False
    ranks: Ranks = ALONE

    def plan(self, budget: int | None = None) -> MemoryPlan:
        """The plan. Raises MemoryBudgetError if nothing that fits is found."""
        net, shapes, options = self.asked(budget)
        return net.memory_plan(**options, **shapes)  # type: ignore[arg-type]

    def asked(self, budget: int | None = None) -> tuple[Symbol, Shapes, dict[str, Any]]:
        """The network, the shapes of its inputs, and the options of `Symbol.memory_plan`."""
        net, shapes = call(self.source.name, self.source.read, self.batch)
        inputs = _checked_inputs(net, shapes)
        if self.batch is not None and not self.source.has_batch:
            raise ShapeError(self.source.no_batch(net, shapes))
        if not self.train:
            grad_req: Any = "null"
        else:
            kept = inputs | self.source.frozen(net, self.batch)
            grad_req = {n: "null" if n in kept else "write" for n in net.list_arguments()}
        options = dict(
            ctx=gpu() if self.gpu else cpu(),
            grad_req=grad_req,
            type_dict=self._types(net, shapes, inputs),
            memory_budget=budget,
            optimizer=self._optimizer() if self.train else None,
            strategy=self.strategy,
            amp=self.dtype if self.is_mixed else None,
            device=self.device,
            offload=self.offload,
            ranks=self.ranks,
        )
        return net, shapes, options

    def keep_all(self) -> MemoryPlan:
        """The plan that keeps everything, for the step that budgets are planned for: there inference keeps no
        folded constants, and training recomputes nothing except by the planner's choice."""
        return replace(self.plan(UNBOUNDED), budget_bytes=None)

    def _types(self, net: Symbol, shapes: Shapes, inputs: set[str]) -> Mapping[str, Any] | None:
        """Types of arguments. Those that are read only in 16 bits are stored in 16 bits: batches, as a Module
        does, and parameters that are not trained.
        """
        if self.dtype == "float64":
            return types_of(net, set(shapes))
        if not self.is_mixed:
            return None
        types = net.amp_types(self.dtype, None, **shapes)
        return {n: t for n, t in types.items() if not self.train or n in inputs}

    @property
    def is_mixed(self) -> bool:
        """True if parameters are float32 and activations 16-bit."""
        return self.dtype in ("bfloat16", "float16")

    def _optimizer(self) -> Any:
        if self.optimizer is None:
            return None
        name, options = named_options(self.optimizer)
        return call(f"--optimizer {self.optimizer}", optimizers.create, name, **options)

    def describe(self) -> str:
        """Model, batch and options of the plan, as a heading."""
        batch = self.source.batch_of(self.batch)
        parts = [self.source.name, *([f"batch {batch}"] if batch is not None else [])]
        parts.append(f"mixed {self.dtype} and float32" if self.is_mixed else self.dtype)
        if self.is_mixed and not self.train:
            parts.append("narrow parameters")
        parts.append("training" if self.train else "inference")
        if self.source.loss is not None:
            parts.append(f"loss {self.source.loss}")
        if self.train:
            parts.append(
                f"{self.optimizer} inside the step" if self.optimizer else "gradients kept, no optimizer"
            )
        if self.gpu:
            parts.append("on a GPU")
        if self.strategy != "sharing":
            parts.append(f"strategy {self.strategy}")
        if self.device is not None:
            parts.append("measured times" if self.device == MEASURED else f"times of {self.device}")
        if self.offload is not None:
            parts.append(f"host memory {self.offload}")
        if self.ranks.count > 1:
            parts.append(str(self.ranks))
        return ", ".join(parts)


def add_request(command: argparse.ArgumentParser, *, batch: bool = True) -> None:
    """Add the options that describe a request."""
    command.add_argument(
        "--shape", action="append", default=[], metavar="NAME:DIMS",
        help="shape of an input, as data:32,3,224,224 or data:N,3,224,224; may be repeated",
    )  # fmt: skip
    command.add_argument(
        "--input", action="append", default=[], metavar="[TYPE:]DIMS",
        help="an input of a PyTorch module, as 8,3,224,224 or int64:N,128; one for each, in their order",
    )  # fmt: skip
    if batch:
        command.add_argument("--batch", type=_positive, metavar="N", help="batch size (default: 32 for N)")
    command.add_argument(
        "--optimizer", metavar="NAME[,OPTION=VALUE...]",
        help="update inside the step, as sgd,momentum=0.9 or adam; without it gradients are kept",
    )  # fmt: skip
    command.add_argument(
        "--dtype", choices=tuple(DTYPES), default="float32",
        help="float32, float64, or a 16-bit type for mixed precision: what is trained stays float32",
    )  # fmt: skip
    command.add_argument(
        "--loss", choices=LOSSES,
        help="put a loss on the model's output: the cross-entropy with classes, or the squared error",
    )  # fmt: skip
    mode = command.add_mutually_exclusive_group()
    mode.add_argument("--train", action="store_true", default=True, help="forward and backward (default)")
    mode.add_argument("--infer", action="store_false", dest="train", help="forward only")
    command.add_argument("--strategy", choices=STRATEGIES, default="sharing", help="what the arena may share")
    command.add_argument(
        "--gpu", action="store_true",
        help="plan for mx.gpu(0), with a GPU's kernels and layouts; none need be here",
    )  # fmt: skip
    command.add_argument(
        "--device", metavar="RATES",
        help="predict times for a device, as 20TFLOP/s,900GB/s, or `measured`: by timing this one's kernels",
    )  # fmt: skip
    command.add_argument(
        "--offload", metavar="auto|BYTES",
        help="within a budget, kept arrays may wait in host memory: what helps, or at most so many bytes",
    )  # fmt: skip

    command.add_argument(
        "--ranks", type=_positive, default=1, metavar="N",
        help="processes that train together, each with such a batch and such a budget",
    )  # fmt: skip
    command.add_argument(
        "--link", metavar="RATE", help="what carries messages among ranks, as 10Gbit/s or 20GB/s,5us"
    )  # fmt: skip
    command.add_argument(
        "--shard", choices=SHARDS, default="auto",
        help="what ranks share instead of having all of it: within a budget, what is faster (default)",
    )  # fmt: skip


def add_model(command: argparse.ArgumentParser, *, optional: bool = False) -> None:
    command.add_argument(
        "model", metavar="MODEL", nargs="?" if optional else None,
        help="Symbol JSON file, ONNX file (.onnx), zoo:NAME[,OPTION=...], or torch:PACKAGE.MODULE:FUNCTION, "
        "where FUNCTION() makes a torch.nn.Module",
    )  # fmt: skip


def request_of(arguments: argparse.Namespace, model: str | None = None) -> Request:
    """The request that the options describe."""
    if arguments.optimizer is not None and not arguments.train:
        raise MXLiteError("--optimizer updates while it trains; --infer has nothing to update.")
    if (arguments.device or "").strip().lower() in ("gpu", "cuda", "cpu"):
        raise MXLiteError(
            f"--device takes rates, as 20TFLOP/s,900GB/s, or {MEASURED!r}, got {arguments.device!r}; --gpu "
            f"plans for a GPU, and nothing for this machine's processor."
        )
    if arguments.ranks > 1 and arguments.optimizer is None:
        raise MXLiteError(
            f"--ranks {arguments.ranks}: ranks sum gradients for an update inside the step, which "
            f"--optimizer names, as in --optimizer adam."
        )
    if arguments.loss is not None and not arguments.train:
        raise MXLiteError("--loss is what training needs; --infer has no use for it.")
    text = arguments.model if model is None else model
    return Request(
        ModelSource(text, given_shapes(text, arguments.shape, arguments.input), arguments.loss),
        getattr(arguments, "batch", None),
        arguments.train,
        DTYPES[arguments.dtype],
        arguments.optimizer,
        arguments.strategy,
        arguments.device,
        arguments.offload,
        arguments.gpu,
        Ranks(arguments.ranks, arguments.link, arguments.shard),
    )


def budget_of(arguments: argparse.Namespace) -> int | None:
    return None if arguments.budget is None else parse_bytes(arguments.budget)


def _positive(text: str) -> int:
    if text.isascii() and text.isdigit() and 0 < len(text) <= 18 and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")


def _checked_inputs(net: Symbol, shapes: Shapes) -> set[str]:
    """Names of data and labels, if the shapes fit the network and memory that could exist."""
    arguments = net.list_arguments()
    for name in shapes:
        if name not in arguments:
            raise ShapeError(
                f"--shape names {name!r}, which is no input of the network.{nearest(name, arguments)}"
            )
    inferred = infer_shapes(net.graph, shapes).shapes
    unknown = {n.name for n in net.graph.variables if not known_shape(inferred.get(Entry(n)))}
    if unknown:
        raise ShapeError(_unknown(net, unknown))
    total = sum(8 * prod(s) for s in inferred.values() if min(s, default=1) >= 0)
    if total >= UNBOUNDED:
        raise ShapeError(
            f"With these shapes the results have {format_bytes(total)} together; more than {UNBOUNDED} "
            f"bytes cannot be addressed. Is a shape wrong?"
        )
    return input_names(net.graph, list(shapes))


PARAMETERS = frozenset(("weight", "bias", "gamma", "beta", "moving_mean", "moving_var", "parameters"))
"""Inputs of operators whose shapes follow from other inputs."""


def _unknown(net: Symbol, unknown: set[str]) -> str:
    """The variables of `unknown` that the user should give: neither parameters nor labels, if possible."""
    follow = input_names(net.graph, []) | {
        entry.node.name
        for node in net.graph.nodes
        if node.op is not None
        for name, entry in zip(node.input_names, node.inputs)
        if entry.node.op is None and name in PARAMETERS
    }
    names = [n.name for n in net.graph.variables if n.name in unknown]
    wanted = [n for n in names if n not in follow] or names
    more = f" and {len(wanted) - 4} more" if len(wanted) > 4 else ""
    one, several = "shape of {} is not known: give it", "shapes of {} are not known: give them"
    is_known = one if len(wanted) == 1 else several
    return (
        f"The {is_known.format(', '.join(map(repr, wanted[:4])) + more)}, as in "
        f"--shape {wanted[0]}:N,3,224,224, where N is the batch."
    )


def types_of(net: Symbol, data: set[str]) -> Mapping[str, Any]:
    """Types of variables so that the network computes in float64; numbers of tokens, lengths and labels
    stay."""
    if own := [n.name for n in net.graph.variables if "__dtype__" in n.annotations]:
        raise DTypeError(
            f"The model says the types of its inputs itself ({own[0]!r} and {len(own) - 1} more), so --dtype "
            f"cannot change them."
        )
    wanted = as_dtype("float64")
    indices = _indices(net)
    types: dict[str, Any] = {n: wanted for n in net.list_arguments() if n in data and n not in indices}
    while True:
        known, _, _ = net.infer_type_partial(**types)
        assert known is not None
        unknown = [n for n, t in zip(net.list_arguments(), known) if t is None and n not in indices]
        if not unknown:
            return types
        types[unknown[0]] = wanted


def _indices(net: Symbol) -> set[str]:
    """Arguments that no operator has a gradient for: indices, lengths, labels."""
    result = {n.name for n in net.graph.arguments}
    for node in net.graph.nodes:
        if node.op is None:
            continue
        for name, entry in zip(node.input_names, node.inputs):
            if entry.node.op is None and _is_differentiable(node, name):
                result.discard(entry.node.name)
    return result


def _is_differentiable(node: Node, name: str) -> bool:
    op = node.op
    assert op is not None
    if op.subgraphs or name in op.gradient_is:
        return True
    return op.grad_op is not None and f"d_{name}" in op.grad_op.outputs
