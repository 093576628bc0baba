"""Gradients of whole numbers, of constants and of sparse arrays are MXNet 1.9.1's; see `mxnet_tape.py`."""

import json
from pathlib import Path

import pytest

import mxlite as mx
from tests.oracles.mxnet import mxnet_tape
from tests.oracles.mxnet.mxnet_agree import agree

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "mxnet" / "tape.json").read_text())


@pytest.mark.parametrize("program", mxnet_tape.PROGRAMS, ids=lambda p: p.__name__)
def test_a_program_gives_the_gradients_of_mxnet(program):
    mine, theirs = mxnet_tape.run(mx, program), GOLDEN[program.__name__]
    assert len(mine) == len(theirs)
    for one, other in zip(mine, theirs):
        agree(one, other, rel=2e-3)
