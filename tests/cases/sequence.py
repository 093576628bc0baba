"""Rows of `conformance.py` for sequences: recurrent layers, CTC, and lengths. See `cases.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxlite import ops
from mxlite.backends.cpu.backend import CPU
from tests.conformance.case import Case, integers

_SAMPLES = {"sequence_length": lambda rng, shape: np.resize([3.0, 5.0, 1.0], shape)}


def torch_weights(net: Any, flat: Any) -> dict[str, Any]:
    """MXNet's vector of parameters under PyTorch's names; the gates have one order in both."""
    passes = [f"_l{i}{d}" for i in range(net.num_layers) for d in ("", "_reverse")[: 1 + net.bidirectional]]
    kinds = ["weight_ih", "weight_hh", *(["weight_hr"] if net.proj_size else [])]
    names = [k + p for p in passes for k in kinds] + [k + p for p in passes for k in ("bias_ih", "bias_hh")]
    sizes = [getattr(net, n).shape for n in names]
    parts = flat.split([s.numel() for s in sizes])
    return {n: part.reshape(s) for n, s, part in zip(names, sizes, parts)}


def torch_rnn(a: Any, data: Any, parameters: Any, state: Any, *more: Any) -> Any:
    """RNN by PyTorch's layers; sequences of different lengths packed."""
    import torch

    cell = more[0] if a.mode == "lstm" else None
    lengths = more[-1] if a.use_sequence_length else None
    how: dict[str, Any] = {"num_layers": a.num_layers, "bidirectional": a.bidirectional}
    if a.mode == "lstm":
        how["proj_size"] = a.projection_size or 0
    elif a.mode != "gru":
        how["nonlinearity"] = a.mode[len("rnn_") :]
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(a.mode, torch.nn.RNN)
    net = kind(data.shape[2], a.state_size, **how).to(data.dtype)
    first = state if cell is None else (state, cell)
    if lengths is not None:
        data_in = torch.nn.utils.rnn.pack_padded_sequence(data, lengths.detach().long(), enforce_sorted=False)
    else:
        data_in = data
    out, last = torch.func.functional_call(net, torch_weights(net, parameters), (data_in, first))
    if lengths is not None:
        out, _ = torch.nn.utils.rnn.pad_packed_sequence(out, total_length=len(data))
    return (out, *(last if cell is not None else (last,))) if a.state_outputs else out


def _small(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return 0.5 * rng.standard_normal(shape)


def _rnn(data: tuple[int, ...], op: Any = ops.RNN, **attrs: Any) -> Case:
    attrs = {"state_size": 4, "num_layers": 1} | attrs
    a = ops.RNN.Attrs(**attrs)
    unknown = [None] * (len(ops.RNN.input_names(a)) - 1)
    ignored = a.use_sequence_length or a.lstm_state_clip_min is not None
    wider = a.projection_size is not None and a.projection_size >= a.state_size  # PyTorch refuses it
    return Case(
        op,
        attrs,
        op.infer_shape(a, data, *unknown)[0],
        make={
            "parameters": _small,
            "sequence_length": lambda rng, shape: np.arange(shape[0]) * 7 % data[0] + 1.0,
        },
        tolerance=1e-5,
        torch=None if op is not ops.RNN or a.lstm_state_clip_min is not None or a.p or wider else torch_rnn,
        mxnet="internal"
        if op is not ops.RNN
        else "MXNet's CPU kernel ignores it"
        if ignored
        else not a.p or "draws other masks",
        large=ops.RNN.infer_shape(a, (90, 700, data[2]), *unknown)[0],
    )


_RNN_ROWS = {
    f"RNN-{mode}{name}": _rnn((5, 3, 2), mode=mode, state_outputs=True, **more)
    for mode in ("rnn_relu", "rnn_tanh", "lstm", "gru")
    for name, more in {
        "": {},
        "-both-ways": {"bidirectional": True},
        "-three-both-ways": {"num_layers": 3, "bidirectional": True},
        "-two": {"num_layers": 2},
        "-lengths": {"use_sequence_length": True, "num_layers": 2, "bidirectional": True},
    }.items()
}


def _repeated(values: Any) -> Any:
    """These values for the first samples, and again for the next, as many as there are."""
    return lambda rng, shape: np.resize(np.asarray(values, float), shape)


_LOSS = {"label": integers(1, 5)}


def torch_ctc(a: Any, data: Any, label: Any, *lengths: Any) -> Any:
    """CTCLoss by PyTorch."""
    import torch

    steps, samples, classes = data.shape
    last = a.blank_label == "last"
    ends = lengths[0] if a.use_data_lengths else torch.full((samples,), steps)
    if a.use_label_lengths:
        sizes = lengths[-1]
    else:
        sizes = (label != (-1 if last else 0)).long().cumprod(1).sum(1)
    return torch.nn.functional.ctc_loss(
        data.log_softmax(-1),
        label.detach().long().clamp(0, classes - 1),
        ends.detach().long(),
        sizes.detach().long(),
        blank=classes - 1 if last else 0,
        reduction="none",
        zero_infinity=True,
    )


def _ctc(
    data: tuple[int, ...], label: tuple[int, ...], values: Any = None, *, ends: Any = None, sizes: Any = None,
    **attrs: Any,
) -> Case:  # fmt: skip
    attrs |= {"use_data_lengths": ends is not None, "use_label_lengths": sizes is not None}
    given = {"data_lengths": ends, "label_lengths": sizes}
    made = {k: _repeated(v) for k, v in given.items() if v is not None}
    if values is not None:
        made["label"] = _repeated(values)
    return Case(
        ops.CTCLoss,
        attrs,
        [data, label, *((data[1],) for v in given.values() if v is not None)],
        make=_LOSS | made,
        grad_inputs=("data",),
        torch=torch_ctc,
        large=[(50, 500, 8), (500, label[1]), *((500,) for v in given.values() if v is not None)],
        empty=False,
    )


def _summed_loss(a: Any, ins: dict[str, Any], outs: dict[str, Any]) -> float:
    """What WarpCTC's gradient is the derivative of, by CTCLoss."""
    data = ins["data"].reshape(a.input_length, -1, ins["data"].shape[1])
    label = ins["label"].reshape(data.shape[1], -1)
    loss, attrs = np.empty(data.shape[1], data.dtype), ops.CTCLoss.Attrs()
    work = CPU.empty(ops.CTCLoss.workspace(attrs, (data.shape, label.shape), (loss.shape,), data.dtype))
    ops.CTCLoss.forward(np, attrs, data, label, out=loss, work=work)
    return float(loss.sum())


def _mask(a: Any, data: Any, *lengths: Any) -> Any:
    import torch

    if not lengths:
        return data * 1
    steps = torch.arange(data.shape[a.axis])
    ends = lengths[0].detach().long()
    off = steps[:, None] >= ends if a.axis == 0 else steps >= ends[:, None]
    return data.masked_fill(off.reshape(*off.shape, *[1] * (data.ndim - 2)), a.value)


def _last(a: Any, data: Any, *lengths: Any) -> Any:
    import torch

    data = data.transpose(0, a.axis)
    if not lengths:
        return data[-1] * 1
    return torch.stack([data[int(n) - 1, b] if n >= 1 else 0 * data[0, b] for b, n in enumerate(lengths[0])])


def _reverse(a: Any, data: Any, *lengths: Any) -> Any:
    import torch

    data = data.transpose(0, a.axis)
    ends = [int(n) for n in lengths[0]] if lengths else [len(data)] * data.shape[1]
    turned = [torch.cat([data[:n, b].flip(0), data[n:, b]]) for b, n in enumerate(ends)]
    return torch.stack(turned, 1).transpose(0, a.axis)


def _sequence(op: Any, torch_op: Any, **more: Any) -> dict[str, Case]:
    name, use = op.op_name, {"use_sequence_length": True}
    none = {"sequence_length": lambda rng, shape: np.resize([0, 2.7, 5], shape)}
    wide = [(40, 5000, 2), (5000,)]
    out = "MXNet reads before the array"
    return {
        f"{name}-all": Case(op, more, [(5, 3, 2)], torch=torch_op),
        f"{name}-lengths": Case(op, use | more, [(5, 3, 2), (3,)], make=_SAMPLES, torch=torch_op, large=wide),
        f"{name}-none": Case(
            op, use | more, [(5, 3), (3,)], make=none, torch=torch_op, mxnet=out, large=[(900, 900), (900,)]
        ),
        f"{name}-second": Case(
            op,
            use | more | {"axis": 1},
            [(3, 5, 2, 2), (3,)],
            make=_SAMPLES,
            torch=torch_op,
            mxnet="MXNet has it for axis 0 only" if op is ops.SequenceReverse else True,
            large=[(9000, 12, 1, 2), (9000,)],
        ),
        f"{name}-second-all": Case(
            op,
            more | {"axis": 1},
            [(3, 5, 2)],
            torch=torch_op,
            mxnet="MXNet has it for axis 0 only" if op is ops.SequenceReverse else True,
        ),
    }


ROWS: dict[str, Case] = {
    "WarpCTC": Case(
        ops.WarpCTC,
        {"input_length": 30, "label_length": 2},
        [(60, 5), (4,)],
        make={"label": _repeated([1.0, 2.0, 3.0, 0.0])},
        objective=_summed_loss,
        torch=lambda a, x, label: x.softmax(-1),
        mxnet="a plugin that the wheel does not have",
        large=[(30_000, 8), (2_000,)],
        empty=False,
    ),
    **_RNN_ROWS,
    "RNN-long": _rnn((20, 70, 3), mode="lstm", num_layers=2, bidirectional=True),
    "RNN-long-gru": _rnn((20, 70, 3), mode="gru", num_layers=2, use_sequence_length=True),
    "RNN-one-step": _rnn((1, 2, 3), mode="lstm", num_layers=2),
    "RNN-projection": _rnn((5, 3, 2), mode="lstm", num_layers=2, projection_size=3, state_outputs=True),
    "RNN-projection-both-ways": _rnn(
        (20, 70, 2),
        mode="lstm",
        projection_size=2,
        state_outputs=True,
        bidirectional=True,
        use_sequence_length=True,
    ),
    "RNN-projection-larger": _rnn((5, 3, 2), mode="lstm", state_size=2, projection_size=5),
    "RNN-clip": _rnn(
        (5, 3, 2), mode="lstm", lstm_state_clip_min=-0.1, lstm_state_clip_max=0.2, lstm_state_clip_nan=True
    ),
    "RNN-dropout": _rnn((5, 3, 2), mode="gru", num_layers=3, p=0.4),
    "RNN-dropout-long": _rnn((20, 70, 2), mode="gru", num_layers=2, p=0.4),
    "RNN-dropout-both-ways": _rnn((20, 70, 2), mode="lstm", num_layers=3, p=0.4, bidirectional=True),
    **{
        f"_rnn_keeping_gates-{mode}": _rnn(
            (20, 70, 3), ops.RnnKeepingGates, mode=mode, num_layers=2, bidirectional=mode == "gru", p=0.2
        )
        for mode in ("rnn_tanh", "lstm", "gru")
    },
    "_rnn_wide": _rnn((20, 70, 3), ops.RnnWide, mode="lstm", num_layers=2, p=0.2),
    "_rnn_param_concat": Case(ops._rnn_param_concat, {"num_args": 3, "dim": 0}, [(4,), (2,), (5,)]),
    "_rnn_param_concat-axis": Case(ops._rnn_param_concat, {"num_args": 2}, [(3, 2), (3, 4)]),
    # -- CTC
    "CTCLoss": _ctc((6, 3, 5), (3, 2)),
    "CTCLoss-one": _ctc((1, 1, 2), (1, 1), [[1]]),
    "CTCLoss-repeats": _ctc((7, 2, 4), (2, 3), [[2, 2, 2], [1, 2, 1]]),
    "CTCLoss-padded": _ctc((6, 4, 5), (4, 3), [[1, 2, 0], [3, 0, 4], [0, 1, 2], [4, 4, 4]]),
    "CTCLoss-last": _ctc((6, 3, 5), (3, 3), [[0, 1, -1], [3, 3, 0], [-1, 2, 2]], blank_label="last"),
    "CTCLoss-lengths": _ctc((6, 3, 5), (3, 2), ends=[6, 4, 3], sizes=[2, 0, 1]),
    "CTCLoss-data-lengths": _ctc((6, 3, 5), (3, 2), ends=[2, 6, 5], blank_label="last"),
    "CTCLoss-label-lengths": _ctc((6, 3, 5), (3, 2), sizes=[1, 2, 2]),
    "CTCLoss-impossible": Case(
        ops.CTCLoss,
        {},
        [(3, 3, 4), (3, 3)],
        make={"label": _repeated([[1, 1, 1], [1, 2, 3], [2, 2, 0]])},
        large=[(50, 500, 8), (500, 3)],
        grad_inputs=("data",),
        torch=torch_ctc,
        mxnet="MXNet's gradient of an impossible labelling is garbage",
        empty=False,
    ),
    "CTCLoss-no-labels": _ctc((4, 2, 3), (2, 0), np.zeros((2, 0))),
    # -- lengths
    **_sequence(ops.SequenceMask, _mask, value=-1.5),
    **_sequence(ops.SequenceLast, _last),
    **_sequence(ops.SequenceReverse, _reverse),
}
