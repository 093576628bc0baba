"""Images with boxes: what cannot be read off the batches of `test_mxnet_detectors.py`."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

import mxlite as mx
from mxlite.core import ShapeError
from tests.oracles.mxnet.mxnet_detectors import pictures, png

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
    with pytest.raises(RuntimeError, match=r"'a\.png': the label \[2\.0, 4\.0.*for each object"):
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


RANDOM = dict(
    rand_crop_prob=0.7,
    num_crop_sampler=2,
    min_crop_scales=(0.4, 0.6),
    min_crop_aspect_ratios=0.5,
    max_crop_aspect_ratios=2.0,
    min_crop_object_coverages=(1.0, 0.9),
    rand_pad_prob=0.7,
    max_pad_scale=1.5,
    rand_mirror_prob=0.5,
    inter_method=0,
)


def one_record(tmp_path, *boxes, pixels=None):
    """A file of one picture, black but for its boxes."""
    if pixels is None:
        pixels = np.zeros((40, 60, 3), "uint8")
        for _, x1, y1, x2, y2 in boxes:
            pixels[int(y1 * 40) : int(y2 * 40), int(x1 * 60) : int(x2 * 60)] = 200
    path = str(tmp_path / "one.rec")
    file = mx.recordio.MXRecordIO(path, "w")
    label = [2, 5, *(v for box in boxes for v in box)]
    file.write(mx.recordio.pack(mx.recordio.IRHeader(0, label, 0, 0), png(pixels)))
    file.close()
    return dict(path_imgrec=path, data_shape=(3, 40, 60), batch_size=1, verbose=False)


def test_boxes_of_records_stay_on_what_they_show(tmp_path):
    base = one_record(tmp_path, (0, 0.2, 0.2, 0.5, 0.6))
    labels = set()
    with mx.io.ImageDetRecordIter(**base, **RANDOM, fill_value=9, seed=3) as it:
        for _ in range(30):
            (batch,) = list(it)
            it.reset()
            label = batch.label[0].asnumpy()[0]
            assert label[:7].tolist() == [3, 40, 60, 7, 2, 5, 0]
            x1, y1, x2, y2 = label[7:] * (60, 40, 60, 40)
            shown = batch.data[0].asnumpy()[0, 0] == 200
            rows, columns = np.flatnonzero(shown.any(axis=1)), np.flatnonzero(shown.any(axis=0))
            edges = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
            np.testing.assert_allclose(edges, (x1, y1, x2, y2), atol=3)  # pixels are whole, boxes are not
            labels.add(tuple(label))
    assert len(labels) > 20


@pytest.mark.parametrize("mode", ["center", "overlap"])
def test_objects_that_a_part_does_not_show_are_dropped(tmp_path, mode):
    """Object 0 must lie inside, so where the part is can be told from it; object 1 is too large to."""
    base = one_record(tmp_path, (0, 0.45, 0.4, 0.55, 0.6), (1, 0.5, 0.0, 1.0, 1.0))
    how = dict(rand_crop_prob=1.0, min_crop_scales=0.4, max_crop_scales=0.5, max_crop_trials=500)
    how |= dict(min_crop_object_coverages=0.999, crop_emit_mode=mode, emit_overlap_thresh=0.25)
    seen = []
    with mx.io.ImageDetRecordIter(**base, **how) as it:
        for _ in range(40):
            row = it.next().label[0].asnumpy()[0].astype("float64")
            it.reset()
            objects = row[6 : 4 + int(row[3])].reshape(-1, 5)
            assert objects[0, 0] == 0 and (row[4 + int(row[3]) :] == -1).all()
            width, height = 0.1 / (objects[0, 3] - objects[0, 1]), 0.2 / (objects[0, 4] - objects[0, 2])
            x, y = 0.45 - objects[0, 1] * width, 0.4 - objects[0, 2] * height
            if mode == "center":
                found = x <= 0.75 < x + width and y <= 0.5 < y + height
            else:
                found = max(0, min(1, x + width) - 0.5) * height / 0.5 > 0.25
            assert objects[1:, 0].tolist() == [1] * int(found)
            seen.append(int(found))
    assert 0 < sum(seen) < 40


def test_records_with_boxes_follow_from_the_seed_and_go_on_where_they_were(records):
    how = dict(path_imgrec=records[0], data_shape=(3, 12, 12), batch_size=2, verbose=False, shuffle=True)

    def epochs(threads, state=None):
        with mx.io.ImageDetRecordIter(**how, **RANDOM, seed=5, preprocess_threads=threads) as it:
            if state is not None:
                it.set_state(state)
                return [b.data[0].asnumpy() for b in it]
            first = it.next()
            return it.state(), [first.data[0].asnumpy(), *(b.data[0].asnumpy() for b in it)]

    state, one = epochs(1)
    _, other = epochs(3)
    np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(epochs(1, state), one[1:])


@pytest.mark.parametrize(
    "more, error, words",
    [
        ({"min_crop_scales": 0.9, "max_crop_scales": 0.5}, mx.OpAttributeError, "A crop sampler has a least"),
        ({"num_crop_sampler": 3, "max_crop_trials": (1, 2)}, mx.OpAttributeError, "needs one value, or 3"),
        ({"mean_img": "mean.nd"}, mx.OpAttributeError, "mean_img is not supported"),
        ({"rand_crop_probe": 1}, mx.OpAttributeError, "Did you mean 'rand_crop_prob'"),
        ({"label_pad_width": 6}, ShapeError, "label_pad_width is 6, but a label has 7 numbers"),
        ({"label_width": 6}, ShapeError, "7 labels, but label_width is 6"),
    ],
)
def test_records_with_boxes_name_what_is_wrong(tmp_path, more, error, words):
    base = one_record(tmp_path, (0, 0.2, 0.2, 0.5, 0.6))
    with pytest.raises(error, match=words), mx.io.ImageDetRecordIter(**base, **more) as it:
        it.next()


def test_a_record_that_has_no_boxes_is_named(tmp_path):
    words = r"the record at byte 0: the label \[2\.0, 5\.0\]\.\.\. of 2"
    base = one_record(tmp_path, pixels=PIXELS)
    with pytest.raises(mx.FormatError, match=words), mx.io.ImageDetRecordIter(**base) as it:
        it.next()
