"""A parameter that an operator declares and nothing reads would be ignored without a word."""

import dataclasses
import sys
from collections import defaultdict

import numpy as np

from mxlite import ops
from mxlite.backends.cpu.backend import CPU
from tests.conformance.cases import CASES
from tests.conformance.conformance import Call, kernels_of, stages

WITHOUT_EFFECT = {
    "cudnn_off": "says which of MXNet's kernels runs, not what it computes",
    "cudnn_tune": "says which of MXNet's kernels runs, not what it computes",
    "workspace": "bounds the scratch of MXNet's kernels; a plan knows that of ours",
    "im2col_step": "how many samples MXNet's kernel takes at a time",
    "deterministic": "sums are taken in one order in any case",
    "min_calib_range": "of MXNet's 8-bit networks",
    "max_calib_range": "of MXNet's 8-bit networks",
    "is_int": "whether MXNet's scalar was a whole number; its value says so",
    "ctx": "where the array will live, which is for who makes it",
    "forward_stype": "how a result of sparse arrays is stored: ndarray/sparse_arrays reads it",
    "stype": "how a result is stored: ndarray/sparse_arrays reads it",
    "sparse_grad": "how a gradient is stored: `touched_rows` tells executor/plan/row_gradients.py",
    "num_out_data": "how many outputs of a body are stacked; `_check_outputs` compares it with the body's",
    "key": "by which MXNet's devices find each other; ranks do",
    "ndev": "how many of MXNet's devices take part; ranks do",
    "background_id": "MXNet's MultiBoxDetection takes class 0 whatever it says",
    "lower_bound": "of LeakyReLU's rrelu, which is refused",
    "upper_bound": "of LeakyReLU's rrelu, which is refused",
    "transform_type": "SpatialTransformer has one",
    "sampler_type": "SpatialTransformer has one",
    "source": "of a copy to another device: executor/placement reads it",
    "target": "of a copy to another device: executor/placement reads it",
    "samples": "of a fused kernel: how many it takes at a time, which only compiled ones do",
    "output_mean_var": "of a fused norm, which is made where nobody reads them",
}
"""Parameters that change no result of a reference kernel, and why."""
_COPIES = frozenset("__post_init__ __repr__ __eq__ __hash__ attrs_by_name replace _replace settings".split())


def _watched(kind, read, monkeypatch):
    """Let instances of `kind` note in `read` which fields are read, but for copies and checks of them.

    No two instances are equal, so that nothing that was cached for an equal one is found.
    """
    fields = {f.name for f in dataclasses.fields(kind)}

    def get(self, name):
        if name in fields and sys._getframe(1).f_code.co_name not in _COPIES:
            read.add(name)
        return object.__getattribute__(self, name)

    for name, value in (
        ("__getattribute__", get), ("__hash__", object.__hash__), ("__eq__", object.__eq__)
    ):  # fmt: skip
        monkeypatch.setattr(kind, name, value, raising=False)
    return fields


def test_every_parameter_is_read_or_has_a_reason(monkeypatch):
    rows = defaultdict(list)
    for case in CASES.values():
        rows[case.op].append(case)
    read = {op.Attrs: set() for op in ops.ALL}
    fields = {kind: _watched(kind, seen, monkeypatch) for kind, seen in read.items()}
    reference = dataclasses.replace(CPU, kernels={})
    for op in ops.ALL:
        for case in rows[op]:
            if fields[op.Attrs] <= read[op.Attrs] | WITHOUT_EFFECT.keys():
                break
            dataclasses.replace(case.parsed)  # what is checked as it is made is read, however old this one is
            call = Call.of(case)
            with np.errstate(all="ignore"), kernels_of(reference):
                for stage, inputs in stages(call, case.inputs()):
                    call.execute(stage, inputs)
    silent = {(n, op.__name__) for op in ops.ALL for n in fields[op.Attrs] - read[op.Attrs]}
    unexplained = " ".join(f"{op}.{n}" for n, op in sorted(silent) if n not in WITHOUT_EFFECT)
    assert not unexplained, f"nothing reads {unexplained}: each needs a use, or a reason in WITHOUT_EFFECT"
    needless = WITHOUT_EFFECT.keys() - {n for n, _ in silent}
    assert not needless, f"these are read, and have reasons not to be: {sorted(needless)}"
