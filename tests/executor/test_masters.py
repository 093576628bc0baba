"""float32 copies of 16-bit weights: they follow what is written to the weights, and lose nothing else."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import mxlite as mx

# FTRL and FTML make a weight from its state alone, whatever it was.
OPTIMIZERS = (
    "sgd nag signum adam adamw lamb adagrad adadelta rmsprop adamax nadam dcasgd lars lbsgd sgld"
).split()
WAYS = ("set_params", "init_params", "arg_dict", "load_params", "copy_params_from")


def network() -> mx.sym.Symbol:
    hidden = mx.sym.FullyConnected(mx.sym.Variable("data", dtype="float16"), num_hidden=3, name="fc")
    label = mx.sym.Variable("softmax_label", dtype="float16")
    return mx.sym.LinearRegressionOutput(hidden, label, name="out")


def made(buckets: bool, fused: bool, optimizer: str = "sgd", **how: Any) -> Any:
    if buckets:
        module = mx.mod.BucketingModule(
            lambda key: (network(), ("data",), ("softmax_label",)), 2, fused_update=fused
        )
    else:
        module = mx.mod.Module(network(), fused_update=fused)
    module.bind(
        [mx.io.DataDesc("data", (2, 4), "float16")], [mx.io.DataDesc("softmax_label", (2, 3), "float16")]
    )
    module.init_params(mx.init.One())
    module.init_optimizer(
        optimizer=optimizer, optimizer_params={"learning_rate": 1e-5, "multi_precision": True, **how}
    )
    return module


def train(module: Any, times: int = 1) -> None:
    data, label = (mx.nd.ones(s, dtype="float16") for s in ((2, 4), (2, 3)))
    shapes = dict(
        provide_data=[mx.io.DataDesc("data", (2, 4), "float16")],
        provide_label=[mx.io.DataDesc("softmax_label", (2, 3), "float16")],
    )
    for _ in range(times):
        module.forward_backward(mx.io.DataBatch([data], [label], bucket_key=2, **shapes))
        module.update()


def executor_of(module: Any) -> Any:
    return getattr(module, "_curr_module", module)._exec_group.execs[0]


def weights(module: Any) -> np.ndarray:
    return np.concatenate([a.asnumpy().ravel() for a in module.get_params()[0].values()])


def give(module: Any, value: float, way: str, tmp_path: Any) -> None:
    args, aux = module.get_params()
    new = {n: mx.nd.ones(a.shape, dtype=a.dtype) * value for n, a in args.items()}
    if way == "set_params":
        module.set_params(new, aux)
    elif way == "init_params":
        module.init_params(mx.init.Constant(value), arg_params=new, force_init=True)
    elif way == "copy_params_from":
        executor_of(module).copy_params_from(new)
    elif way == "load_params":
        mx.nd.save(str(tmp_path / "w.params"), {f"arg:{n}": a for n, a in new.items()})
        module.load_params(str(tmp_path / "w.params"))
    else:
        for name, array in new.items():
            executor_of(module).arg_dict[name][:] = array


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("fused", [True, False])
def test_weights_that_are_given_to_a_module_are_those_that_the_next_step_changes(
    name: str, fused: bool, tmp_path: Any
) -> None:
    module = made(False, fused, name)
    for value, way in enumerate(WAYS, 3):
        train(module, 2)
        give(module, value, way, tmp_path)
        train(module)
        assert np.abs(weights(module) - value).max() < 0.2, way


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_so_are_those_of_buckets(fused: bool, way: str, tmp_path: Any) -> None:
    module = made(True, fused)
    train(module, 2)
    give(module, 4, way, tmp_path)
    train(module)
    assert np.abs(weights(module) - 4).max() < 0.2


def masters_of(module: Any) -> dict[Any, np.ndarray]:
    """SGD's states end with the master."""
    return {i: master.asnumpy() for i, (*_, master) in module._training.updater.states.items()}


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("way", ["set_params", "arg_dict", "load_optimizer_states"])
def test_writing_back_what_was_read_loses_nothing_of_a_master(fused: bool, way: str, tmp_path: Any) -> None:
    """MXNet's own `fit` does so after each epoch; rates below the weight's precision would never add up."""

    def trained(interferes: bool) -> Any:
        module = made(False, fused, learning_rate=1e-5)
        for _ in range(3):
            train(module, 20)
            if not interferes:
                continue
            args, aux = module.get_params()
            if way == "set_params":
                module.set_params(args, aux)
            elif way == "load_optimizer_states":
                module.save_optimizer_states(str(tmp_path / "s"))
                module.set_params(args, aux)
                module.load_optimizer_states(str(tmp_path / "s"))
            else:
                for name, array in args.items():
                    executor_of(module).arg_dict[name][:] = array
        return module

    expected, found = masters_of(trained(False)), masters_of(trained(True))
    for index, master in expected.items():
        assert not np.array_equal(master, master.astype("float16"))  # there is something to lose
        np.testing.assert_array_equal(found[index], master)


@pytest.mark.parametrize("fused", [True, False])
def test_of_a_weight_written_in_part_the_rest_of_its_master_stays(fused: bool) -> None:
    module = made(False, fused)
    train(module, 30)
    before = masters_of(module)[0]
    executor_of(module).arg_dict["fc_weight"][1] = 7
    module._training.optimizer.lr = 0.0
    train(module)
    after = masters_of(module)[0]
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])
    np.testing.assert_array_equal(after[1], 7)


def test_nobody_compares_masters_as_long_as_only_steps_write_weights(monkeypatch: Any) -> None:
    from mxlite.executor.request import masters

    compared: list[Any] = []
    real = masters.where
    for fused in (True, False):
        module = made(False, fused)
        train(module)
        with monkeypatch.context() as patched:
            patched.setattr(masters, "where", lambda *a: compared.append(a) or real(*a))
            train(module, 3)
        assert not compared


def test_a_large_master_is_compared_in_pieces(monkeypatch: Any) -> None:
    from mxlite.executor.request import masters

    monkeypatch.setattr(masters, "PIECE", 5)
    module = made(False, False)
    give(module, 6, "arg_dict", None)
    train(module)
    assert np.abs(weights(module) - 6).max() < 0.2


@pytest.mark.parametrize("kernels", ["onednn,compiled", "reference"])
@pytest.mark.parametrize("fused", [True, False])
def test_a_step_changes_the_master_and_the_weight_is_that_rounded(
    fused: bool, kernels: str, monkeypatch: Any
) -> None:
    monkeypatch.setenv("MXLITE_KERNELS", kernels)
    module = made(False, fused, learning_rate=1e-4)
    start = masters_of(module)[0] if fused else np.ones((3, 4), np.float32)
    train(module, 3)
    after = masters_of(module)[0]
    assert (after != start).all()
    np.testing.assert_array_equal(weights(module)[:12], after.ravel().astype("float16"))


def test_a_master_that_is_gone_is_forgotten() -> None:
    """Another array may get its id, and would pass for one that follows its weight."""
    from mxlite.executor.request import masters

    weight, master = mx.nd.ones((3,), dtype="float16"), mx.nd.ones((3,))
    masters.note(weight, master)
    masters.note(weight, master)
    key = id(master)
    assert key in masters._seen
    mx.nd.waitall()
    del master
    gc.collect()
    assert key not in masters._seen
