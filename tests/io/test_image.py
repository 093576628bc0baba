"""mx.image and mx.io.ImageRecordIter against MXNet 1.9.1's pixels; damaged images; threads that end.

MXNet's numbers are in golden/mxnet/images.npz. Its JPEG decoder may be another: pixels may differ by 1.
"""

from __future__ import annotations

import concurrent.futures.thread
import gc
import random
import sys
import threading
import time
import warnings
import weakref
import zlib
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import mxlite as mx
from mxlite.core import FormatError, OpAttributeError, ShapeError, StateError
from mxlite.io.image_codec import decode
from mxlite.io.record_iter.buffers import Buffers
from mxlite.io.record_iter.colors import from_hls, shifted_hls, to_hls
from mxlite.io.record_iter.decoder import Decoder
from mxlite.io.record_iter.options import parse_options
from mxlite.module.saved.statefile import pack_state, unpack_state
from tests.io.batches import read

GOLDEN = Path(__file__).parent.parent / "golden" / "mxnet"
REC, IDX = GOLDEN / "images.rec", GOLDEN / "images.idx"
MEASURED = dict(np.load(GOLDEN / "images.npz"))
IMAGE = MEASURED["image"]
BASE = dict(path_imgrec=REC, batch_size=2, data_shape=(3, 12, 12), verbose=False)


def files():
    """The five images of images.rec, as the bytes of their files."""
    file = mx.recordio.MXRecordIO(REC, "r")
    raw = [mx.recordio.unpack(r)[1] for r in iter(file.read, None)]
    file.close()
    return raw


def epoch(it):
    return [(b.data[0].asnumpy(), b.label[0].asnumpy(), b.pad) for b in it]


ITERATORS = {
    "plain": {},
    "resize": {"resize": 14},
    "cubic": {"resize": 14, "inter_method": 2},
    "area": {"resize": 12, "inter_method": 3},
    "pad": {"pad": 3, "fill_value": 17, "data_shape": (3, 18, 18)},
    "mean": {
        "mean_r": 10, "mean_g": 20, "mean_b": 30, "std_r": 2, "std_g": 3, "std_b": 4, "scale": 0.5,
        "mirror": True,
    },
    "gray": {"data_shape": "(1, 12, 12)"},
    "uint8": {"dtype": "uint8"},
    "int8": {"dtype": "int8", "mean_r": 100.4, "mean_g": 100, "mean_b": 120},
    "turned": {"rotate": 30, "fill_value": 9},
    "scaled": {"max_random_scale": 1.25, "min_random_scale": 1.25},
    "square": {"max_crop_size": 10, "min_crop_size": 10, "data_shape": (3, 16, 16)},
    "part": {"num_parts": 2, "part_index": 1, "batch_size": 1},
    "indexed_part": {"num_parts": 2, "part_index": 1, "batch_size": 1, "path_imgidx": IDX},
}  # fmt: skip


@pytest.mark.parametrize("name", ITERATORS)
def test_batches_of_records_are_mxnets(name):
    with mx.io.ImageRecordIter(**(BASE | ITERATORS[name])) as it:
        batches = epoch(it)
    data = np.concatenate([b[0] for b in batches])
    assert data.shape == MEASURED[name].shape
    np.testing.assert_allclose(data, MEASURED[name], atol=1, rtol=0)
    np.testing.assert_array_equal(
        np.concatenate([np.append(label, pad) for _, label, pad in batches]), MEASURED[name + "_label"]
    )


def test_an_epoch_goes_on_behind_what_filled_the_last_batch():
    seen = []
    with mx.io.ImageRecordIter(**BASE) as it:
        assert it.provide_data == [("data", (2, 3, 12, 12))] and it.provide_label == [("softmax_label", (2,))]
        for _ in range(3):
            for _, label, pad in epoch(it):
                seen += [*label.tolist(), -pad]
            it.reset()
    assert seen == MEASURED["epochs"].tolist()
    with mx.io.ImageRecordIter(**BASE, round_batch=False) as it:
        data, label, pad = epoch(it)[-1]
        assert pad == 1 and label.tolist() == [4.5, 0] and not data[1].any() and data[0].any()


@pytest.mark.parametrize("method", range(5))
def test_resized_images_are_opencvs(method):
    sizes = [(10, 7), (30, 31), (9, 30), (12, 8)]
    ours = [
        mx.image.imresize(mx.nd.array(IMAGE, dtype="uint8"), w, h, method).asnumpy().ravel() for w, h in sizes
    ]
    exact = method in (0, 1)  # the others round halves and sums in another order
    np.testing.assert_allclose(
        np.concatenate(ours), MEASURED[f"resize_{method}"], atol=0 if exact else 1, rtol=0
    )


def test_borders_are_opencvs():
    for kind in range(5):
        ours = mx.image.copyMakeBorder(
            mx.nd.array(IMAGE, dtype="uint8"), 2, 3, 4, 5, type=kind, values=(1, 2, 3)
        )
        np.testing.assert_array_equal(ours.asnumpy(), MEASURED[f"border_{kind}"])


def test_equal_seeds_vary_images_as_in_mxnet():
    for seed in range(4):
        random.seed(seed)
        np.random.seed(seed)
        image = mx.nd.array(IMAGE, dtype="uint8")
        for step in mx.image.CreateAugmenter(
            (3, 10, 11), resize=14, rand_crop=True, rand_resize=seed % 2 == 0, rand_mirror=True, mean=True,
            std=True, brightness=0.2, contrast=0.3, saturation=0.1, hue=0.2, pca_noise=0.1, rand_gray=0.4,
            inter_method=seed % 4,
        ):  # fmt: skip
            image = step(image)
        np.testing.assert_allclose(image.asnumpy(), MEASURED[f"augmented_{seed}"], atol=0.06)


def test_turned_images_are_mxnets():
    image = mx.nd.array(IMAGE.transpose(2, 0, 1))
    for k, zoom in enumerate(((False, False), (True, False), (False, True))):
        np.testing.assert_allclose(
            mx.image.imrotate(image, 33, *zoom).asnumpy(), MEASURED[f"rotated_{k}"], atol=2e-3
        )
    assert mx.image.random_rotate(image, (-5, 5)).shape == image.shape
    two = mx.nd.stack(image, image)
    np.testing.assert_allclose(
        mx.image.imrotate(two, mx.nd.array([0, 33]))[1].asnumpy(), MEASURED["rotated_0"], atol=2e-3
    )


def test_augmenters_describe_themselves_as_mxnets_do():
    steps = mx.image.CreateAugmenter(
        (3, 4, 5), rand_mirror=True, mean=np.array([1.0, 2.0, 3.0]), contrast=0.5
    )
    assert [s.dumps() for s in steps] == [
        '["centercropaug", {"size": [5, 4], "interp": 2}]',
        '["horizontalflipaug", {"p": 0.5}]',
        '["castaug", {"type": "float32"}]',
        ["colorjitteraug", ['["contrastjitteraug", {"contrast": 0.5}]']],
        '["colornormalizeaug", {"mean": [1.0, 2.0, 3.0], "std": null}]',
    ]
    with pytest.raises(ValueError, match="rand_crop=True"):
        mx.image.CreateAugmenter((3, 4, 5), rand_resize=True)


def test_images_are_decoded_in_every_form():
    jpeg, png = files()[3], files()[1]
    assert mx.image.imdecode(png).asnumpy().tolist() == IMAGE.tolist()
    assert np.array_equal(mx.image.imdecode(png, to_rgb=False).asnumpy(), IMAGE[..., ::-1])
    assert mx.image.imdecode(mx.nd.array(np.frombuffer(png, "uint8"), dtype="uint8"), flag=0).shape == (
        16,
        18,
        1,
    )
    out = mx.nd.zeros((16, 18, 3), dtype="uint8")
    assert mx.image.imdecode(bytearray(png), out=out) is out and np.array_equal(out.asnumpy(), IMAGE)
    # How the camera was held counts in ImageRecordIter alone, as in MXNet.
    assert decode(jpeg).shape == (13, 17, 3) and decode(jpeg, upright=True).shape == (17, 13, 3)
    with pytest.raises(TypeError, match="bytes, got str"):
        mx.image.imdecode("flower.jpg")


def test_damaged_images_are_refused(tmp_path):
    png, jpeg = files()[1], files()[0]
    for raw in (b"", b"GIF89a", png[:40], jpeg[:300], png[:50] + b"\0" * 30 + png[80:]):
        with pytest.raises(FormatError, match="no image that can be read"):
            mx.image.imdecode(raw)
    huge = bytearray(png)
    huge[16:24] = (2**14 + 2**13).to_bytes(4, "big") * 2
    huge[29:33] = zlib.crc32(huge[12:29]).to_bytes(4, "big")
    with (
        warnings.catch_warnings(),
        pytest.raises(FormatError, match=r"An image is too large: .*603979776 pixels"),
    ):
        warnings.simplefilter("ignore")  # Pillow's own, from a quarter of the limit on
        mx.image.imdecode(bytes(huge))
    damaged = bytearray(REC.read_bytes())
    at = damaged.index(b"PNG")
    damaged[at : at + 3] = b"XXX"
    (tmp_path / "a.rec").write_bytes(damaged)
    with (
        mx.io.ImageRecordIter(**(BASE | {"path_imgrec": tmp_path / "a.rec"})) as it,
        pytest.raises(FormatError, match=r"a\.rec, the record at byte \d{3,}.*no image"),
    ):
        it.next()
    (tmp_path / "b.rec").write_bytes(REC.read_bytes()[:-8])
    with mx.io.ImageRecordIter(**(BASE | {"path_imgrec": tmp_path / "b.rec"})) as it:
        it.next()
        it.next()
        for _ in range(2):  # it stays where it is
            with pytest.raises(FormatError, match=r"record at byte .* wants"):
                it.next()
    more = {"path_imgrec": tmp_path / "b.rec", "path_imgidx": IDX, "batch_size": 5}
    with mx.io.ImageRecordIter(**(BASE | more)) as it:
        for _ in range(2):  # the four good ones before are not left out
            with pytest.raises(FormatError, match=r"record at byte .* wants"):
                it.next()


def test_without_pillow_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    for call in (lambda: mx.image.imdecode(files()[0]), lambda: mx.io.ImageRecordIter(**BASE)):
        with pytest.raises(ImportError, match=r"pip install mxlite\[image\]"):
            call()


# -- ImageRecordIter ------------------------------------------------------------------------------


@pytest.mark.parametrize("indexed", [False, True])
def test_shuffled_epochs_differ_and_are_repeated_by_their_seed(indexed):
    more = {"path_imgidx": IDX} if indexed else {}

    def order(seed):
        with mx.io.ImageRecordIter(**(BASE | more | {"batch_size": 1}), shuffle=True, seed=seed) as it:
            epochs = []
            for _ in range(4):
                epochs.append([float(label[0]) for _, label, _ in epoch(it)])
                it.reset()
            return epochs

    first = order(1)
    assert first == order(1) != order(2)
    assert all(sorted(e) == [0.5, 1.5, 2.5, 3.5, 4.5] for e in first) and len({*map(tuple, first)}) > 1


VARIED = dict(
    rand_crop=True, rand_mirror=True, resize=14, brightness=0.2, contrast=0.2, saturation=0.2, pca_noise=0.1,
    random_h=10, random_s=10, random_l=10, max_rotate_angle=10, max_shear_ratio=0.1, max_random_contrast=0.1,
    max_random_illumination=5, max_aspect_ratio=0.1, inter_method=10,
)  # fmt: skip


def test_random_choices_depend_on_the_seed_not_on_the_threads():
    def run(**more):
        with mx.io.ImageRecordIter(**BASE, **VARIED, **more) as it:
            first = epoch(it)
            it.reset()
            return [b[0] for b in first + epoch(it)]

    def equal(a, b):
        return all(map(np.array_equal, a, b))

    one = run(preprocess_threads=1, prefetch_buffer=1)
    assert equal(one, run(preprocess_threads=4)) and not equal(one, run(seed=1))
    assert not np.array_equal(one[0], one[3])


def test_every_image_has_random_numbers_of_its_own():
    file = mx.recordio.MXRecordIO(REC, "r")
    record = file.read()
    file.close()
    decoder = Decoder(parse_options(BASE))
    drawn = [decoder.image(record, 0, (e, p))[2].random() for e in range(3) for p in range(3)]
    assert len({*drawn}) == 9 and drawn[4] == decoder.image(record, 0, (1, 1))[2].random()


def test_random_parts_have_the_shape_that_was_asked_for():
    more = dict(
        random_resized_crop=True, min_random_area=0.3, max_random_area=0.9, min_aspect_ratio=0.7,
        max_aspect_ratio=1.4,
    )  # fmt: skip
    with mx.io.ImageRecordIter(**BASE, **more) as it:
        assert all(0 <= d.min() and d.max() <= 255 and d.shape == (2, 3, 12, 12) for d, _, _ in epoch(it))


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_resumed_iterator_gives_the_batches_of_one_that_never_stopped(shuffle):
    def make():
        return mx.io.ImageRecordIter(**BASE, shuffle=shuffle, rand_crop=True)

    for steps in range(0, 9):
        with make() as first, make() as second:
            read(first, steps)
            second.set_state(unpack_state(pack_state(first.state())))
            assert read(second, 5) == read(first, 5)
    with make() as it, pytest.raises(FormatError, match="batch_size"):
        it.set_state({**it.state(), "batch_size": 3})


def test_labels_come_from_a_list_where_there_is_one(tmp_path):
    path = tmp_path / "a.lst"
    path.write_text("".join(f"{i}\t{i * 10}\t{i * 100}\tx{i}.jpg\n" for i in range(5)))
    with mx.io.ImageRecordIter(**BASE, path_imglist=path, label_width=2) as it:
        assert it.provide_label == [("softmax_label", (2, 2))]
        assert it.next().label[0].asnumpy().tolist() == [[0, 0], [10, 100]]
    path.write_text("0\t1\ta.jpg\n")
    with (
        mx.io.ImageRecordIter(**BASE, path_imglist=path) as it,
        pytest.raises(FormatError, match=r"a\.lst has no image 1"),
    ):
        it.next()
    path.write_text("0 1 a.jpg\n")
    with pytest.raises(FormatError, match="line 1: should be a number"):
        mx.io.ImageRecordIter(**BASE, path_imglist=path)


def test_the_mean_image_is_made_and_read(tmp_path):
    mean = tmp_path / "mean.nd"
    with mx.io.ImageRecordIter(**BASE, round_batch=False, mean_img=mean) as it:
        first = epoch(it)
    assert abs(sum(d[: 2 - pad].sum(axis=0) for d, _, pad in first)).max() < 1e-3
    (saved,) = mx.nd.load(mean).values()
    plain = MEASURED["plain"][:5].astype("float32").mean(axis=0)
    np.testing.assert_allclose(saved.asnumpy(), plain, atol=1)
    with mx.io.ImageRecordIter(**BASE, round_batch=False, mean_img=mean) as it:
        assert all(np.array_equal(a[0], b[0]) for a, b in zip(first, epoch(it)))
    with pytest.raises(ShapeError, match="mean image"):
        mx.io.ImageRecordIter(**(BASE | {"data_shape": (3, 10, 10)}), mean_img=mean)


@pytest.mark.parametrize(
    "more, error, words",
    [
        ({"rand_corp": True}, OpAttributeError, "no parameter 'rand_corp'.*Did you mean 'rand_crop'"),
        ({"aug_seq": "mine"}, OpAttributeError, "aug_seq.* is not supported"),
        ({"shuffle_chunk_size": 64}, OpAttributeError, "shuffle=True shuffles all"),
        ({"rotate_list": "10,20"}, OpAttributeError, "rotate_list is not supported"),
        ({"data_shape": (2, 4, 4)}, OpAttributeError, "1, 3 or 4 channels"),
        ({"batch_size": 0}, OpAttributeError, r"batch_size must be in \[1,"),
        ({"preprocess_threads": 999}, OpAttributeError, r"preprocess_threads must be in \[1, 64\]"),
        ({"num_parts": 2, "part_index": 2}, OpAttributeError, "part_index"),
        ({"max_crop_size": 10}, OpAttributeError, "go together"),
        ({"random_resized_crop": True, "rand_crop": True}, OpAttributeError, "goes without rand_crop"),
        ({"min_random_area": 0.5}, OpAttributeError, "set it to True"),
        ({"dtype": "float64"}, OpAttributeError, "dtype"),
        ({"std_r": 0}, ShapeError, "standard deviation of 0"),
        ({"num_parts": 9, "part_index": 8, "path_imgidx": IDX}, FormatError, "none in part 8 of 9"),
        ({"path_imgrec": "nowhere.rec"}, FileNotFoundError, "nowhere"),
    ],
)
def test_options_that_cannot_be_are_named(more, error, words):
    with pytest.raises(error, match=words):
        mx.io.ImageRecordIter(**(BASE | more))


def test_images_and_labels_that_do_not_fit_are_named():
    for more, words in (({"label_width": 2}, "byte 0: 1 labels, but label_width is 2"),
                        ({"data_shape": (4, 4, 4)}, "byte 0: it has 3 channels")):  # fmt: skip
        with mx.io.ImageRecordIter(**(BASE | more)) as it, pytest.raises(ShapeError, match=words):
            it.next()
    with mx.io.ImageRecordIter(**(BASE | {"batch_size": 11})) as it, pytest.raises(ShapeError, match="fewer"):
        it.next()


def no_threads_are_left(seconds=20.0):
    """Whether the threads of all iterators end within that time."""
    until = time.monotonic() + seconds
    while any(t.name.startswith(("mxlite-records", "mxlite-decode")) for t in threading.enumerate()):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def test_threads_end_with_the_iterator():
    it = mx.io.ImageRecordIter(**BASE)
    it.close()
    it.close()
    assert no_threads_are_left()
    with pytest.raises(StateError, match="closed"):
        it.next()
    it = mx.io.ImageRecordIter(**BASE)
    it.next()
    seen = weakref.ref(it)
    del it
    gc.collect()
    assert seen() is None
    assert no_threads_are_left()


def test_dropping_an_iterator_waits_for_nothing(monkeypatch):
    """The garbage collector drops it at any time, also while this thread submits work to another pool."""
    fill, go_on = Decoder.fill, threading.Event()

    def fill_later(*given):
        go_on.wait(20)
        fill(*given)

    monkeypatch.setattr(Decoder, "fill", fill_later)
    held = [mx.io.ImageRecordIter(**BASE)]
    seen = weakref.ref(held[0])

    def drop():
        with concurrent.futures.thread._global_shutdown_lock:
            held.clear()
            gc.collect()

    dropping = threading.Thread(target=drop, daemon=True)
    dropping.start()
    dropping.join(10)
    stuck = dropping.is_alive()
    go_on.set()
    assert not stuck and seen() is None
    assert no_threads_are_left()


def test_a_batch_that_is_kept_is_not_written_again():
    with mx.io.ImageRecordIter(**BASE, prefetch_buffer=1) as it:
        kept = [it.next().data[0][1:], it.next().data[0]]
        before = [a.asnumpy() for a in kept]
        for _ in range(5):
            it.reset()
            epoch(it)
        assert all(map(np.array_equal, before, [a.asnumpy() for a in kept]))


def test_memory_of_batches_comes_back_when_nobody_looks_any_more():
    buffers = Buffers((4, 5), "float32", 2)
    array = buffers.take()
    array[:] = 1
    address, part = array.ctypes.data, array[1:].reshape(-1)
    del array
    assert buffers.take().ctypes.data != address  # the part still looks
    assert (part == 1).all()
    del part
    assert buffers.take().ctypes.data == address


def test_hue_lightness_and_saturation_come_back():
    levels = np.arange(0, 256, 15, dtype="uint8")
    image = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(-1, 18, 3)
    hls = to_hls(image)
    assert np.abs(from_hls(hls).astype(int) - image).max() <= 5  # hue is in steps of two degrees
    assert to_hls(np.uint8([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [9, 9, 9]]])).tolist() == [
        [[0, 128, 255], [60, 128, 255], [120, 128, 255], [0, 9, 0]]
    ]
    assert shifted_hls(image, 0, 0, -255).std(axis=2).max() == 0  # gray
    assert (shifted_hls(image, 0, 255, 0) == 255).all()


# -- ImageIter ------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    for i, raw in enumerate(files()):
        (tmp_path / f"{i}.img").write_bytes(raw)
    (tmp_path / "all.lst").write_text("".join(f"{i}\t{i + 0.5}\t{i}.img\n" for i in range(5)))
    return tmp_path


@pytest.mark.parametrize("source", ["list", "file", "records", "index"])
def test_image_iter_reads_every_source(folder, source):
    given = {
        "list": {"imglist": [[i + 0.5, f"{i}.img"] for i in range(5)], "path_root": folder},
        "file": {"path_imglist": folder / "all.lst", "path_root": folder},
        "records": {"path_imgrec": REC},
        "index": {"path_imgrec": REC, "path_imgidx": IDX},
    }[source]
    it = mx.image.ImageIter(2, (3, 10, 10), **given)
    for _ in range(2):
        batches = epoch(it)
        assert [(label.tolist(), pad) for _, label, pad in batches] == [
            ([0.5, 1.5], 0), ([2.5, 3.5], 0), ([4.5, 0.5], 1)
        ]  # fmt: skip
        wanted = mx.image.center_crop(mx.nd.array(IMAGE, dtype="uint8"), (10, 10))[0].asnumpy()
        np.testing.assert_array_equal(batches[0][0][1], wanted.transpose(2, 0, 1))
        it.reset()


@pytest.mark.parametrize(
    "handle, labels",
    [
        ("pad", [0, 1, 2, 100, 3, 4, 0, 101, -1] * 3),
        ("discard", [0, 1, 2, 100, -1] * 3),
        ("roll_over", [0, 1, 2, 100, -1, 3, 4, 0, 101, 1, 2, 3, 100, -1, 4, 0, 1, 102, 2, 3, 4, 100, -1]),
    ],
)
def test_the_last_batch_is_handled_as_in_mxnet(folder, handle, labels):
    it = mx.image.ImageIter(
        3, (3, 8, 8), imglist=[[float(i), f"{i}.img"] for i in range(5)], path_root=folder,
        last_batch_handle=handle,
    )  # fmt: skip
    seen = []
    for _ in range(3):
        for _, label, pad in epoch(it):
            seen += [*label.tolist(), 100 + pad]
        seen.append(-1)
        it.reset()
    assert seen == labels


def test_stages_of_image_iter_can_be_replaced(folder):
    class Gray(mx.image.ImageIter):
        def augmentation_transform(self, data):
            return super().augmentation_transform(data) * 0

    it = Gray(1, (3, 8, 8), path_imgrec=REC, aug_list=[mx.image.CenterCropAug((8, 8)), mx.image.CastAug()])
    assert not it.next().data[0].asnumpy().any()


@pytest.mark.parametrize(
    "more, error, words",
    [
        ({}, ValueError, "needs images"),
        ({"path_imgrec": REC, "shuffle": True}, ValueError, "give path_imgidx"),
        ({"path_imgrec": REC, "last_batch_handle": "padd"}, ValueError, "Did you mean 'pad'"),
        ({"path_imgrec": REC, "num_parts": 2, "part_index": 2}, ValueError, "part_index"),
        ({"imglist": [[1.0]]}, ValueError, "Entry 0 of imglist"),
        ({"path_imgrec": REC, "path_imgidx": IDX, "num_parts": 9}, ShapeError, "no images"),
    ],
)
def test_image_iter_names_what_is_wrong(more, error, words):
    with pytest.raises(error, match=words):
        mx.image.ImageIter(1, (3, 8, 8), **more)
    with pytest.raises(ShapeError, match=r"\(3, height, width\)"):
        mx.image.ImageIter(1, (1, 8, 8), path_imgrec=REC)


def test_a_broken_image_is_named(folder):
    (folder / "1.img").write_bytes(b"nothing")
    it = mx.image.ImageIter(2, (3, 8, 8), path_imglist=folder / "all.lst", path_root=folder)
    with pytest.raises(FormatError, match=r"The image '1\.img': 7 bytes"):
        it.next()


def test_a_module_trains_on_records():
    net = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=4, name="conv")
    net = mx.sym.FullyConnected(mx.sym.Activation(net, act_type="relu"), num_hidden=5, name="fc")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
    with mx.io.ImageRecordIter(**BASE, scale=1 / 255, shuffle=True, rand_mirror=True) as it:
        module.fit(it, num_epoch=2, optimizer_params={"learning_rate": 0.1})
        it.reset()
        assert module.predict(mx.io.ResizeIter(it, 2)).shape == (4, 5)
    names = ("mxlite.image", "mxlite.recordio", "mxlite.initializer", "mxlite.visualization")
    assert all(import_module(n) is getattr(mx, n.split(".")[1]) for n in names)
