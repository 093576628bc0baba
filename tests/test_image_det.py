"""Images with boxes: what cannot be read off the batches of `test_mxnet_detectors.py`."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from mxnet_detectors import pictures, png

import mxlite as mx
from mxlite.core import ShapeError

LABEL = np.array([[0, 0.2, 0.1, 0.6, 0.5, 7], [1, 0.5, 0.5, 0.9, 1.0, 8]], np.float32)
PIXELS = np.arange(20 * 30 * 3).reshape(20, 30, 3).astype("uint8")


def image(pixels=PIXELS):
    return mx.nd.array(pixels, dtype="uint8")


@pytest.fixture
def records(tmp_path):
    return pictures(mx, tmp_path)


def test_a_flipped_image_has_flipped_boxes():
    out, label = mx.image.DetHorizontalFlipAug(1)(image(), LABEL.copy())
    np.testing.assert_array_equal(out.asnumpy(), PIXELS[:, ::-1])
    np.testing.assert_allclose(label[0], [0, 0.4, 0.1, 0.8, 0.5, 7], rtol=1e-6)
    _, same = mx.image.DetHorizontalFlipAug(0)(image(), LABEL.copy())
    np.testing.assert_array_equal(same, LABEL)


def test_padding_and_cropping_keep_boxes_on_what_they_show():
    """A box that lies on pixels of one colour still does."""
    pixels = np.zeros((20, 30, 3), "uint8")
    pixels[2:10, 6:18] = 200
    random.seed(1)
    steps = [
        mx.image.DetRandomPadAug(area_range=(1.0, 2.0), pad_val=3),
        mx.image.DetRandomCropAug(min_object_covered=0.5, area_range=(0.4, 0.9)),
    ]
    changed = 0
    for _ in range(20):
        out, label = image(pixels), LABEL[:1].copy()
        for step in steps:
            out, label = step(out, label)
        found = out.asnumpy()[:, :, 0] == 200
        h, w = found.shape
        x1, y1, x2, y2 = np.rint(label[0, 1:5] * (w, h, w, h)).astype(int)
        assert found[y1:y2, x1:x2].all() and found.sum() == (y2 - y1) * (x2 - x1)
        changed += (h, w) != (20, 30)
    assert changed > 10


def test_augmenters_describe_themselves():
    select = mx.image.CreateMultiRandCropAugmenter([0.1, 0.7], max_attempts=[5, 6], skip_prob=0.25)
    name, parts = select.dumps()
    kind, values = json.loads(parts[1])
    assert (name, kind) == ("detrandomselectaug", "detrandomcropaug") and select.skip_prob == 0.25
    assert values == {
        "min_object_covered": 0.7,
        "aspect_ratio_range": [0.75, 1.33],
        "area_range": [0.05, 1.0],
        "min_eject_coverage": 0.3,
        "max_attempts": 6,
    }
    kinds = [
        type(getattr(a, "augmenter", a)).__name__
        for a in mx.image.CreateDetAugmenter(
            (3, 8, 8), resize=9, rand_crop=1, rand_pad=1, rand_mirror=True, mean=True, hue=0.1
        )
    ]
    assert kinds == [
        "ResizeAug", "DetRandomSelectAug", "DetHorizontalFlipAug", "DetRandomSelectAug", "ForceResizeAug",
        "CastAug", "HueJitterAug", "ColorNormalizeAug",
    ]  # fmt: skip
    assert mx.image.det.ImageDetIter is mx.image.detection.ImageDetIter is mx.image.ImageDetIter


def test_augmenters_name_what_is_wrong():
    with pytest.warns(UserWarning, match=r"DetRandomCropAug does nothing: area_range is \(0\.9, 0\.5\)"):
        still = mx.image.DetRandomCropAug(area_range=(0.9, 0.5))
    assert still(image(), LABEL)[0].shape == (20, 30, 3)
    with pytest.warns(UserWarning, match=r"DetRandomPadAug does nothing: area_range is \(1\.0, 1\.0\)"):
        mx.image.DetRandomPadAug(area_range=(1.0, 1.0))
    with pytest.raises(TypeError, match="takes an Augmenter"):
        mx.image.DetBorrowAug(mx.image.DetHorizontalFlipAug(1))
    with pytest.raises(ValueError, match="takes DetAugmenters"):
        mx.image.DetRandomSelectAug([mx.image.CastAug()])
    with pytest.raises(ValueError, match=r"\[2, 1, 3, 1, 1\]"):
        mx.image.CreateMultiRandCropAugmenter([0.1, 0.2], area_range=[(0.1, 1)] * 3)


def test_images_without_boxes_are_left_out(tmp_path):
    (tmp_path / "a.png").write_bytes(png(PIXELS))
    rows = [[2, 5, k, 0.1, 0.1, 0.5, 0.5] for k in (0, 1, 2)]
    rows[1][2] = -1
    it = mx.image.ImageDetIter(2, (3, 8, 8), imglist=[[*row, "a.png"] for row in rows], path_root=tmp_path)
    batch = it.next()
    assert batch.label[0].asnumpy()[:, 0, 0].tolist() == [0, 2] and batch.pad == 0
    flat = [2, 5, 0, 0.5, 0.1, 0.5, 0.5]
    with pytest.raises(RuntimeError, match="no box with width and height"):
        mx.image.ImageDetIter(1, (3, 8, 8), imglist=[[*flat, "a.png"]], path_root=tmp_path)
    with pytest.raises(RuntimeError, match=r"'a\.png' has the label \[2\.0, 4\.0.*for each object"):
        mx.image.ImageDetIter(1, (3, 8, 8), imglist=[[2, 4, *flat[2:], "a.png"]], path_root=tmp_path)


def test_an_error_of_an_augmenter_is_no_reason_to_leave_an_image_out(records):
    class Broken(mx.image.DetAugmenter):
        def __call__(self, src, label):
            raise mx.MXNetError("broken")

    it = mx.image.ImageDetIter(1, (3, 8, 8), path_imgrec=records[0], aug_list=[Broken()])
    with pytest.raises(mx.MXNetError, match="broken"):
        it.next()


def test_shapes_change_on_demand_and_not_to_less(records):
    it = mx.image.ImageDetIter(2, (3, 8, 8), path_imgrec=records[0])
    assert it.label_shape == (3, 5) and it.provide_label == [("label", (2, 3, 5))]
    it.reshape(label_shape=(4, 5))
    assert it.next().label[0].shape == (2, 4, 5)
    it.auglist = mx.image.CreateDetAugmenter((3, 10, 12))
    it.reshape((3, 10, 12))
    assert it.provide_data == [("data", (2, 3, 10, 12))] and it.next().data[0].shape == (2, 3, 10, 12)
    for shape in ((3, 5), (4, 6), (4,)):
        with pytest.raises(ShapeError, match=r"\(L, 5\) with L at least 4"):
            it.reshape(label_shape=shape)


def test_boxes_are_drawn(records):
    it = mx.image.ImageDetIter(2, (3, 28, 24), path_imgrec=records[0], mean=True, inter_method=0)
    drawn = list(it.draw_next(color=(255, 0, 1), thickness=1, mean=True))
    assert len(drawn) == 6 and drawn[0].shape == (28, 24, 3) and drawn[0].dtype == np.uint8
    it.reset()
    label, _ = it.next_sample()
    x1, y1, x2, _ = (int(v) for v in label[5:9] * (24, 28, 24, 28))
    assert (drawn[0][y1, x1:x2] == [1, 0, 255]).all()
