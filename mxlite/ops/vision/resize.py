"""Resizing: nearest, linear and cubic interpolation, and adaptive mean pooling."""

from __future__ import annotations

from dataclasses import asdict
from math import floor, prod
from typing import Any, ClassVar, Literal

from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, require_kind, Shapes, Types
from .resample import Axis, Resampling


class _Resample(Op):
    """Base: a separable linear map of one array over its trailing axes."""

    abstract = True
    cheap = True
    inputs: ClassVar[tuple[str, ...]] = ("data",)
    accepts = "float"
    transposed: ClassVar[str]  # the operator that is its gradient
    flops_per_output = 4

    @classmethod
    def resampling(cls, a: Any, data: Shape, out: Shape) -> Resampling:
        """The map from `data` to `out`."""
        raise NotImplementedError

    @classmethod
    def compute(cls, t: Any, a: Any, data: Any, like: Any = None) -> Any:
        shapes = (data.shape,) if like is None else (data.shape, like.shape)
        found = cls.resampling(a, data.shape, cls.infer_shape(a, *shapes)[1][0]).compute(t, data)
        return None if found is None else {"out": found}

    @classmethod
    def workspace(cls, a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return cls.resampling(a, inputs[0], outputs[0]).nbytes(dtype)

    backward_workspace = workspace

    @classmethod
    def forward(cls, xp: Any, a: Any, data: Any, *, out: Any, work: Any) -> None:
        if out is not None:
            cls.resampling(a, data.shape, out.shape).forward(xp, data, out, work)

    @classmethod
    def backward(cls, xp: Any, a: Any, d_out: Any, *, d_data: Any, work: Any) -> None:
        if d_data is not None:
            cls.resampling(a, d_data.shape, d_out.shape).backward(xp, d_out, d_data, work)

    @classmethod
    def derivative(cls, w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> dict[str, Any]:
        return {"data": getattr(w, cls.transposed)(heads["out"], ins["data"], **asdict(a))}


class _Transposed(Op):
    """Base: the gradient of a `_Resample` as an operator, the transposed map."""

    abstract = True
    inputs = ("grad", "like")
    shape_only = ("like",)
    accepts = "float"
    of: ClassVar[type[_Resample]]
    flops_per_input = 4

    @classmethod
    def infer_shape(cls, a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        grad, like = shapes
        # `of` may have an input `like` too, which gives its output's size.
        given = (like, grad)[: len(cls.of.input_names(a))]
        return (cls.of.infer_shape(a, *given)[1][0], like), (like,)

    @classmethod
    def compute(cls, t: Any, a: Any, grad: Any, like: Any) -> Any:
        found = cls.of.resampling(a, like.shape, grad.shape).compute_transposed(t, grad)
        return None if found is None else {"out": found}

    @classmethod
    def workspace(cls, a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return cls.of.resampling(a, inputs[1], inputs[0]).nbytes(dtype)

    backward_workspace = workspace

    @classmethod
    def forward(cls, xp: Any, a: Any, grad: Any, like: Any, *, out: Any, work: Any) -> None:
        cls.of.resampling(a, out.shape, grad.shape).backward(xp, grad, out, work)

    @classmethod
    def backward(cls, xp: Any, a: Any, d_out: Any, *, d_grad: Any, work: Any) -> None:
        cls.of.resampling(a, d_out.shape, d_grad.shape).forward(xp, d_out, d_grad, work)

    @classmethod
    def derivative(cls, w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> dict[str, Any]:
        return {"grad": getattr(w, cls.of.op_name)(heads["out"], **asdict(a))}


_Coordinates = Literal[
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"
]
_Rounding = Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]


class resize(_Resample):
    """Interpolated resizing of any axes, ``out[o] = data at coordinate(o)``; ONNX's Resize.

    data: (...)  ->  out: (...), every axis i of length `sizes[i]`, or floor(length * `scales[i]`).

    Give `sizes` or `scales`, for all axes or for those named by `axes`. A size of 0 or -1 keeps the axis.
    With s = out length / length (or the scale given), output o is at the coordinate
      half_pixel            (o + 0.5) / s - 0.5
      pytorch_half_pixel    the same, but 0 where the output has one element
      half_pixel_symmetric  the same, centred where `scales` do not give whole sizes
      align_corners         o * (length - 1) / (out length - 1)
      asymmetric            o / s
    mode: "nearest" (`nearest_mode` rounds; any dtype), "linear" or "cubic" along each axis
    (`cubic_coeff_a`), the border repeated; with `exclude_outside` cubic weights outside are 0 and the
    others add up to 1. The gradient is the transposed map; it reads no input.
    """

    transposed = "_resize_d_data"

    @record
    class Attrs:
        sizes: tuple[int, ...] = ()
        scales: tuple[float, ...] = ()
        mode: Literal["nearest", "linear", "cubic"] = "nearest"
        coordinate_transformation_mode: _Coordinates = "half_pixel"
        nearest_mode: _Rounding = "round_prefer_floor"
        cubic_coeff_a: float = -0.75
        exclude_outside: bool = False
        axes: tuple[int, ...] = ()

        def __post_init__(self) -> None:
            given = self.sizes or self.scales
            if bool(self.sizes) == bool(self.scales):
                raise OpAttributeError(f"give either sizes or scales, got {self.sizes} and {self.scales}.")
            if self.axes and len(given) != len(self.axes):
                raise OpAttributeError(f"axes {self.axes} and {given} must be equally long.")
            if any(s <= 0 for s in self.scales):
                raise OpAttributeError(f"scales must be above 0, got {self.scales}.")

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        if a.mode != "nearest":
            require_kind(cls, dtypes[0])
        return dtypes, dtypes

    @classmethod
    def infer_shape(cls, a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        out = list(data)
        for i, value in _by_axis(a, data).items():
            if a.scales:
                out[i] = floor(data[i] * value)
            elif value > 0:
                out[i] = int(value)
        if any(n == 0 and m for n, m in zip(data, out)):
            raise ShapeError(f"data {data} has no element to make {tuple(out)} of.")
        return shapes, (tuple(out),)

    @classmethod
    def resampling(cls, a: Any, data: Shape, out: Shape) -> Resampling:
        values = _by_axis(a, data)
        axes = []
        for i, (n, m) in enumerate(zip(data, out)):
            scale = values[i] if a.scales and i in values else m / n if n else 1.0
            ratio, shift = _line(a.coordinate_transformation_mode, n, m, scale)
            axes.append(Axis(n, m, a.mode, ratio, shift, a.nearest_mode, a.cubic_coeff_a, a.exclude_outside))
        lead = next((i for i, x in enumerate(axes) if not x.same), len(axes))
        return Resampling(prod(data[:lead]), tuple(axes[lead:]))


def _by_axis(a: Any, data: Shape) -> dict[int, float]:
    """Axis -> its size or scale."""
    given = a.sizes or a.scales
    axes = a.axes or tuple(range(len(given)))
    if len(axes) != len(data) and not a.axes:
        raise ShapeError(f"{given} must have one number for each axis of data {data}, or name `axes`.")
    for i in axes:
        if not -len(data) <= i < len(data):
            raise ShapeError(f"axis {i} is not one of data {data}.")
    return {i % len(data): v for i, v in zip(axes, given)}


def _line(mode: str, size: int, out: int, scale: float) -> tuple[float, float]:
    """Ratio and shift of the coordinates."""
    if not size or (size == out and scale == 1):
        return 1.0, 0.0
    if mode == "align_corners":
        return (size - 1) / (out - 1) if out > 1 else 0.0, 0.0
    if mode == "asymmetric":
        return 1 / scale, 0.0
    if mode == "pytorch_half_pixel" and out == 1:
        return 0.0, 0.0
    shift = 0.5 / scale - 0.5
    if mode == "half_pixel_symmetric":
        shift += size / 2 * (1 - out / (scale * size))
    return 1 / scale, shift


class ResizeDataGradient(_Transposed):
    """Gradient of `resize` in its data: the transposed map.

    grad: (...) as resize's output;  like: (...), whose shape counts  ->  out: as `like`.
    """

    op_name = "_resize_d_data"
    Attrs = resize.Attrs
    of = resize


class BilinearResize2D(_Resample):
    """Bilinear resizing of images.

    data: (N, C, H, W);  like: (..., OH, OW), for the mode "like" only  ->  out: (N, C, OH, OW).

    mode: "size" `height` and `width`, or H * `scale_height`, W * `scale_width` where those are given;
    "odd_scale" (H - 1) * scale + 1 where H is odd, else H * scale; "like" as `like`; "to_even_down",
    "to_even_up", "to_odd_down", "to_odd_up" the nearest such number. With `align_corners` output o is at
    o * (H - 1) / (OH - 1), else at (o + 0.5) * H / OH - 0.5, at least 0. `like` has no gradient.
    """

    op_name = "_contrib_BilinearResize2D"
    inputs = ("data", "like")
    shape_only = ("like",)
    transposed = "_BilinearResize2D_d_data"

    @record
    class Attrs:
        height: int = 1
        width: int = 1
        scale_height: float | None = None
        scale_width: float | None = None
        mode: Literal[
            "size", "odd_scale", "like", "to_even_down", "to_even_up", "to_odd_down", "to_odd_up"
        ] = "size"
        align_corners: bool = True

        def __post_init__(self) -> None:
            if self.mode == "size" and (self.height < 1 or self.width < 1):
                raise OpAttributeError(
                    f"height and width must be at least 1, got {self.height}, {self.width}."
                )
            for name, scale in (("scale_height", self.scale_height), ("scale_width", self.scale_width)):
                if scale is not None and not 0 < scale < 2**31:
                    raise OpAttributeError(f"{name} must be above 0 and no more than 2**31, got {scale}.")
            if self.mode == "odd_scale" and (self.scale_height is None or self.scale_width is None):
                raise OpAttributeError("mode 'odd_scale' needs scale_height and scale_width.")

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        return cls.inputs if a.mode == "like" else cls.inputs[:1]

    @classmethod
    def infer_shape(cls, a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        if len(data) != 4:
            raise ShapeError(f"data must have 4 axes (N, C, H, W), got {data}.")
        if a.mode == "like":
            if len(shapes[1]) != 4:
                raise ShapeError(f"like must have 4 axes (N, C, H, W), got {shapes[1]}.")
            size = shapes[1][2:]
        else:
            size = (
                _resized(a.mode, data[2], a.height, a.scale_height),
                _resized(a.mode, data[3], a.width, a.scale_width),
            )
        if 0 in data[2:] and 0 not in size:
            raise ShapeError(f"data {data} has no element to make images of {size} of.")
        return shapes, ((*data[:2], *size),)

    @classmethod
    def resampling(cls, a: Any, data: Shape, out: Shape) -> Resampling:
        mode = "align_corners" if a.align_corners else "half_pixel"
        lines = [_line(mode, n, m, m / n if n else 1.0) for n, m in zip(data[2:], out[2:])]
        axes = [Axis(n, m, "linear", *line) for n, m, line in zip(data[2:], out[2:], lines)]
        return Resampling(data[0] * data[1], tuple(axes))

    @classmethod
    def forward(cls, xp: Any, a: Any, data: Any, like: Any = None, *, out: Any, work: Any) -> None:
        super().forward(xp, a, data, out=out, work=work)


def _resized(mode: str, n: int, size: int, scale: float | None) -> int:
    if mode == "size":
        return size if scale is None else int(n * scale)
    if mode == "odd_scale":
        assert scale is not None
        return int((n - 1) * scale) + 1 if n % 2 else int(n * scale)
    if n % 2 == (mode[3:6] == "odd"):
        return n
    return n + (1 if mode.endswith("up") else -1)


class BilinearResize2DDataGradient(_Transposed):
    """Gradient of BilinearResize2D in its data: the transposed map.

    grad: (N, C, OH, OW);  like: (N, C, H, W), whose shape counts  ->  out: as `like`.
    """

    op_name = "_BilinearResize2D_d_data"
    Attrs = BilinearResize2D.Attrs
    of = BilinearResize2D

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> dict[str, Any]:
        # The target shape is that of `grad`, whatever the mode says.
        again = asdict(a) | {"mode": "like"}
        return {"grad": w._contrib_BilinearResize2D(heads["out"], ins["grad"], **again)}


class AdaptiveAvgPooling2D(_Resample):
    """Mean over windows that divide each image into `output_size` parts.

    data: (N, C, H, W)  ->  out: (N, C, OH, OW); output o is the mean of [floor(o * H / OH), ceil((o + 1) *
    H / OH)), and so along W. `output_size`: OH and OW, one number for both, or nothing for (1, 1). The
    gradient reads no input.
    """

    op_name = "_contrib_AdaptiveAvgPooling2D"
    transposed = "_AdaptiveAvgPooling2D_d_data"

    @record
    class Attrs:
        output_size: tuple[int, ...] = ()

        def __post_init__(self) -> None:
            if len(self.output_size) > 2 or any(n < 1 for n in self.output_size):
                raise OpAttributeError(
                    f"output_size must be one or two numbers of at least 1, got {self.output_size}."
                )

    @classmethod
    def infer_shape(cls, a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        if len(data) != 4 or 0 in data[2:]:
            raise ShapeError(f"data must have 4 axes (N, C, H, W), H and W at least 1, got {data}.")
        size = a.output_size or (1,)
        return shapes, ((*data[:2], size[0], size[-1]),)

    @classmethod
    def resampling(cls, a: Any, data: Shape, out: Shape) -> Resampling:
        axes = tuple(Axis(n, m, "mean") for n, m in zip(data[2:], out[2:]))
        return Resampling(data[0] * data[1], axes)


class AdaptiveAvgPooling2DDataGradient(_Transposed):
    """Gradient of AdaptiveAvgPooling2D in its data: the transposed map.

    grad: (N, C, OH, OW);  like: (N, C, H, W), whose shape counts  ->  out: as `like`.
    """

    op_name = "_AdaptiveAvgPooling2D_d_data"
    Attrs = AdaptiveAvgPooling2D.Attrs
    of = AdaptiveAvgPooling2D
