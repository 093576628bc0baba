"""The programs that gluon_programs.py runs, with arguments that make them short."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import local_data as data

_EXAMPLES = "example/gluon"
_COURSE = "docs/python_docs/python/tutorials/getting-started/crash-course"
_PAGES = "docs/python_docs/python/tutorials/packages/gluon"


@dataclass(frozen=True)
class Program:
    """A file of MXNet's, relative to its checkout, and how to run it.

    arguments: its command line.  files: writes its data into a folder.  steps: backward passes after which
    it is stopped, 0 if it is to end by itself. Few are asked for where rounding grows from step to step:
    under Adam, whose first steps follow the signs of gradients that may be near 0, and behind many batch
    normalizations of small batches.  after: a program in whose folder it runs.
    parts: why losses part from the wheel's, "" if they must not.
    """

    file: str
    arguments: str = ""
    files: Callable[[Path], None] | None = None
    steps: int = 0
    after: str = ""
    parts: str = ""


PROGRAMS = (
    Program(f"{_EXAMPLES}/mnist/mnist.py", "--epochs 2 --batch-size 50", data.digits),
    Program(
        f"{_EXAMPLES}/image_classification.py",
        "--model resnet18_v1 --use_thumbnail --dataset mnist --mode hybrid --lr 0.001 --batch-size 50",
        data.plain_digits,
        steps=2,
    ),
    Program(
        f"{_EXAMPLES}/word_language_model/train.py",
        "--emsize 24 --nhid 24 --dropout 0 --bptt 7 --batch_size 5 --epochs 2 --lr 1 --hybridize",
        data.text,
    ),
    Program(f"{_EXAMPLES}/lstm_crf/lstm_crf.py", steps=20),
    Program(f"{_EXAMPLES}/actor_critic/actor_critic.py", steps=12),
    Program(
        f"{_EXAMPLES}/dc_gan/dcgan.py",
        "--dataset mnist --nz 20 --ngf 8 --ndf 8 --batch-size 40 --nepoch 1",
        data.digits,
        steps=4,
    ),
    Program(
        f"{_EXAMPLES}/super_resolution/super_resolution.py",
        "--batch_size 2 --test_batch_size 2 --epochs 2",
        data.photographs,
    ),
    Program(f"{_EXAMPLES}/house_prices/kaggle_k_fold_cross_validation.py", "", data.houses, steps=600),
    Program(f"{_EXAMPLES}/tree_lstm/main.py", "--epochs 2 --batch_size 4", data.pairs),
    Program(
        f"{_EXAMPLES}/sn_gan/train.py",
        "--batch-size 8 --epochs 1 --z-dim 20",
        data.colours,
        steps=4,
        parts="the wheel's gradient reads what set_data wrote after forward",
    ),
    Program(
        f"{_EXAMPLES}/embedding_learning/train.py",
        "--model resnet18_v2 --optimizer sgd --embed-dim 16 --batch-size 6 --batch-k 2",
        data.birds,
        steps=2,
    ),
    Program(
        f"{_EXAMPLES}/style_transfer/main.py",
        "train --dataset dataset --style-folder images/styles --save-model-dir . --cuda 0 --epochs 1 "
        "--batch-size 2 --ngf 8 --image-size 48 --style-size 48",
        data.paintings,
        steps=2,
    ),
    Program(f"{_EXAMPLES}/audio/urban_sounds/train.py", "--epochs 6", data.sounds),
    Program(f"{_COURSE}/1-ndarray.md"),
    Program(f"{_COURSE}/2-nn.md"),
    Program(f"{_COURSE}/3-autograd.md"),
    Program(f"{_COURSE}/4-train.md", files=data.clothes),
    Program(f"{_COURSE}/5-predict.md", after="4-train.md"),
    Program(f"{_COURSE}/6-use_gpus.md", after="4-train.md"),
    Program("docs/python_docs/python/tutorials/getting-started/logistic_regression_explained.md"),
    Program(f"{_PAGES}/training/trainer.md"),
    Program(f"{_PAGES}/blocks/custom-layer.md"),
    Program(f"{_PAGES}/blocks/naming.md"),
    Program(f"{_PAGES}/blocks/nn.md"),
    Program(f"{_PAGES}/blocks/parameters.md"),
    Program(f"{_PAGES}/loss/loss.md"),
)
