"""Data sets of images from local files, and transforms."""

import gzip
import random
import struct

import numpy as np
import pytest

import mxlite as mx
from mxlite.gluon.data import vision
from mxlite.gluon.data.vision import transforms

RNG = np.random.default_rng(7)
IMAGE = RNG.integers(0, 256, (12, 10, 3)).astype(np.uint8)


def idx(path, values):
    head = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    with gzip.open(path, "wb") as file:
        file.write(head + values.tobytes())


def test_mnist_is_read_from_its_files_and_never_downloaded(tmp_path):
    images = RNG.integers(0, 256, (5, 28, 28)).astype(np.uint8)
    labels = np.arange(5, dtype=np.uint8)
    for part in ("train", "t10k"):
        idx(tmp_path / f"{part}-images-idx3-ubyte.gz", images)
        idx(tmp_path / f"{part}-labels-idx1-ubyte.gz", labels)
    found = vision.MNIST(str(tmp_path), train=False)
    x, y = found[3]
    assert (
        len(found) == 5 and x.shape == (28, 28, 1) and x.dtype == np.uint8 and y == 3 and y.dtype == np.int32
    )
    assert np.array_equal(x.asnumpy()[..., 0], images[3])
    assert vision.FashionMNIST(str(tmp_path), transform=lambda a, b: b)[2] == 2
    with pytest.raises(FileNotFoundError, match=r"mxlite downloads nothing\. Put the files of the data set"):
        vision.MNIST(str(tmp_path / "none"))


def test_cifar_is_read_from_its_binary_form(tmp_path):
    rows = RNG.integers(0, 256, (4, 3073)).astype(np.uint8)
    rows.tofile(tmp_path / "test_batch.bin")
    found = vision.CIFAR10(str(tmp_path), train=False)
    x, y = found[1]
    assert x.shape == (32, 32, 3) and y == rows[1, 0]
    assert np.array_equal(x.asnumpy().transpose(2, 0, 1).ravel(), rows[1, 1:])
    more = RNG.integers(0, 256, (4, 3074)).astype(np.uint8)
    more.tofile(tmp_path / "test.bin")
    assert vision.CIFAR100(str(tmp_path), True, False)[2][1] == more[2, 1]
    assert vision.CIFAR100(str(tmp_path), False, False)[2][1] == more[2, 0]
    rows.ravel()[:-1].tofile(tmp_path / "test_batch.bin")
    with pytest.raises(mx.FormatError, match="12291 bytes, which are no whole samples of 3073"):
        vision.CIFAR10(str(tmp_path), train=False)


def test_images_are_read_from_folders_and_records(tmp_path):
    pytest.importorskip("PIL")
    from PIL import Image

    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.fromarray(IMAGE).save(tmp_path / name / "1.png")
    (tmp_path / "dog" / "note.txt").write_text("")
    with pytest.warns(UserWarning, match=r"note\.txt is no image"):
        found = vision.ImageFolderDataset(str(tmp_path))
    x, y = found[1]
    assert found.synsets == ["cat", "dog"] and y == 1 and np.array_equal(x.asnumpy(), IMAGE)
    writer = mx.recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), str(tmp_path / "a.rec"), "w")
    writer.write_idx(0, mx.recordio.pack_img(mx.recordio.IRHeader(0, 5.0, 0, 0), IMAGE, 3, ".png"))
    writer.close()
    x, y = vision.ImageRecordDataset(str(tmp_path / "a.rec"))[0]
    assert x.shape == IMAGE.shape and y == 5


def test_tensors_are_normalized():
    x = mx.nd.array(IMAGE, dtype="uint8")
    steps = transforms.Compose(
        [transforms.ToTensor(), transforms.Normalize((0.1, 0.2, 0.3), (0.5, 0.6, 0.7))]
    )
    expected = (IMAGE.transpose(2, 0, 1) / 255 - np.reshape([0.1, 0.2, 0.3], (3, 1, 1))) / np.reshape(
        [0.5, 0.6, 0.7], (3, 1, 1)
    )
    np.testing.assert_allclose(steps(x).asnumpy(), expected, rtol=1e-5, atol=1e-6)
    assert transforms.Cast("float16")(x).dtype == np.float16


@pytest.mark.parametrize(
    ("transform", "shape"),
    [
        (transforms.Resize(8), (8, 8, 3)),
        (transforms.Resize((6, 9)), (9, 6, 3)),
        (transforms.Resize(5, keep_ratio=True), (6, 5, 3)),
        (transforms.CenterCrop(4), (4, 4, 3)),
        (transforms.CropResize(1, 2, 4, 6), (6, 4, 3)),
        (transforms.CropResize(1, 2, 4, 6, (5, 7)), (7, 5, 3)),
        (transforms.RandomCrop(8, pad=2), (8, 8, 3)),
        (transforms.RandomResizedCrop((6, 7)), (7, 6, 3)),
        (transforms.RandomBrightness(0.3), (12, 10, 3)),
        (transforms.RandomContrast(0.3), (12, 10, 3)),
        (transforms.RandomSaturation(0.3), (12, 10, 3)),
        (transforms.RandomHue(0.3), (12, 10, 3)),
        (transforms.RandomColorJitter(0.3, 0.3, 0.3, 0.3), (12, 10, 3)),
        (transforms.RandomLighting(0.1), (12, 10, 3)),
        (transforms.RandomApply(transforms.CenterCrop(4), p=1), (4, 4, 3)),
    ],
)
def test_a_transform_gives_an_image_of_its_shape_and_type(transform, shape):
    random.seed(0)
    out = transform(mx.nd.array(IMAGE, dtype="uint8"))
    assert out.shape == shape and out.dtype == np.uint8


def test_flips_and_turns():
    x = mx.nd.array(IMAGE, dtype="uint8")
    random.seed(1)
    for transform, axis in ((transforms.RandomFlipLeftRight(), 1), (transforms.RandomFlipTopBottom(), 0)):
        seen = {transform(x).asnumpy().tobytes() for _ in range(20)}
        assert seen == {IMAGE.tobytes(), np.ascontiguousarray(np.flip(IMAGE, axis)).tobytes()}
    square = mx.nd.array(RNG.random((3, 8, 8)))
    np.testing.assert_allclose(transforms.Rotate(0)(square).asnumpy(), square.asnumpy(), atol=1e-5)
    assert transforms.RandomRotation((-10, 10))(square).shape == (3, 8, 8)


def test_sizes_are_changed_of_batches_as_of_images_and_checked():
    batch = mx.nd.array(RNG.integers(0, 256, (2, 12, 10, 3)), dtype="uint8")
    for transform in (
        transforms.Resize((6, 9)),
        transforms.CropResize(1, 2, 4, 6),
        transforms.CropResize(1, 2, 4, 6, 5),
    ):
        each = [transform(image).asnumpy() for image in batch]
        assert (transform(batch).asnumpy() == each).all()
    for transform in (
        transforms.Resize(-3, keep_ratio=True),
        transforms.Resize((4, 4, 4)),
        transforms.CropResize(0, 0, 5, 5, 0),
    ):
        with pytest.raises(mx.RangeError, match=r"number or \(width, height\), each at least 1, got"):
            transform(batch)
    with pytest.raises(mx.RangeError, match=r"rotate_with_proba must be 0 to 1, got 1\.1"):
        transforms.RandomRotation((-10, 10), rotate_with_proba=1.1)
