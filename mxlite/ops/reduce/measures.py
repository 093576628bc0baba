"""Norms, moments and logarithms of sums over axes."""

from __future__ import annotations

from ...core.dtype import as_dtype
from ...core.errors import DerivativeError, OpAttributeError
from ...core.record import record
from ...graph.opdef import Op
from ..blocks import fold, fold_bytes, pieces
from ..scratch import accumulator, carve, scratch_bytes
from .reduce import kept_shape, NonEmpty, Reduce, reduced_axes, spread, wide_count


class norm(Reduce):
    """Norm over axes: ``ord=2`` root of the sum of squares, ``ord=1`` sum of absolute values.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left. Over two axes it is
    the norm of all the elements, as MXNet 1.9.1 computes it. `out_dtype` is the type of the result.
    The gradient is ``d_out * data / out`` (for 1: ``d_out * sign(data)``), and 0 where the norm is 0.
    """

    accepts = "float"

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
    def workspace(a, inputs, outputs, dtype):
        kept = kept_shape(a, inputs[0])
        wide = accumulator(dtype)
        return scratch_bytes([(kept, wide), ((fold_bytes(inputs[0], (kept,), wide),), as_dtype("uint8"))])

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
    def forward(xp, a, data, *, out, work):
        def square(into, x):
            xp.copyto(into, x)
            xp.multiply(into, into, out=into)

        def size(into, x):
            xp.absolute(x, out=into)

        kept, wide = kept_shape(a, data.shape), accumulator(data.dtype)
        nbytes = fold_bytes(data.shape, (kept,), wide)
        total, rest = carve(work, [(kept, wide), ((nbytes,), as_dtype("uint8"))])
        fold(xp, square if a.ord == 2 else size, (data,), total, rest)
        if a.ord == 2:
            xp.sqrt(total, out=total)
        xp.copyto(out, total.reshape(out.shape), casting="unsafe")

    @staticmethod
    def backward(xp, a, d_out, data, out, *, d_data):
        kept = kept_shape(a, data.shape)
        if a.ord == 1:
            xp.sign(data, out=d_data)
        else:
            # If the norm is 0 so is all the data: dividing by 1 instead gives 0.
            xp.equal(out.reshape(kept), 0, out=d_data)
            xp.add(d_data, out.reshape(kept), out=d_data, casting="unsafe")
            xp.divide(data, d_data, out=d_data)
        xp.multiply(d_data, d_out.reshape(kept), out=d_data, casting="unsafe")

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

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return scratch_bytes(logsumexp._pieces(a, inputs[0], dtype))

    @staticmethod
    def _pieces(a, shape, dtype):
        kept, wide = kept_shape(a, shape), accumulator(dtype)
        return [(kept, wide), (kept, wide), ((fold_bytes(shape, (kept,), wide),), as_dtype("uint8"))]

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
    def forward(xp, a, data, *, out, work):
        if not out.size:
            return
        largest, total, rest = carve(work, logsumexp._pieces(a, data.shape, data.dtype))
        xp.maximum.reduce(data, axis=reduced_axes(a, data.ndim), keepdims=True, out=largest)
        for part in pieces(largest):  # an infinite maximum is not subtracted: that would give nan
            xp.copyto(part[0], 0, where=xp.isinf(part[0]))

        def share(into, x, most):
            xp.subtract(x, most, out=into)
            xp.exp(into, out=into)

        fold(xp, share, (data, largest), total, rest)
        xp.log(total, out=total)
        xp.add(total, largest, out=total)
        xp.copyto(out, total.reshape(out.shape), casting="unsafe")

    @staticmethod
    def backward(xp, a, d_out, data, out, *, d_data):
        kept = kept_shape(a, data.shape)
        xp.subtract(data, out.reshape(kept), out=d_data)
        xp.exp(d_data, out=d_data)
        xp.multiply(d_data, d_out.reshape(kept), out=d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        x = ins["data"]
        share = w.exp(w.elemwise_sub(x, spread(w, a, outs["out"], x)))
        return {"data": w.elemwise_mul(spread(w, a, heads["out"], x), share)}


class moments(Op):
    """Mean and (biased) variance over `axes`.

    data: (...)  ->  mean, var: `data`'s shape without the axes; (1,) if none is left. Gradients
    ``d_mean / count`` and ``d_var * 2 * (data - mean) / count``.
    """

    inputs = ("data",)
    outputs = ("mean", "var")
    accepts = "float"
    flops_per_input = 4

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
    def workspace(a, inputs, outputs, dtype):
        return scratch_bytes(moments._pieces(a, inputs[0], dtype))

    @staticmethod
    def _pieces(a, shape, dtype):
        kept, wide = kept_shape(a, shape), accumulator(dtype)
        return [(kept, wide), (kept, wide), ((fold_bytes(shape, (kept,), wide),), as_dtype("uint8"))]

    @staticmethod
    def compute(t, a, data):
        axes = reduced_axes(a, len(data.shape))
        mean = t.mean(data, axes)
        apart = data - mean
        return {"mean": mean, "var": t.mean(apart * apart, axes)}

    @staticmethod
    def forward(xp, a, data, *, mean, var, work):
        kept = kept_shape(a, data.shape)
        centre, spread, rest = carve(work, moments._pieces(a, data.shape, data.dtype))
        count = data.size // centre.size if centre.size else 1
        xp.add.reduce(data, axis=reduced_axes(a, data.ndim), dtype=centre.dtype, keepdims=True, out=centre)
        xp.divide(centre, count, out=centre)
        if mean is not None:
            xp.copyto(mean.reshape(kept), centre, casting="unsafe")
        if var is None:
            return

        def square(into, x, middle):
            xp.subtract(x, middle, out=into)
            xp.multiply(into, into, out=into)

        fold(xp, square, (data, centre), spread, rest)
        xp.divide(spread, count, out=spread)
        xp.copyto(var.reshape(kept), spread, casting="unsafe")

    @staticmethod
    def backward_workspace(a, inputs, outputs, dtype):
        return scratch_bytes(moments._pieces(a, inputs[0], dtype)[:1])

    @staticmethod
    def backward(xp, a, d_mean, d_var, data, *, d_data, work):
        if not d_data.size:
            return
        kept = kept_shape(a, data.shape)
        (centre,) = carve(work, moments._pieces(a, data.shape, data.dtype)[:1])
        count = wide_count(data, centre)
        if d_var is None:
            xp.divide(d_mean.reshape(kept), count, out=d_data, casting="unsafe")
            return
        xp.add.reduce(data, axis=reduced_axes(a, data.ndim), dtype=centre.dtype, keepdims=True, out=centre)
        xp.divide(centre, count, out=centre)
        xp.subtract(data, centre, out=d_data, casting="unsafe")
        xp.multiply(d_data, 2, out=d_data)
        xp.multiply(d_data, d_var.reshape(kept), out=d_data)
        if d_mean is not None:
            xp.add(d_data, d_mean.reshape(kept), out=d_data)
        xp.divide(d_data, count, out=d_data, casting="unsafe")

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
