"""Ranks that train together give the bits of one process, in the bytes that were planned."""

from __future__ import annotations

import pytest

from tests.emulators.emulated_device import compiler

from .programs import shards as shards_program
from .ranks import needs_mpi, run

pytestmark = needs_mpi
needs_compiler = pytest.mark.skipif(compiler is None, reason="g++ is not installed")


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_sums_are_those_in_the_order_of_the_ranks(ranks):
    assert run("sums.py", ranks, str(ranks)) == "sums agree\n"


@pytest.mark.parametrize("ranks, cases", [(2, []), (3, ["momentum", "states that ranks share", "rows"])])
def test_training_gives_the_bits_of_one_process(ranks, cases):
    assert run("training.py", ranks, str(ranks), "cpu", *cases) == "training agrees\n"


@needs_compiler
@pytest.mark.parametrize("ranks, cases", [(2, ["states that ranks share"]), (4, ["rows"])])
def test_training_on_gpus_gives_the_bits_of_one_process(ranks, cases):
    """Ranks share nothing, the optimizer's states, or the weights; in visible gradients, and in buckets."""
    assert run("training.py", ranks, str(ranks), "emulated", *cases) == "training agrees\n"


def test_stores_and_trainers_that_ranks_share(tmp_path):
    assert run("stores.py", 3, "3", str(tmp_path)) == "stores agree\n"


@pytest.mark.parametrize("device", ["cpu", pytest.param("emulated", marks=needs_compiler)])
def test_sync_batch_norm_has_the_statistics_of_all_ranks(device):
    assert run("norms.py", 2, "2", device) == "norms agree\n"


def test_ranks_go_on_where_they_stopped(tmp_path):
    assert run("resuming.py", 2, str(tmp_path)) == "resumed\n"


def test_a_checkpoint_of_ranks_is_read_on_another_number_of_ranks(tmp_path):
    assert run("shards.py", 3, str(tmp_path), "write") == "agreed\n"
    assert run("shards.py", 2, str(tmp_path), "read") == "agreed\n"
    shards_program.read(str(tmp_path))  # one process
