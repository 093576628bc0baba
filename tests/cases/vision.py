"""Rows of `conformance.py` for transposed convolution, resampling, sampling and detection. See `cases.py`."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from mxlite import ops
from mxlite.graph.attrs import parse_attrs
from tests.conformance.case import apart, Case, few, fractions, integers, positive


def _many(data: tuple[int, ...]) -> tuple[int, ...]:
    """`data` with more samples, for the allocation check."""
    return (400_000 // prod(data[1:]), *data[1:])


def _torch_deconv(a: Any, data: Any, weight: Any, bias: Any = None) -> Any:
    import torch

    rank = len(a.kernel)
    whole = [
        (n - 1) * s + (k - 1) * d + 1
        for n, s, k, d in zip(data.shape[2:], a.stride or (1,) * rank, a.kernel, a.dilate or (1,) * rank)
    ]
    pad, adj = a.pad or (0,) * rank, a.adj or (0,) * rank
    if a.target_shape:
        pad = tuple((n - t + 1) // 2 for n, t in zip(whole, a.target_shape))
        adj = tuple((n - t) % 2 for n, t in zip(whole, a.target_shape))
    call = getattr(torch.nn.functional, f"conv_transpose{rank}d")
    return call(
        data, weight, bias, a.stride or 1, pad, tuple(adj), a.num_group, a.dilate or 1
    )  # fmt: skip


def _deconv(data: tuple[int, ...], torch: bool = True, **attrs: Any) -> Case:
    op = ops.Deconvolution
    shapes, _ = op.infer_shape(op.Attrs(**attrs), data, None, None)
    shapes = shapes if attrs.get("no_bias") is False else shapes[:2]
    call = _torch_deconv if torch else None
    return Case(op, attrs, shapes, large=[_many(data), *shapes[1:]], torch=call)


def _conv_gradients(kind: str, data: tuple[int, ...], **attrs: Any) -> dict[str, Case]:
    """Rows for the operators that are gradients of a convolution."""
    op = ops.Convolution if kind == "convolution" else ops.Deconvolution
    (_, weight, *_), (out,) = op.infer_shape(op.Attrs(**attrs), data, None)
    by_data, by_weight = ops.find_op(f"_{kind}_d_data"), ops.find_op(f"_{kind}_d_weight")
    many = _many(data)
    _, (many_out,) = op.infer_shape(op.Attrs(**attrs), many, None)
    name = "-".join(str(v) for v in attrs["kernel"])
    return {
        f"{kind}-d-data-{name}": Case(
            by_data, attrs, [out, weight, data], large=[many_out, weight, many], mxnet=PRIVATE
        ),
        f"{kind}-d-weight-{name}": Case(by_weight, attrs, [out, data], large=[many_out, many], mxnet=PRIVATE),
    }


def _pool_gradients(data: tuple[int, ...], **attrs: Any) -> dict[str, Case]:
    op = ops.Pooling
    _, (out, *_) = op.infer_shape(op.Attrs(**attrs), data)
    many = _many(data)
    _, (many_out, *_) = op.infer_shape(op.Attrs(**attrs), many)
    kind = attrs.get("pool_type", "max")
    if kind != "max":
        return {
            f"pool-d-data-{kind}": Case(
                ops.PoolingDataGradient, attrs, [out, data], large=[many_out, many], mxnet=PRIVATE
            )
        }
    which, make = {"index": "uint8"}, {"index": integers(0, prod(attrs["kernel"]) + 1)}
    return {
        "pool-d-data-max": Case(
            ops.MaxPoolingDataGradient, attrs, [out, data, out], dtypes=which, make=make,
            large=[many_out, many, many_out], mxnet=PRIVATE,
        ),
        "pool-chosen": Case(
            ops.ChosenPooling, attrs, [data, out], dtypes=which, make=make,
            large=[many, many_out], mxnet=PRIVATE,
        ),
    }  # fmt: skip


PRIVATE = "MXNet has no operator of that name"


def _functional() -> Any:
    import torch

    return torch.nn.functional


def _up(shapes: list[tuple[int, ...]], **attrs: Any) -> Case:
    def torch_up(a: Any, *args: Any) -> Any:
        import torch

        size = args[0].shape[2] * a.scale, args[0].shape[3] * a.scale
        parts = [_functional().interpolate(x, size) for x in args]
        return sum(parts) if a.multi_input_mode == "sum" else torch.cat(parts, 1)

    attrs = {"sample_type": "nearest", "num_args": len(shapes), **attrs}
    large = [(*s[:2], 36 * s[2], 36 * s[3]) for s in shapes]  # thousands of tiny ones take long
    return Case(ops.UpSampling, attrs, shapes, torch=torch_up, large=large)


def _interpolate(**how: Any) -> Any:
    return lambda a, x, *like: _functional().interpolate(
        x, **({"size": like[0].shape[2:]} if like else {}), **how
    )


def _resize(shape: tuple[int, ...], how: dict[str, Any] | None = None, **attrs: Any) -> Case:
    torch_call = None if how is None else _interpolate(**how)
    return Case(ops.resize, attrs, [shape], torch=torch_call, large=[_many(shape)], mxnet=PRIVATE)


def _image(
    name: str, out: tuple[int, int], like: bool = False, torch: Any = None, **attrs: Any
) -> dict[str, Case]:
    """Rows of a resampling operator of images, and of its gradient."""
    op, back = ops.find_op(f"_contrib_{name}"), ops.find_op(f"_{name}_d_data")
    data = (3, 2, 5, 7)
    label = "-".join(str(v) for v in (name, *attrs.values())).replace(" ", "")
    extra = [(3, 2, *out)] if like else []
    large = [_many(data), *[(_many(data)[0], *s[1:]) for s in extra]]
    rows = {
        label: Case(
            op, attrs, [data, *extra], torch=torch, large=large,
            grad_inputs=("data",),
        )
    }  # fmt: skip
    if not like:
        rows[label + "-d-data"] = Case(back, attrs, [(3, 2, *out), data], mxnet=PRIVATE)
    return rows


ONE_PIXEL = "MXNet divides by zero for one row or column"
LARGE_ROIS = [(5, 2, 200, 210), (5, 5)]


def _places(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Places inside and a little outside an image."""
    return rng.uniform(-1.3, 1.3, shape)


def _torch_sample(a: Any, data: Any, grid: Any) -> Any:
    return _functional().grid_sample(data, grid.permute(0, 2, 3, 1), align_corners=True)


def _rois(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Regions of images 0 and 1, in and a little outside an image of 6x7; the last of no image."""
    corner, size = rng.uniform(-1.4, 4, (shape[0], 2)), rng.uniform(0.3, 6, (shape[0], 2))
    found = np.concatenate([np.arange(shape[0])[:, None] % 2, corner, corner + size], axis=1)
    found[-1:, 0] = -1
    return found


def _turned_rois(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Regions of images 0 and 1, turned, in and a little outside an image of 6x7; the last of no image."""
    center, size = rng.uniform(-0.9, 5, (shape[0], 2)), rng.uniform(0.3, 6, (shape[0], 2))
    angle = rng.uniform(-200, 200, (shape[0], 1))
    found = np.concatenate([np.arange(shape[0])[:, None] % 2, center, size, angle], axis=1)
    found[-1:, 0] = -1
    return found


def _deformable(name: str, **attrs: Any) -> dict[str, Case]:
    """Rows of a deformable convolution without and with a mask; windows read in and around the image."""
    rows = {}
    for label, kind in (
        (name, "DeformableConvolution"),
        (f"modulated-{name}", "ModulatedDeformableConvolution"),
    ):
        op = ops.find_op(f"_contrib_{kind}")
        a = parse_attrs(op, attrs)
        names = op.input_names(a)
        shapes, large = (
            op.infer_shape(a, data, *(None,) * (len(names) - 1))[0]
            for data in ((2, 4, 4, 5), (2, 4, 150, 90))
        )
        make = {"offset": lambda rng, shape: fractions(rng, shape) / 2 + 0.01}
        rows[label] = Case(op, attrs, shapes, make=make, large=large)
    return rows


def _real_rois(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Regions as `_rois`, all of images: of others MXNet reads and writes beyond its arrays."""
    found = _rois(rng, shape)
    found[-1:, 0] = 0
    return found


RESAMPLED = {
    "resize-nearest": _resize(
        (2, 3, 5, 4),
        {"size": (9, 3), "mode": "nearest-exact"},
        sizes=(0, 0, 9, 3),
        nearest_mode="round_prefer_ceil",
    ),
    "resize-nearest-asymmetric": _resize(
        (2, 3, 5, 4),
        {"size": (9, 3), "mode": "nearest"},
        sizes=(9, 3),
        axes=(2, -1),
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    ),
    "resize-nearest-down": _resize(
        (2, 3, 9),
        {"size": (4,), "mode": "nearest-exact"},
        sizes=(4,),
        axes=(2,),
        nearest_mode="round_prefer_ceil",
    ),
    "resize-linear": _resize(
        (2, 3, 5, 4), {"size": (9, 3), "mode": "bilinear"}, sizes=(2, 3, 9, 3), mode="linear"
    ),
    "resize-linear-1d": _resize(
        (2, 3, 6), {"size": (13,), "mode": "linear"}, sizes=(13,), axes=(2,), mode="linear"
    ),
    "resize-linear-3d": _resize(
        (2, 2, 3, 4, 2),
        {"size": (5, 2, 3), "mode": "trilinear", "align_corners": True},
        sizes=(0, 0, 5, 2, 3),
        mode="linear",
        coordinate_transformation_mode="align_corners",
    ),
    "resize-cubic": _resize(
        (2, 3, 5, 6), {"size": (9, 4), "mode": "bicubic"}, sizes=(9, 4), axes=(2, 3), mode="cubic"
    ),
    "resize-cubic-corners": _resize(
        (2, 3, 5, 6),
        {"size": (9, 4), "mode": "bicubic", "align_corners": True},
        sizes=(9, 4),
        axes=(2, 3),
        mode="cubic",
        coordinate_transformation_mode="align_corners",
    ),
    "resize-cubic-exclude": _resize(
        (2, 5, 6), scales=(1.0, 1.7, 0.6), mode="cubic", cubic_coeff_a=-0.5, exclude_outside=True
    ),
    "resize-scales": _resize(
        (2, 3, 5, 4),
        {"scale_factor": (1.5, 2.3), "mode": "bilinear", "recompute_scale_factor": False},
        scales=(1, 1, 1.5, 2.3),
        mode="linear",
    ),
    "resize-all-axes": _resize(
        (2, 3, 4),
        scales=(2.0, 1.0, 1.5),
        mode="linear",
        coordinate_transformation_mode="half_pixel_symmetric",
    ),
    "resize-one": _resize(
        (2, 3, 4), sizes=(1,), axes=(-1,), mode="linear", coordinate_transformation_mode="pytorch_half_pixel"
    ),
    "resize-d-data": Case(
        ops.ResizeDataGradient,
        {"sizes": (7, 3), "axes": (1, 2), "mode": "linear"},
        [(3, 7, 3), (3, 4, 5)],
        mxnet=PRIVATE,
    ),
    **_image(
        "BilinearResize2D",
        (9, 4),
        torch=_interpolate(size=(9, 4), mode="bilinear", align_corners=True),
        height=9,
        width=4,
    ),
    **_image(
        "BilinearResize2D",
        (3, 14),
        torch=_interpolate(size=(3, 14), mode="bilinear"),
        height=3,
        width=14,
        align_corners=False,
    ),
    **_image("BilinearResize2D", (9, 14), height=1, width=1, scale_height=1.9, scale_width=2.0),
    **_image("BilinearResize2D", (9, 13), mode="odd_scale", scale_height=2.0, scale_width=2.0),
    **_image("BilinearResize2D", (4, 6), mode="to_even_down"),
    **_image("BilinearResize2D", (6, 8), mode="to_even_up"),
    **_image("BilinearResize2D", (5, 7), mode="to_odd_up"),
    **_image(
        "BilinearResize2D", (8, 9), True, _interpolate(mode="bilinear", align_corners=True), mode="like"
    ),
    **_image("AdaptiveAvgPooling2D", (1, 1), torch=lambda a, x: _functional().adaptive_avg_pool2d(x, 1)),
    **_image(
        "AdaptiveAvgPooling2D",
        (3, 3),
        torch=lambda a, x: _functional().adaptive_avg_pool2d(x, 3),
        output_size=(3,),
    ),
    **_image(
        "AdaptiveAvgPooling2D",
        (2, 9),
        torch=lambda a, x: _functional().adaptive_avg_pool2d(x, (2, 9)),
        output_size=(2, 9),
    ),
}


def _boxes(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Boxes (..., 4) in [0, 1.1], corners in order."""
    corner = rng.uniform(0, 0.5, (*shape[:-1], 2))
    return np.concatenate([corner, corner + rng.uniform(0.1, 0.6, corner.shape)], axis=-1)


def _scored(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Rows of class, score, box and more; some scores equal, some below 0."""
    kind, score = rng.integers(-1, 3, (*shape[:-1], 1)), rng.integers(-2, 9, (*shape[:-1], 1)) / 8
    more = rng.standard_normal((*shape[:-1], shape[-1] - 6))
    return np.concatenate([kind, score, _boxes(rng, (*shape[:-1], 4)), more], axis=-1)


def _labels(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Rows of class and box; the last of each image unused, all of the last image."""
    found = np.concatenate([rng.integers(0, 3, (*shape[:-1], 1)), _boxes(rng, (*shape[:-1], 4))], axis=-1)
    found[:, -1:] = found[-1:] = -1
    return found


def _image_sizes(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.tile([70.0, 90.0, 1.0], (shape[0], 1))


_prior = ops.find_op("_contrib_MultiBoxPrior")
_target = ops.find_op("_contrib_MultiBoxTarget")
_detection = ops.find_op("_contrib_MultiBoxDetection")
_nms = ops.find_op("_contrib_box_nms")
_iou = ops.find_op("_contrib_box_iou")
_MANY_TARGETS = [(1, 60_000, 4), (1, 3, 5), (1, 3, 60_000)]


def _proposal(name: str, images: int, h: int = 5, w: int = 6, **attrs: Any) -> Case:
    attrs = {
        "scales": (1.0, 2.0),
        "ratios": (0.5, 1.0, 2.0),
        "rpn_post_nms_top_n": 8,
        "rpn_min_size": 4,
        **attrs,
    }
    op = ops.find_op(f"_contrib_{name}")

    def shapes(h: int, w: int) -> list[tuple[int, ...]]:
        return [(images, 12, h, w), (images, 24, h, w), (images, 3)]

    # In float32 two candidates may change places, so the types are not compared.
    make = {"cls_prob": apart, "bbox_pred": lambda r, s: r.standard_normal(s) * 0.3, "im_info": _image_sizes}
    return Case(op, attrs, shapes(h, w), make=make, large=shapes(90, 80), empty=False)


DETECTION = {
    "multibox-prior": Case(
        _prior, {"sizes": (0.5, 0.3), "ratios": (1.0, 2.0, 0.5)}, [(2, 3, 2, 3)], large=[(1, 1, 200, 201)]
    ),
    "multibox-prior-clip": Case(
        _prior,
        {"sizes": (0.4,), "ratios": (2.0, 1.0), "clip": True, "steps": (0.3, 0.4), "offsets": (0.1, 0.7)},
        [(2, 3, 2, 3)],
        large=[(1, 1, 200, 201)],
    ),
    **{
        name: Case(
            _target,
            attrs,
            [(1, 12, 4), (3, 4, 5), (3, 3, 12)],
            make={"anchor": _boxes, "label": _labels},
            large=_MANY_TARGETS,
            mxnet="MXNet's CPU kernel does not look at minimum_negative_samples"
            if "minimum_negative_samples" in attrs
            else True,
        )
        for name, attrs in {
            "multibox-target": {},
            "multibox-target-mining": {
                "negative_mining_ratio": 2.0,
                "overlap_threshold": 0.4,
                "ignore_label": -2.0,
            },
            "multibox-target-mining-least": {
                "negative_mining_ratio": 0.1,
                "minimum_negative_samples": 3,
                "negative_mining_thresh": 0.3,
            },
            "multibox-target-no-threshold": {"overlap_threshold": 0.0, "variances": (1.0, 1.0, 1.0, 1.0)},
        }.items()
    },
    **{
        name: Case(
            _detection,
            attrs,
            [(2, 3, 12), (2, 48), (1, 12, 4)],
            make={"cls_prob": positive, "anchor": _boxes},
            large=[(1, 3, 60_000), (1, 240_000), (1, 60_000, 4)]
            if "nms_topk" in attrs
            else [(1, 60, 2800), (1, 11_200), (1, 2800, 4)],
        )
        for name, attrs in {
            "multibox-detection": {},
            "multibox-detection-threshold": {"threshold": 1.6, "background_id": 1},
            "multibox-detection-topk": {"nms_topk": 4, "nms_threshold": 0.3},
            "multibox-detection-force": {"force_suppress": True, "clip": False, "nms_threshold": 0.2},
            "multibox-detection-no-nms": {"nms_threshold": 0.0},
        }.items()
    },
    **{
        name: Case(_nms, attrs, [(2, 9, 7)], make={"data": _scored}, large=[(1, 2000, 84)], grad_inputs=())
        for name, attrs in {
            "box-nms": {},
            "box-nms-class": {"id_index": 0, "overlap_thresh": 0.2, "background_id": 1},
            "box-nms-force": {"id_index": 0, "overlap_thresh": 0.2, "force_suppress": True, "topk": 4},
            "box-nms-center": {"in_format": "center", "out_format": "corner", "valid_thresh": 0.2},
            "box-nms-to-center": {"out_format": "center", "overlap_thresh": 0.7},
        }.items()
    },
    "box-nms-one": Case(_nms, {}, [(5, 6)], make={"data": _scored}, large=[(36_000, 6)]),
    "box-iou": Case(
        _iou, {}, [(3, 4), (2, 5, 4)], make={"lhs": _boxes, "rhs": _boxes}, large=[(3, 4), (60_000, 4)]
    ),
    "box-iou-center": Case(
        _iou,
        {"format": "center"},
        [(2, 3, 4), (1, 4)],
        make={"lhs": positive, "rhs": positive},
        large=[(60_000, 4), (1, 4)],
    ),
    "box-encode": Case(
        ops.find_op("_contrib_box_encode"),
        {},
        [(2, 7), (2, 7), (2, 7, 4), (2, 3, 4), (4,), (4,)],
        make={
            "samples": integers(-1, 2),
            "matches": integers(0, 3),
            "anchors": _boxes,
            "refs": _boxes,
            "stds": positive,
        },
        large=[(1, 60_000), (1, 60_000), (1, 60_000, 4), (1, 3, 4), (4,), (4,)],
    ),
    **{
        name: Case(
            ops.find_op("_contrib_box_decode"),
            attrs,
            [(3, 5, 4), (1, 5, 4)],
            make={"anchors": _boxes},
            large=[(3, 60_000, 4), (1, 60_000, 4)],
        )
        for name, attrs in {
            "box-decode": {"std0": 0.1, "std1": 0.2, "std2": 0.3, "std3": 0.4},
            "box-decode-corner": {"format": "corner", "clip": 0.5},
        }.items()
    },
    **{
        name: Case(ops.find_op("_contrib_bipartite_matching"), attrs, [(2, 5, 4)], large=[(3, 400, 500)])
        for name, attrs in {
            "bipartite-matching": {"threshold": 0.1},
            "bipartite-matching-ascend": {"threshold": 0.5, "is_ascend": True},
            "bipartite-matching-best": {"threshold": -9.0, "topk": 2},
        }.items()
    },
    "bipartite-matching-ties": Case(
        ops.find_op("_contrib_bipartite_matching"),
        {"threshold": 0.5},
        [(3, 2, 4, 6)],
        make={"data": integers(0, 3)},
        large=[(1, 1, 400, 500)],
    ),
    "proposal": _proposal("Proposal", 1),
    "proposal-score": _proposal(
        "Proposal", 1, output_score=True, threshold=0.4, rpn_pre_nms_top_n=30, rpn_min_size=12
    ),
    "proposal-iou-loss": _proposal("Proposal", 1, iou_loss=True, threshold=0.3, rpn_post_nms_top_n=40),
    "multi-proposal": _proposal("MultiProposal", 2, output_score=True, threshold=0.5),
}


ROWS: dict[str, Case] = {
    "deconv": _deconv((3, 4, 5, 6), kernel=(3, 3), num_filter=3),
    "deconv-stride-bias": _deconv(
        (3, 4, 4, 5), kernel=(4, 3), num_filter=6, stride=(2, 3), pad=(1, 0), adj=(1, 2), no_bias=False
    ),
    "deconv-group-dilate": _deconv(
        (3, 4, 4, 5), kernel=(3, 2), num_filter=6, stride=(1, 2), dilate=(2, 2), pad=(1, 1), num_group=2
    ),
    "deconv-depthwise": _deconv(
        (3, 4, 4, 5), kernel=(4, 4), num_filter=4, stride=(2, 2), pad=(1, 1), num_group=4
    ),
    "deconv-1x1": _deconv((3, 4, 4, 5), kernel=(1, 1), num_filter=5),
    "deconv-1d": _deconv((3, 4, 6), kernel=(3,), num_filter=2, stride=(2,)),
    "deconv-3d": _deconv((2, 2, 3, 2, 3), kernel=(2, 3, 2), num_filter=3, stride=(2, 1, 2), pad=(0, 1, 0)),
    "deconv-target": _deconv((2, 3, 4, 5), kernel=(3, 3), num_filter=2, stride=(2, 2), target_shape=(8, 9)),
    "deconv-target-odd": _deconv((2, 3, 5, 5), False, kernel=(3, 3), num_filter=2, target_shape=(4, 5)),
    **_conv_gradients(
        "convolution", (3, 4, 5, 6), kernel=(3, 3), num_filter=6, pad=(1, 1), num_group=2, no_bias=True
    ),
    **_conv_gradients(
        "convolution", (3, 4, 6), kernel=(3,), num_filter=2, stride=(2,), pad=(1,), no_bias=True
    ),
    **_conv_gradients("convolution", (3, 4, 6, 2), kernel=(1, 1), num_filter=3, no_bias=True),
    **_conv_gradients("deconvolution", (3, 4, 5, 6), kernel=(3, 3), num_filter=6, pad=(1, 1), num_group=2),
    **_conv_gradients("deconvolution", (3, 4, 6), kernel=(4,), num_filter=2, stride=(3,), target_shape=(15,)),
    **_pool_gradients((3, 2, 5, 6), kernel=(3, 2), stride=(2, 2), pad=(1, 0), pool_type="avg"),
    **_pool_gradients((3, 2, 5, 6), kernel=(2, 2), stride=(2, 1), pool_type="sum"),
    **_pool_gradients((3, 2, 5, 6), kernel=(3, 2), stride=(2, 2), pad=(1, 0)),
    **RESAMPLED,
    **DETECTION,
    "upsampling": _up([(3, 2, 3, 4)], scale=2),
    "upsampling-concat": _up([(3, 2, 2, 4), (3, 1, 4, 8), (3, 3, 1, 2)], scale=2),
    "upsampling-sum": _up([(3, 2, 2, 4), (3, 2, 4, 8)], scale=2, multi_input_mode="sum"),
    "upsampling-bilinear": Case(
        ops.UpSampling,
        {"scale": 3, "sample_type": "bilinear", "num_filter": 2, "num_args": 2},
        [(3, 2, 3, 4), (2, 1, 5, 5)],
        large=[(4000, 2, 3, 4), (2, 1, 5, 5)],
        torch=lambda a, x, w: _functional().conv_transpose2d(x, w, None, 3, 1, 0, 2),
    ),
    "im2col": Case(
        ops.im2col,
        {"kernel": (3, 2), "stride": (2, 1), "dilate": (1, 2), "pad": (1, 0)},
        [(3, 2, 5, 6)],
        torch=lambda a, x: _functional().unfold(x, a.kernel, a.dilate, a.pad, a.stride),
    ),
    "im2col-1d": Case(ops.im2col, {"kernel": (3,)}, [(3, 2, 6)]),
    "im2col-3d": Case(ops.im2col, {"kernel": (2, 1, 2), "pad": (0, 1, 1)}, [(3, 2, 3, 2, 2)]),
    "im2col-d-data": Case(
        ops.Im2colDataGradient, {"kernel": (2, 2), "stride": (2, 1)}, [(3, 8, 8), (3, 2, 5, 5)], mxnet=PRIVATE
    ),
    "col2im": Case(
        ops.col2im,
        {"kernel": (3, 2), "output_size": (5, 6), "stride": (2, 1), "pad": (1, 1)},
        [(3, 12, 21)],
        torch=lambda a, x: _functional().fold(x, a.output_size, a.kernel, 1, a.pad, a.stride),
    ),
    "col2im-1d": Case(ops.col2im, {"kernel": (3,), "output_size": (6,)}, [(3, 6, 4)]),
    "grid-affine": Case(
        ops.GridGenerator,
        {"transform_type": "affine", "target_shape": (3, 4)},
        [(3, 6)],
        large=[(20_000, 6)],
        torch=lambda a, x: (
            _functional().affine_grid(x.reshape(-1, 2, 3), (len(x), 1, 3, 4), True).permute(0, 3, 1, 2)
        ),
    ),
    "grid-affine-one": Case(
        ops.GridGenerator,
        {"transform_type": "affine", "target_shape": (1, 3)},
        [(2, 6)],
        large=[(60_000, 6)],
        mxnet=ONE_PIXEL,
    ),
    "grid-warp": Case(ops.GridGenerator, {"transform_type": "warp"}, [(3, 2, 4, 5)]),
    "grid-d-data": Case(
        ops.GridDataGradient,
        {"transform_type": "affine", "target_shape": (3, 4)},
        [(3, 2, 3, 4), (3, 6)],
        mxnet=PRIVATE,
    ),
    "grid-d-data-warp": Case(
        ops.GridDataGradient, {"transform_type": "warp"}, [(3, 2, 3, 4), (3, 2, 3, 4)], mxnet=PRIVATE
    ),
    "bilinear-sampler": Case(
        ops.BilinearSampler,
        {},
        [(3, 2, 4, 5), (3, 2, 6, 3)],
        make={"grid": _places},
        torch=_torch_sample,
        large=[(1, 2, 300, 300), (1, 2, 100, 100)],
    ),
    "bilinear-sampler-many-channels": Case(
        ops.BilinearSampler,
        {},
        [(2, 70, 3, 4), (2, 2, 3, 3)],
        make={"grid": _places},
        torch=_torch_sample,
        large=[(2, 700, 30, 30), (2, 2, 30, 30)],
    ),
    "bilinear-sampler-one-pixel": Case(
        ops.BilinearSampler,
        {},
        [(2, 3, 1, 1), (2, 2, 2, 3)],
        make={"grid": _places},
        large=[(1, 3, 1, 1), (1, 2, 240, 240)],
    ),
    "spatial-transformer": Case(
        ops.SpatialTransformer,
        {"transform_type": "affine", "sampler_type": "bilinear", "target_shape": (3, 4)},
        [(3, 2, 5, 4), (3, 6)],
        make={"loc": lambda rng, shape: rng.standard_normal(shape) * 0.6},
        torch=lambda a, x, loc: _torch_sample(
            a,
            x,
            _functional().affine_grid(loc.reshape(-1, 2, 3), (len(x), 1, 3, 4), True).permute(0, 3, 1, 2),
        ),
        large=[(3, 2, 300, 300), (3, 6)],
    ),
    "image-normalize": Case(
        ops._image_normalize,
        {"mean": (1, 0, -2), "std": (2, 0.5, 3)},
        [(3, 4, 5)],
        empty=False,
        large=[(3, 300, 400)],
    ),
    "image-normalize-several": Case(ops._image_normalize, {"mean": 0.5, "std": 4.0}, [(2, 3, 4, 5)]),
    "image-to-tensor": Case(
        ops._image_to_tensor, {}, [(4, 5, 3)], dtypes={"data": "uint8"}, make={"data": integers(0, 256)}
    ),
    "image-to-tensor-several": Case(ops._image_to_tensor, {}, [(2, 4, 5, 3)], dtype="float32"),
    **{
        f"image-{name}{mark}": Case(op, {}, [shape], mxnet="its gradient is not turned back")
        for name, op in (
            ("left-right", ops._image_flip_left_right),
            ("top-bottom", ops._image_flip_top_bottom),
        )
        for mark, shape in (("", (4, 5, 3)), ("-several", (2, 4, 5, 3)))
    },
    "image-crop": Case(
        ops._image_crop,
        {"x": 1, "y": 2, "width": 3, "height": 2},
        [(4, 5, 3)],
        empty=False,
        large=[(4, 5, 100_000)],
    ),
    "image-crop-several": Case(ops._image_crop, {"x": 1, "y": 2, "width": 3, "height": 2}, [(2, 4, 5, 3)]),
    "correlation": Case(
        ops.Correlation,
        {"max_displacement": 2, "stride2": 2, "pad_size": 2},
        [(3, 4, 5, 6)] * 2,
        large=[(40, 16, 16, 16)] * 2,
    ),
    "correlation-kernel": Case(
        ops.Correlation,
        {"kernel_size": 3, "max_displacement": 1, "stride1": 2, "pad_size": 2},
        [(2, 3, 5, 6)] * 2,
        large=[(40, 16, 16, 16)] * 2,
    ),
    "correlation-difference": Case(
        ops.Correlation,
        {"max_displacement": 1, "pad_size": 1, "is_multiply": False},
        [(2, 3, 4, 5)] * 2,
        large=[(40, 16, 16, 16)] * 2,
    ),
    "correlation-equals": Case(
        ops.Correlation,
        {"max_displacement": 1, "pad_size": 1, "is_multiply": False},
        [(2, 3, 4, 5)] * 2,
        make={"data1": few, "data2": few},
        grad_inputs=(),
        large=[(40, 16, 16, 16)] * 2,
    ),
    "roi-pooling": Case(
        ops.ROIPooling,
        {"pooled_size": (2, 3), "spatial_scale": 1.0},
        [(5, 2, 6, 7), (5, 5)],
        make={"data": apart, "rois": _rois},
        large=LARGE_ROIS,
    ),
    "roi-pooling-scale": Case(
        ops.ROIPooling,
        {"pooled_size": (3, 2), "spatial_scale": 0.6},
        [(5, 2, 6, 7), (5, 5)],
        make={"data": apart, "rois": _rois},
        large=LARGE_ROIS,
    ),
    **{
        name: Case(
            ops.find_op("_contrib_ROIAlign"),
            {"pooled_size": (2, 3), **attrs},
            [(5, 12, 6, 7), (5, 5)],
            make={"rois": _rois},
            large=[(5, 12, 60, 70), (5, 5)],
        )
        for name, attrs in {
            "roi-align": {"spatial_scale": 1.0},
            "roi-align-samples": {"spatial_scale": 0.6, "sample_ratio": 2},
            "roi-align-aligned": {"spatial_scale": 0.7, "aligned": True},
            "roi-align-position": {"spatial_scale": 1.0, "position_sensitive": True, "sample_ratio": 2},
        }.items()
    },
    **{
        name: Case(
            ops.find_op("_contrib_RROIAlign"),
            {"pooled_size": (2, 3), **attrs},
            [(5, 4, 6, 7), (5, 6)],
            make={"rois": _turned_rois},
            large=[(5, 12, 60, 70), (5, 6)],
        )
        for name, attrs in {
            "rroi-align": {"spatial_scale": 1.0},
            "rroi-align-samples": {"spatial_scale": 0.6, "sampling_ratio": 2},
            "rroi-align-many": {"spatial_scale": 1.0, "sampling_ratio": 40},
        }.items()
    },
    **{
        name: Case(
            ops.find_op("_contrib_PSROIPooling"),
            attrs,
            [(3, 8, 6, 7), (3, 5)],
            make={"rois": _real_rois},
            large=[(3, 8, 60, 70), (3, 5)],
        )
        for name, attrs in {
            "psroi": {"spatial_scale": 1.0, "output_dim": 2, "pooled_size": 2},
            "psroi-groups": {"spatial_scale": 0.6, "output_dim": 2, "pooled_size": 3, "group_size": 2},
        }.items()
    },
    **{
        name: Case(
            ops.find_op("_contrib_DeformablePSROIPooling"),
            {"spatial_scale": 0.8, "pooled_size": 3, **attrs},
            [(3, 8, 6, 7), (3, 5), *trans],
            make={"rois": _real_rois},
            large=[(3, 8, 60, 70), (3, 5), *trans],
        )
        for name, trans, attrs in (
            ("deformable-psroi", [(3, 4, 3, 3)], {"output_dim": 2, "group_size": 2, "trans_std": 0.1}),
            (
                "deformable-psroi-parts",
                [(3, 2, 2, 2)],
                {"output_dim": 2, "group_size": 2, "trans_std": 0.3, "part_size": 2, "sample_per_part": 3},
            ),
            (
                "deformable-psroi-still",
                [],
                {"output_dim": 8, "group_size": 1, "no_trans": True, "sample_per_part": 2},
            ),
        )
    },
    **_deformable("deformable-convolution", kernel=(3, 2), num_filter=3, pad=(1, 1)),
    **_deformable(
        "deformable-convolution-groups",
        kernel=(2, 3),
        num_filter=4,
        stride=(2, 1),
        dilate=(1, 2),
        pad=(1, 2),
        num_group=2,
        num_deformable_group=2,
        no_bias=True,
    ),
}
