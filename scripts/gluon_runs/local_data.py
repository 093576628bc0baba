"""Data for the programs, made up and small, in the files that they read; the same at every run."""

from __future__ import annotations

import gzip
import struct
import wave
from itertools import pairwise
from pathlib import Path

import numpy as np

_WORDS = "the a dog cat man woman child runs sits eats plays at with near red small old ball".split()


def digits(folder: Path, root: str = "data", packed: bool = True) -> None:
    """400 images of 10 classes for training, 100 for validation, as MNIST's files."""
    rng = np.random.default_rng(1)
    means = rng.integers(0, 256, (10, 28, 28)) * (rng.random((10, 28, 28)) < 0.2)
    (folder / root).mkdir(parents=True, exist_ok=True)
    for name, count in (("train", 400), ("t10k", 100)):
        labels = rng.integers(0, 10, count)
        images = np.clip(means[labels] + rng.normal(0, 20, (count, 28, 28)), 0, 255)
        for kind, head, body in (
            ("images-idx3", struct.pack(">4i", 2051, count, 28, 28), images),
            ("labels-idx1", struct.pack(">2i", 2049, count), labels),
        ):
            data = head + body.astype("u1").tobytes()
            file = folder / root / f"{name}-{kind}-ubyte"
            if packed:
                file.with_name(file.name + ".gz").write_bytes(gzip.compress(data))
            else:
                file.write_bytes(data)


def clothes(folder: Path) -> None:
    """The same, where Fashion-MNIST lies by default."""
    digits(folder, ".mxnet/datasets/fashion-mnist")


def plain_digits(folder: Path) -> None:
    """The same, not compressed."""
    digits(folder, packed=False)


def colours(folder: Path, root: str = ".mxnet/datasets/cifar10") -> None:
    """6 files of 8 coloured images, as CIFAR-10's."""
    rng = np.random.default_rng(2)
    (folder / root).mkdir(parents=True)
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        rows = rng.integers(0, 256, (8, 3073))
        rows[:, 0] %= 10
        (folder / root / name).write_bytes(rows.astype("u1").tobytes())


def _sentence(rng: np.random.Generator) -> list[str]:
    return [str(word) for word in rng.choice(_WORDS, rng.integers(4, 9))]


def text(folder: Path) -> None:
    """Three files of sentences, as WikiText-2's."""
    rng = np.random.default_rng(3)
    (folder / "data").mkdir()
    for name, count in (("train", 120), ("valid", 60), ("test", 60)):
        lines = "".join(f" {' '.join(_sentence(rng))} \n" for _ in range(count))
        (folder / "data" / f"wiki.{name}.tokens").write_text(lines)


def pairs(folder: Path) -> None:
    """Pairs of sentences with trees and grades, as the SICK set's after its preparation, and word vectors."""
    rng = np.random.default_rng(4)
    for name, count in (("train", 12), ("dev", 5), ("test", 5)):
        place = folder / "data/sick" / name
        place.mkdir(parents=True)
        for side in "ab":
            sentences = [_sentence(rng) for _ in range(count)]
            # Word i hangs on a word before it; the first one is the root.
            trees = [[0, *(int(rng.integers(1, i + 1)) for i in range(1, len(s)))] for s in sentences]
            (place / f"{side}.toks").write_text("".join(" ".join(s) + "\n" for s in sentences))
            (place / f"{side}.parents").write_text("".join(" ".join(map(str, t)) + "\n" for t in trees))
        (place / "sim.txt").write_text("".join(f"{g:.1f}\n" for g in rng.uniform(1, 5, count)))
    vectors = folder / "data/glove/glove.840B.300d.txt"
    vectors.parent.mkdir()
    rows = [f"{word} " + " ".join(f"{x:.4f}" for x in rng.normal(0, 0.3, 12)) + "\n" for word in _WORDS]
    vectors.write_text("".join(rows))


def houses(folder: Path) -> None:
    """Tables of houses with numbers, words and gaps, and prices for the first of them."""
    rng = np.random.default_rng(5)
    for name, count in (("train", 120), ("test", 30)):
        rows = ["Id,MSSubClass,Area,Street,Quality,SaleCondition" + ",SalePrice" * (name == "train")]
        for i in range(count):
            area = rng.integers(50, 300)
            cells = [
                i,
                rng.integers(20, 90),
                area if i % 9 else "",
                rng.choice(["Wet", "Dry"]),
            ]
            cells += [rng.integers(1, 10), rng.choice(["Normal", "Partial"])]
            cells += [1000 * area + 500] * (name == "train")
            rows.append(",".join(map(str, cells)))
        (folder / f"{name}.csv").write_text("\n".join(rows) + "\n")


def photographs(folder: Path) -> None:
    """Pictures for enlarging, where the Berkeley segmentation set lies by default."""
    for part, count in (("train", 4), ("test", 2)):
        place = folder / ".mxnet/datasets/BSDS500/images" / part
        place.mkdir(parents=True)
        for i in range(count):
            _picture(place / f"{i}.png", 300, i)


def paintings(folder: Path) -> None:
    """Pictures and styles, and the weights of a network that compares them: VGG-16 with no trained values."""
    import mxlite as mx

    for place, count in (("dataset/kind", 4), ("images/styles", 2), ("models", 0)):
        (folder / place).mkdir(parents=True)
        for i in range(count):
            _picture(folder / place / f"{i}.png", 80, 20 + i)
    rng, arrays = np.random.default_rng(7), {}
    sizes = (3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)
    for i, (inside, out) in enumerate(pairwise(sizes)):
        weight = rng.normal(0, (2 / (9 * inside)) ** 0.5, (out, inside, 3, 3))
        arrays |= {f"conv{i}_weight": weight, f"conv{i}_bias": np.zeros(out)}
    mx.nd.save(str(folder / "models/mxvgg.params"), {n: mx.nd.array(a) for n, a in arrays.items()})


def birds(folder: Path) -> None:
    """Pictures of birds of 110 kinds with their boxes, as in the CUB-200 set; a kind has 2 files."""
    place = folder / "data/CUB_200_2011"
    (place / "images").mkdir(parents=True)
    for i in range(4):
        _picture(place / f"images/{i}.png", 260, 10 + i)
    kinds = [kind for kind in range(1, 111) for _ in range(2)]
    names = [f"{i + 1} {i % 4}.png\n" for i in range(len(kinds))]
    (place / "images.txt").write_text("".join(names))
    (place / "image_class_labels.txt").write_text("".join(f"{i + 1} {k}\n" for i, k in enumerate(kinds)))
    (place / "bounding_boxes.txt").write_text("".join(f"{i + 1} 5 5 240 230\n" for i in range(len(kinds))))


def sounds(folder: Path) -> None:
    """24 tones of 3 classes as WAV files, with a table of their names."""
    rng = np.random.default_rng(6)
    (folder / "Train").mkdir()
    rows = ["ID,Class"]
    for i in range(24):
        tone = np.sin(np.arange(8192) * (0.05 + 0.1 * (i % 3))) + rng.normal(0, 0.1, 8192)
        with wave.open(str(folder / f"Train/{i}.wav"), "wb") as out:
            out.setnchannels(1)
            out.setsampwidth(2)
            out.setframerate(22050)
            out.writeframes((tone * 12000).astype("<i2").tobytes())
        rows.append(f"{i},tone{i % 3}")
    (folder / "train.csv").write_text("\n".join(rows) + "\n")


def _picture(file: Path, side: int, seed: int) -> None:
    from PIL import Image

    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (12, 12, 3)).astype("u1"))
    coarse.resize((side, side), Image.BICUBIC).save(file)
