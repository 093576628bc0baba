"""Norms, moments and logarithms of sums over axes."""

from __future__ import annotations

from math import prod

from ...core.dtype import as_dtype
from ...core.errors import DerivativeError, OpAttributeError
from ...core.record import record
from ..declared import Declared
from .reduce import NonEmpty, Reduce, reduced_axes, spread


class norm(Reduce):
    """Norm over axes: ``ord=2`` root of the sum of squares, ``ord=1`` sum of absolute values.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left. Over two axes it is
    the norm of all the elements, as MXNet 1.9.1 computes it. `out_dtype` is the type of the result.
    The gradient is ``d_out * data / out`` (for 1: ``d_out * sign(data)``), and 0 where the norm is 0.
    """

    accepts = "float"
    backward_reads = ("d_out", "data", "out")

    @record
    class Attrs:
        ord: int = 2
        axis: tuple[int, ...] | None = None
        out_dtype: str | None = None
        keepdims: bool = False

        def __post_init__(self) -> None:
            if self.ord not in (1, 2):
                raise OpAttributeError(f"parameter 'ord' must be 1 or 2, got {self.ord}.")
            if self.out_dtype is not None and as_dtype(self.out_dtype).kind in "iub":
                raise OpAttributeError(f"parameter 'out_dtype' must be floating, got {self.out_dtype!r}.")

    @classmethod
    def infer_type(cls, a, *dtypes):
        ins, outs = super().infer_type(a, *dtypes)
        return ins, outs if a.out_dtype is None else (as_dtype(a.out_dtype),)

    @staticmethod
    def compute(t, a, data):
        axes = reduced_axes(a, len(data.shape))
        return {"out": t.sqrt(t.sum(data * data, axes)) if a.ord == 2 else t.sum(t.abs(data), axes)}

    @staticmethod
    def compute_gradient(t, a, heads, arrays):
        """0 where the norm is 0: there all the data is."""
        data, d, out = arrays["data"], heads["out"], arrays["out"]
        if a.ord == 1:
            return {"d_data": d * t.sign(data)}
        y = t.view(out, d.shape)
        return {"d_data": d * data / t.where("eq", y, 0.0, 1.0, y)}

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        x, d, y = ins["data"], heads["out"], outs["out"]
        if a.out_dtype is not None:
            raise DerivativeError(
                "norm with out_dtype has no gradient of a gradient; Cast the result instead."
            )
        if a.ord == 1:
            return {"data": w.elemwise_mul(spread(w, a, d, x), w.sign(x))}
        ratio = w.elemwise_div(d, w.elemwise_add(y, w._equal_scalar(y, scalar=0)))
        return {"data": w.elemwise_mul(spread(w, a, ratio, x), x)}


class logsumexp(NonEmpty):
    """``out = log(sum(exp(data)))`` over axes, without overflow: the largest is subtracted first.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left. The gradient is
    ``d_out * exp(data - out)``. As PyTorch's torch.logsumexp and ONNX's ReduceLogSumExp.
    """

    accepts = "float"
    backward_reads = ("d_out", "data", "out")

    @staticmethod
    def compute(t, a, data):
        """An infinite maximum is not subtracted: that would give nan."""
        axes = reduced_axes(a, len(data.shape))
        most = t.max(data, axes)
        most = t.where("eq", t.abs(most), float("inf"), 0.0, most)
        return {"out": t.log(t.sum(t.exp(data - most), axes)) + most}

    @staticmethod
    def compute_gradient(t, a, heads, arrays):
        d = heads["out"]
        return {"d_data": d * t.exp(arrays["data"] - t.view(arrays["out"], d.shape))}

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        x = ins["data"]
        share = w.exp(w.elemwise_sub(x, spread(w, a, outs["out"], x)))
        return {"data": w.elemwise_mul(spread(w, a, heads["out"], x), share)}


class moments(Declared):
    """Mean and (biased) variance over `axes`.

    data: (...)  ->  mean, var: `data`'s shape without the axes; (1,) if none is left. Gradients
    ``d_mean / count`` and ``d_var * 2 * (data - mean) / count``.
    """

    inputs = ("data",)
    outputs = ("mean", "var")
    accepts = "float"
    flops_per_input = 4
    backward_reads = ("d_mean", "d_var", "data")

    @record
    class Attrs:
        axes: tuple[int, ...] | None = None
        keepdims: bool = False

        @property
        def axis(self):
            """The axes under the name that reductions use."""
            return self.axes

    @staticmethod
    def infer_shape(a, data):
        (data,), (out,) = Reduce.infer_shape(a, data)
        return (data,), (out, out)

    @staticmethod
    def compute(t, a, data):
        axes = reduced_axes(a, len(data.shape))
        mean = t.mean(data, axes)
        apart = data - mean
        return {"mean": mean, "var": t.mean(apart * apart, axes)}

    @staticmethod
    def compute_gradient(t, a, heads, arrays):
        """Of what `apart` owes to the mean nothing is left: its sum is 0."""
        data, terms = arrays["data"], []
        axes = reduced_axes(a, len(data.shape))
        kept = tuple(1 if i in axes else n for i, n in enumerate(data.shape))
        if "var" in heads:
            terms.append((data - t.mean(data, axes)) * (2.0 * t.view(heads["var"], kept)))
        if "mean" in heads:
            terms.append(t.view(heads["mean"], kept))
        count = t.constant(prod(data.shape[i] for i in axes))
        return {"d_data": (terms[0] + terms[1] if len(terms) > 1 else terms[0]) / count}

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        x, terms = ins["data"], []
        if "mean" in heads:
            terms.append(spread(w, a, heads["mean"], x, mean=True))
        if "var" in heads:
            middle = w.mean(x, axis=a.axes, keepdims=a.keepdims)
            away = w.elemwise_sub(x, spread(w, a, middle, x))
            slope = w.elemwise_mul(away, spread(w, a, heads["var"], x, mean=True))
            terms.append(w._mul_scalar(slope, scalar=2))
        return {"data": terms[0] if len(terms) == 1 else w.elemwise_add(*terms)}
