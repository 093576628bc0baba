"""Programs for MXNet's older interfaces, and networks made of cells, give what MXNet 1.9.1 gave.

See `mxnet_interfaces.py` and `rnn_cells.py` for how the golden files were written.
"""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

import mxlite as mx
from tests.oracles.mxnet import mxnet_interfaces, rnn_cells
from tests.oracles.mxnet.mxnet_agree import agree

GOLDEN = Path(__file__).parents[2] / "golden" / "mxnet"
INTERFACES = json.loads((GOLDEN / "interfaces.json").read_text())
CELLS = json.loads((GOLDEN / "rnn-cells.json").read_text())


@pytest.mark.parametrize("program", mxnet_interfaces.PROGRAMS, ids=lambda p: p.__name__)
def test_an_old_program_gives_the_numbers_of_mxnet(program):
    agree(mxnet_interfaces.run(mx, program), INTERFACES[program.__name__])


def test_feed_forward_trains_buckets():
    found = mxnet_interfaces.run(mx, mxnet_interfaces.feed_forward_with_buckets)
    assert len(found) > 5 and np.isfinite(found).all()


@pytest.fixture(scope="module")
def nets():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return rnn_cells.cases(mx)


@pytest.mark.parametrize("name", sorted(CELLS["json"]))
def test_cells_make_the_graphs_of_mxnet(nets, name):
    assert nets[name].tojson() == CELLS["json"][name]


@pytest.mark.parametrize("name", sorted(CELLS["numbers"]))
def test_cells_compute_what_those_of_mxnet_do(nets, name):
    agree(rnn_cells.numbers(mx, nets[name], name in rnn_cells.TIME_FIRST), CELLS["numbers"][name])


def test_weights_are_packed_and_unpacked_as_in_mxnet():
    assert rnn_cells.weights(mx) == CELLS["weights"]


def test_parameters_of_cells_start_as_in_mxnet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert rnn_cells.first_values(mx) == CELLS["first values"]
