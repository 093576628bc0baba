"""Programs on sparse arrays give what MXNet 1.9.1 gave; see `mxnet_sparse.py` for the golden file."""

import json
from functools import partial
from pathlib import Path

import pytest

import mxlite as mx
from tests.oracles.mxnet import mxnet_sparse
from tests.oracles.mxnet.mxnet_agree import agree

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "mxnet" / "sparse.json").read_text())


@pytest.mark.parametrize("program", mxnet_sparse.PROGRAMS, ids=lambda p: p.__name__)
def test_a_program_gives_the_numbers_of_mxnet(program):
    mine, theirs = mxnet_sparse.run(mx, program), GOLDEN[program.__name__]
    assert len(mine) == len(theirs)
    for one, other in zip(mine, theirs):
        agree(one, other, nan_ok=True)


TRAINED = ("linear_classification", "factorization_machine", "matrix_factorization", "wide_and_deep")


@pytest.mark.parametrize("name", TRAINED)
def test_a_program_whose_update_is_in_the_step_gives_the_numbers_of_mxnet(name, monkeypatch):
    made, make = [], partial(mx.mod.Module, fused_update=True)

    def module(*args, **options):
        made.append(make(*args, **options))
        return made[-1]

    monkeypatch.setattr(mx.mod, "Module", module)
    agree(mxnet_sparse.run(mx, getattr(mxnet_sparse, name)), GOLDEN[name], nan_ok=True)
    assert all(m.is_fused and m.planned_bytes == m.measured_bytes for m in made)
