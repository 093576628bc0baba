"""Detectors, deformed convolutions and large batches as MXNet's users wrote them; see `mxnet_programs.py`.

`python -m tests.oracles.mxnet.mxnet_detectors mxnet` prints what MXNet gives: the literals of
`test_mxnet_detectors.py`.
"""

import os
import random
import struct
import zlib

import numpy as np

from tests.oracles.mxnet.mxnet_programs import (
    digest,
    digests,
    perceptron,
    print_numbers,
    random_parameters,
    samples,
)


def png(pixels):
    """A PNG file of pixels (H, W, 3) uint8, red green blue: no two decoders differ."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def pictures(mx, folder, count=6):
    """A file of records: bright rectangles on noise, with class and place of each."""
    draw = np.random.RandomState(11)
    rec, idx = os.path.join(folder, "boxes.rec"), os.path.join(folder, "boxes.idx")
    file = mx.recordio.MXIndexedRecordIO(idx, rec, "w")
    for i in range(count):
        pixels, label = draw.randint(0, 90, (28, 24 + 2 * i, 3)).astype("uint8"), [4, 5, 28, 24 + 2 * i]
        height, width = pixels.shape[:2]
        for kind in draw.randint(0, 2, 1 + i % 3):
            x, y = draw.uniform(0, 0.5, 2)
            w, h = draw.uniform(0.3, 0.5, 2)
            label += [kind, x, y, x + w, y + h]
            place = slice(int(y * height), int((y + h) * height)), slice(int(x * width), int((x + w) * width))
            pixels[place[0], place[1], kind] = 250
        file.write_idx(i, mx.recordio.pack(mx.recordio.IRHeader(0, label, i, 0), png(pixels)))
    file.close()
    return rec, idx


AUGMENTED = dict(
    rand_crop=0.6,
    rand_pad=0.6,
    rand_mirror=True,
    rand_gray=0.3,
    mean=True,
    std=np.array([58.0, 57.0, 56.0]),
    brightness=0.1,
    contrast=0.1,
    saturation=0.1,
    hue=0.1,
    pca_noise=0.05,
    inter_method=1,
    min_object_covered=[0.2, 0.6],
    area_range=(0.3, 2.5),
)


def batches_of_boxes(mx, folder):
    rec, idx = pictures(mx, folder)
    random.seed(5)
    np.random.seed(5)
    data = mx.image.ImageDetIter(4, (3, 16, 20), path_imgrec=rec, path_imgidx=idx, shuffle=True, **AUGMENTED)
    other = mx.image.ImageDetIter(2, (3, 16, 20), path_imgrec=rec, last_batch_handle="roll_over")
    other.reshape(label_shape=(5, 5))
    data.sync_label_shape(other)
    found = [*data.provide_data[0][1], *data.provide_label[0][1], *other.label_shape]
    for _ in range(3):
        for batch in data:
            found += [batch.pad, *digest(batch.label[0])] + [
                round(v, 2) for v in digest(batch.data[0])[:1] + digest(batch.data[0])[2:]
            ]
        data.reset()
    for batch in other:
        found += [batch.pad, *batch.label[0].asnumpy()[0].ravel()[:10]]
    return found


def records_of_boxes(mx, folder):
    """What ImageDetRecordIter does without chance."""
    rec, _ = pictures(mx, folder)
    found = []
    for settings in (
        {},
        {"mean_r": 20, "mean_g": 30, "mean_b": 40, "std_r": 2, "scale": 0.5, "label_pad_width": 22},
        {"rand_mirror_prob": 1, "resize": 20, "label_pad_value": 7, "round_batch": False},
        {"resize_mode": "fit", "inter_method": 0},
        {"resize_mode": "shrink", "data_shape": (3, 40, 30)},
    ):
        how = {"data_shape": (3, 16, 18), "batch_size": 4, "preprocess_threads": 1, "verbose": False}
        data = mx.io.ImageDetRecordIter(path_imgrec=rec, **(how | settings))
        found += [*data.provide_data[0][1], *data.provide_label[0][1]]
        for batch in list(data):
            used = 4 - batch.pad
            label, pixels = batch.label[0].asnumpy()[:used], batch.data[0].asnumpy()[:used]
            found += [batch.pad, *digest(label), *label[0]]
            for rows, columns, image in zip(
                label[:, 1], label[:, 2], pixels
            ):  # behind them MXNet has garbage
                found.append(image[:, : int(rows), : int(columns)].mean(dtype="float64"))
    return found


def features(mx, layer, filters, name):
    layer = mx.sym.Convolution(
        layer, kernel=(3, 3), pad=(1, 1), num_filter=filters, no_bias=True, name=f"{name}_conv"
    )
    layer = mx.sym.BatchNorm(layer, fix_gamma=False, name=f"{name}_bn")
    layer = mx.sym.Activation(layer, act_type="relu", name=f"{name}_relu")
    return mx.sym.Pooling(layer, pool_type="max", kernel=(2, 2), stride=(2, 2), name=f"{name}_pool")


def detector_of_two_scales(mx):
    """A single-shot detector of two classes, with heads on two layers."""
    label, layer = mx.sym.Variable("label"), mx.sym.Variable("data")
    places, kinds, anchors = [], [], []
    layer = features(mx, layer, 4, "one")
    for name, size in (("two", "(0.3,0.45)"), ("three", "(0.6,0.8)")):
        layer = features(mx, layer, 6, name)
        scaled = mx.sym.L2Normalization(layer, mode="channel", name=f"{name}_norm")
        for heads, count in ((places, 4), (kinds, 3)):
            head = mx.sym.Convolution(
                scaled, kernel=(3, 3), pad=(1, 1), num_filter=3 * count, name=f"{name}_{count}"
            )
            heads.append(mx.sym.Flatten(mx.sym.transpose(head, axes=(0, 2, 3, 1))))
        prior = mx.contrib.symbol.MultiBoxPrior(layer, sizes=size, ratios="(1,2)", clip=True)
        anchors.append(mx.sym.Flatten(prior))
    place = mx.sym.Concat(*places, dim=1, name="place")
    kind = mx.sym.Reshape(mx.sym.Concat(*kinds, dim=1), shape=(0, -1, 3))
    kind = mx.sym.transpose(kind, axes=(0, 2, 1))
    anchor = mx.sym.Reshape(mx.sym.Concat(*anchors, dim=1), shape=(0, -1, 4))
    target = mx.contrib.symbol.MultiBoxTarget(
        anchor,
        label,
        kind,
        overlap_threshold=0.5,
        ignore_label=-1,
        negative_mining_ratio=3,
        negative_mining_thresh=0.5,
        variances=(0.1, 0.1, 0.2, 0.2),
    )
    chance = mx.sym.SoftmaxOutput(
        kind,
        target[2],
        ignore_label=-1,
        use_ignore=True,
        multi_output=True,
        normalization="valid",
        name="chance",
    )
    apart = mx.sym.smooth_l1(target[1] * (place - target[0]), scalar=1.0)
    found = mx.contrib.symbol.MultiBoxDetection(chance, place, anchor, nms_threshold=0.5, nms_topk=40)
    return mx.sym.Group(
        [
            chance,
            mx.sym.MakeLoss(apart, normalization="valid", name="apart"),
            mx.sym.MakeLoss(target[2], grad_scale=0, name="truth"),
            mx.sym.MakeLoss(found, grad_scale=0, name="found"),
        ]
    )


def detector_learns_from_records(mx, folder):
    rec, idx = pictures(mx, folder)
    random.seed(2)
    np.random.seed(2)
    data = mx.image.ImageDetIter(
        2, (3, 16, 16), path_imgrec=rec, path_imgidx=idx, shuffle=True,
        **(AUGMENTED | dict(hue=0, pca_noise=0, rand_gray=0)),
    )  # fmt: skip
    net = detector_of_two_scales(mx)
    weights, states = random_parameters(mx, net, data=(2, 3, 16, 16), label=(2, 3, 5))
    module = mx.mod.Module(net, label_names=["label"])
    losses = []
    module.fit(
        data,
        num_epoch=2,
        eval_metric=mx.metric.Loss(output_names=["apart_output"], label_names=[]),
        batch_end_callback=lambda p: losses.append(p.eval_metric.get()[1]),
        arg_params=weights,
        aux_params=states,
        optimizer_params={"learning_rate": 0.05, "momentum": 0.9, "wd": 5e-4},
    )
    held_out = mx.image.ImageDetIter(2, (3, 16, 16), path_imgrec=rec, mean=True, inter_method=1)
    chance, _, truth, found = module.predict(held_out)
    best = found.asnumpy()[:, 0, 1:]
    return losses + digests(module.get_params()[0]) + digest(chance) + digest(truth) + digest(best)


def deformed_network(mx, folder):
    """Two deformed convolutions that learn where to look; one with groups of offsets."""
    layer = features(mx, mx.sym.Variable("data"), 4, "one")
    for name, groups, kernel in (("two", 1, (3, 3)), ("three", 2, (1, 3))):
        pad = tuple(k // 2 for k in kernel)
        moves = mx.sym.Convolution(
            layer,
            kernel=kernel,
            pad=pad,
            num_filter=2 * groups * kernel[0] * kernel[1],
            name=f"{name}_offset",
        )
        layer = mx.contrib.symbol.DeformableConvolution(
            data=layer,
            offset=moves,
            kernel=kernel,
            pad=pad,
            num_filter=6,
            num_deformable_group=groups,
            no_bias=name == "two",
            name=name,
        )
        layer = mx.sym.Activation(layer, act_type="relu")
    pooled = mx.sym.Flatten(mx.sym.Pooling(layer, global_pool=True, kernel=(1, 1), pool_type="avg"))
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(pooled, num_hidden=3, name="fc"), name="softmax")
    x, y = samples((2, 12, 12))
    weights, states = random_parameters(mx, net, data=(8, 2, 12, 12))
    module = mx.mod.Module(net)
    module.fit(
        mx.io.NDArrayIter(x, y, 8),
        num_epoch=3,
        arg_params=weights,
        aux_params=states,
        optimizer="adam",
        optimizer_params={"learning_rate": 0.01},
    )
    return digests(module.get_params()[0]) + digest(module.get_outputs()[0])


def regions_with_channels_of_their_own(mx, folder):
    """Region proposals, and pooling that looks at other channels for each part of a region: R-FCN's head,
    and its deformed form."""
    layer = features(mx, features(mx, mx.sym.Variable("data"), 4, "one"), 6, "two")
    # No random weights here: the regions' order would hang on the last bits.
    chance, moves = mx.sym.Variable("rpn_chance"), mx.sym.Variable("rpn_moves")
    rois = mx.sym.contrib.Proposal(
        cls_prob=chance,
        bbox_pred=moves,
        im_info=mx.sym.Variable("size"),
        feature_stride=4,
        scales=(1, 2),
        ratios=(0.5, 1, 2),
        rpn_pre_nms_top_n=40,
        rpn_post_nms_top_n=6,
        threshold=0.6,
        rpn_min_size=2,
        name="rois",
    )
    maps = mx.sym.Convolution(layer, kernel=(1, 1), num_filter=3 * 9, name="maps")
    scale = dict(rois=rois, spatial_scale=0.25, pooled_size=3, group_size=3)
    votes = mx.sym.contrib.PSROIPooling(data=maps, output_dim=3, name="votes", **scale)
    still = mx.sym.contrib.DeformablePSROIPooling(
        data=maps, output_dim=3, no_trans=True, sample_per_part=2, name="still", **scale
    )
    shifts = mx.sym.FullyConnected(mx.sym.Flatten(still), num_hidden=18, name="shifts")
    moved = mx.sym.contrib.DeformablePSROIPooling(
        data=maps,
        trans=mx.sym.Reshape(shifts, shape=(-1, 2, 3, 3)),
        output_dim=3,
        part_size=3,
        sample_per_part=2,
        trans_std=0.1,
        name="moved",
        **scale,
    )
    both = mx.sym.Pooling(votes + moved, global_pool=True, kernel=(3, 3), pool_type="avg")
    net = mx.sym.Group(
        [
            mx.sym.SoftmaxOutput(
                mx.sym.Flatten(both),
                mx.sym.Variable("label"),
                normalization="batch",
                name="kind",
            ),
            mx.sym.BlockGrad(rois),
        ]
    )
    shapes = dict(
        data=(1, 3, 24, 24), rpn_chance=(1, 12, 6, 6), rpn_moves=(1, 24, 6, 6), size=(1, 3), label=(6,)
    )
    exe = net.simple_bind(mx.cpu(), grad_req={
        n: "null" if n in shapes else "write" for n in net.list_arguments()
    }, **shapes)  # fmt: skip
    weights, states = random_parameters(mx, net, **shapes)
    exe.copy_params_from(weights, states)
    draw = np.random.RandomState(8)
    updater = mx.optimizer.get_updater(mx.optimizer.create("sgd", learning_rate=0.2, momentum=0.9))
    found = []
    for _ in range(4):
        exe.forward(
            is_train=True,
            data=mx.nd.array(draw.rand(*shapes["data"])),
            rpn_chance=mx.nd.array(draw.permutation(432).reshape(shapes["rpn_chance"]) / 432.0),
            rpn_moves=mx.nd.array(draw.randint(-2, 3, shapes["rpn_moves"]) / 8.0),
            size=mx.nd.array([[24, 24, 1]]),
            label=mx.nd.array(draw.randint(0, 3, 6)),
        )
        exe.backward()
        for i, name in enumerate(net.list_arguments()):
            if name not in shapes:
                updater(i, exe.grad_dict[name], exe.arg_dict[name])
        found += digest(exe.outputs[0]) + digest(exe.outputs[1])
    return found + digests(exe.arg_dict)


def anchors_get_boxes(mx, folder):
    """Targets made of single steps: overlaps, pairs, offsets; and boxes from them again."""
    draw = np.random.RandomState(9)
    corner = draw.uniform(0, 0.6, (1, 12, 2))
    anchors = mx.nd.array(np.concatenate([corner, corner + draw.uniform(0.1, 0.4, (1, 12, 2))], axis=2))
    corner = draw.uniform(0, 0.5, (2, 3, 2))
    boxes = mx.nd.array(np.concatenate([corner, corner + draw.uniform(0.2, 0.5, (2, 3, 2))], axis=2))
    tiled = mx.nd.broadcast_axis(anchors, axis=0, size=2)
    overlaps = mx.nd.transpose(mx.nd.contrib.box_iou(anchors[0], boxes), axes=(1, 0, 2))
    rows, columns = mx.nd.contrib.bipartite_matching(overlaps, threshold=1e-3)
    samples = rows >= 0
    means, stds = mx.nd.zeros((4,)), mx.nd.array([0.1, 0.1, 0.2, 0.2])
    targets, masks = mx.nd.contrib.box_encode(samples, mx.nd.maximum(rows, 0), tiled, boxes, means, stds)
    back = mx.nd.contrib.box_decode(
        targets, anchors, std0=0.1, std1=0.1, std2=0.2, std3=0.2, clip=4, format="corner"
    )
    few, _ = mx.nd.contrib.bipartite_matching(-overlaps, threshold=-1e-3, is_ascend=True, topk=1)
    found = [a.asnumpy().ravel() for a in (rows, columns, few)]
    return np.concatenate(found).tolist() + digest(targets) + digest(masks) + digest(back)


def large_batches(mx, folder):
    """LBSGD with each of its warm-ups."""
    net, (x, y) = perceptron(mx), samples((10,))
    weights, _ = random_parameters(mx, net, data=(8, 10))
    found, draw = [], np.random.RandomState(12)
    for settings in (
        {"lr_scheduler": mx.lr_scheduler.FactorScheduler(4, 0.5, base_lr=0.1)},
        {"warmup_strategy": "lars"},
    ):
        module = mx.mod.Module(net)
        module.fit(
            mx.io.NDArrayIter(x, y, 8),
            num_epoch=3,
            optimizer="lbsgd",
            optimizer_params={"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-3, **settings},
            arg_params=weights,
        )
        found += digests(module.get_params()[0])
    for settings in (
        {"momentum": 0.9, "batch_scale": 2, "warmup_epochs": 2, "updates_per_epoch": 3},
        {"momentum": 0.5, "batch_scale": 3, "warmup_strategy": "power2", "updates_per_epoch": 2, "wd": 0.1},
        {"batch_scale": 2, "warmup_strategy": "sqrt", "begin_epoch": 1, "updates_per_epoch": 3},
        {"momentum": 0.9, "batch_scale": 2, "warmup_strategy": "lars", "wd": 0.1, "clip_gradient": 0.5},
        {"momentum": 0.9, "batch_scale": 2, "multi_precision": True, "updates_per_epoch": 1},
    ):
        schedule = mx.lr_scheduler.FactorScheduler(4, 0.5, base_lr=0.1)
        optimizer = mx.optimizer.LBSGD(lr_scheduler=schedule, rescale_grad=0.5, **settings)
        updater = mx.optimizer.get_updater(optimizer)
        dtype = "float16" if optimizer.multi_precision else "float32"
        weight = mx.nd.array(draw.rand(2, 3), dtype=dtype)
        # Each gradient an array of its own: MXNet keeps the first one and reads it at the second update.
        for _ in range(9):
            updater("fc_weight", mx.nd.array(draw.randn(2, 3), dtype=dtype), weight)
        found += digest(weight)
    return found


PROGRAMS = (
    batches_of_boxes,
    records_of_boxes,
    detector_learns_from_records,
    deformed_network,
    regions_with_channels_of_their_own,
    anchors_get_boxes,
    large_batches,
)

if __name__ == "__main__":
    print_numbers(PROGRAMS)
