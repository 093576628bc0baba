"""The tests of NDArray and autograd once more, with `mx.gpu(0)` as the default device, on emulated GPUs."""

from __future__ import annotations

import inspect

import pytest

import mxlite as mx
from mxlite.backends import backend_of
from mxlite.engine import use_engine
from tests.emulators.emulated_device import compiler
from tests.emulators.emulated_driver import emulated_gpus
from tests.ndarray import test_autograd, test_ndarray

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")

OTHERWISE = {
    # They name the CPU, look at its memory with numpy, or count on what threads and kernels it has.
    "a_device_without_a_backend_and_an_unknown_dtype_are_refused",
    "attributes",
    "backward_frees_arrays_as_it_goes",
    "casts_and_copies_are_recorded",
    "checkpoints_may_be_nested_and_differentiated_twice",  # bits that only some seeds give
    "copies_run_on_the_workers_for_copies",
    "copyto_converts_the_dtype_and_wants_the_shape",
    "get_symbol_is_what_was_recorded",
    "many_threads_may_call_at_once",
    "memory_is_freed_with_the_arrays_or_by_backward",
    "memory_is_given_back",
    "numpy_shares_memory_both_ways",
    "reshape_and_detach_share_and_copies_do_not",
    "tape_and_bound_program_agree",
    "torch_shares_memory_both_ways",
    "what_looks_waits_and_gives_the_value",
    # Long, or with many kernels to compile, and the device makes no difference.
    "batch_norm_moves_its_averages_in_backward",
    "checkpoint_gives_the_same_bits_and_keeps_less",
    "functions_of_two_take_arrays_and_numbers_in_any_mixture",
    "gradient_penalty_against_pytorch",
    "inputs_read_for_their_shape_alone_are_declared",
    "long_chains_do_not_recurse",
    "many_different_scalars_do_not_pile_up",
    "operators_with_parameters_are_methods_too",
    "second_derivatives_of_layers_against_pytorch",
}

gate = test_ndarray.gate

for _module in (test_ndarray, test_autograd):
    for _name, _test in inspect.getmembers(_module, inspect.isfunction):
        if _name.startswith("test_") and _name.removeprefix("test_") not in OTHERWISE:
            globals()[_name] = _test


@pytest.fixture(autouse=True)
def engine():
    with emulated_gpus(), mx.gpu(0), use_engine("threaded") as engine:
        yield engine


def test_a_small_imperative_call_without_a_kernel_of_the_device_runs_one_of_the_host(monkeypatch):
    backend = backend_of(mx.gpu(0))
    monkeypatch.setattr(type(backend), "tuned", lambda self, request: None)
    x = mx.nd.array([[-1.0, 2.0, 0.5]])
    weight = mx.nd.array([[1.0, 2.0, 4.0]])
    assert mx.nd.gelu(mx.nd.relu(x)).asnumpy()[0, 1] == pytest.approx(1.9545, abs=1e-4)
    assert mx.nd.FullyConnected(x, weight, no_bias=True, num_hidden=1).asnumpy().tolist() == [[5.0]]
