"""The pass that lets readers of a norm make its result: what it takes, what not, and the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu import passes, winograd
from mxlite.backends.cpu.compiled import storable, usable
from mxlite.backends.cpu.runtime.threads import set_num_threads
from mxlite.backends.passes import named
from mxlite.memplan import check
from mxlite.memplan.problem import padded
from mxlite.memplan.remat.split import kept_bytes
from mxlite.ops.nn.conv_kernels import Geometry
from tests.backends.passes.pass_lists import asking, left_out, Willing
from tests.networks.small_networks import fill_by_kind

SMALL = Geometry(1, 16, (3, 3), 16, (3, 3), (3, 3), (1, 1), (1, 1), (1, 1), 1, np.dtype(np.float32))

pytestmark = pytest.mark.skipif(
    not usable() or not winograd.fits(SMALL),
    reason="there is no compiler (llvmlite), or this CPU has no vectors of 8 numbers",
)

LINE, CONVOLUTION, BY_WEIGHT = "_norm_line", "_normed_convolution", "_normed_convolution_d_weight"
AGAIN = "_norm_act_line"


def without(monkeypatch: Any) -> None:
    left_out(monkeypatch, "norm_prologue")


def norm(data: Any, name: str, **more: Any) -> Any:
    return mx.sym.BatchNorm(data, name=name, fix_gamma=False, **more)


def relu(data: Any, name: str, **more: Any) -> Any:
    return mx.sym.Activation(data, act_type="relu", name=name, **more)


def conv(data: Any, name: str, **more: Any) -> Any:
    return mx.sym.Convolution(data, **dict(kernel=(3, 3), pad=(1, 1), num_filter=32, name=name) | more)


def loss(data: Any) -> Any:
    pooled = mx.sym.Pooling(data, global_pool=True, kernel=(1, 1), pool_type="avg")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(pooled, num_hidden=5, name="fc"), name="softmax")


def chain(second: Any = conv, **note: Any) -> tuple[Any, Any, Any]:
    """Convolution, norm, rectifier, convolution: what the norm reads, what the rectifier makes, the end."""
    x = conv(mx.sym.var("data"), "a")
    y = relu(norm(x, "n", **note), "r", **note)
    return x, y, second(y, "b")


def bound(symbol: Any, n: int = 2, size: tuple[int, int] = (9, 10), seed: int = 0, **how: Any) -> Any:
    exe = symbol.simple_bind(mx.cpu(), data=(n, 3, *size), softmax_label=(n,), **how)
    fill_by_kind(exe, 0.2, seed)
    return exe


def step(exe: Any) -> dict[str, np.ndarray]:
    """What a step makes: outputs, gradients, moving averages."""
    made = {f"out{i}": o.asnumpy() for i, o in enumerate(exe.forward(is_train=True))}
    exe.backward()
    made |= {f"d_{k}": g.asnumpy() for k, g in exe.grad_dict.items() if g is not None}
    return made | {k: a.asnumpy() for k, a in exe.aux_dict.items()}


def operators(exe: Any) -> list[str]:
    return [t.op for t in exe._planned.train.problem.tasks]


def test_between_two_convolutions_nothing_is_normalized_before_it_is_read():
    found = operators(bound(loss(chain()[2])))
    assert [found.count(n) for n in (LINE, CONVOLUTION, BY_WEIGHT)] == [1, 1, 1]
    assert "_norm_act" not in found and "_backward__norm_act" in found


def test_it_is_taken():
    x, y, z = chain()
    twice = conv(y, "c")
    for symbol, count in (
        (loss(conv(norm(x, "n"), "b")), 1),  # without a rectifier
        (loss(z + twice), 2),  # two readers
        (loss(chain(attr={"__force_mirroring__": "True"})[2]), 1),
        (loss(conv(relu(norm(x, "n", use_global_stats=True), "r"), "b")), 1),
        (loss(conv(relu(mx.sym.BatchNorm(x, name="n"), "r"), "b", no_bias=True)), 1),
    ):
        assert operators(bound(symbol)).count(CONVOLUTION) == count


def test_the_norm_stays_where():
    x, y, z = chain()
    cases = {
        "somebody else reads it backwards": loss(z + relu(norm(y, "m"), "s")),
        "a convolution has no such gradient": loss(chain(lambda y, n: conv(y, n, num_group=2))[2]),
        "one of two has none": loss(
            mx.sym.Concat(z, mx.sym.Pooling(conv(y, "c", num_group=2), kernel=(1, 1), pool_type="max"))
        ),
        "what is added is not there": loss(conv(relu(norm(x, "n") + conv(x, "c"), "r"), "b")),
        "it is the end of a stage": loss(chain(attr={"__mirror_stage__": "True"})[2]),
    }
    for why, symbol in cases.items():
        assert not set(operators(bound(symbol))) & {LINE, AGAIN, CONVOLUTION, BY_WEIGHT}, why


def test_it_is_made_but_not_kept_where():
    x, y, z = chain()
    twelve = conv(mx.sym.var("data"), "a", num_filter=12)
    cases = {
        "somebody else reads it forwards": loss(z + y),
        "a convolution has a stride": loss(chain(lambda y, n: conv(y, n, stride=(2, 2)))[2]),
        "channels make no vectors": loss(conv(relu(norm(twelve, "n"), "r"), "b")),
        "an array is added": loss(conv(relu(norm(x, "n") + x, "r"), "b")),
        "a copy of it is an output": mx.sym.Group([loss(z), y]),
    }
    for why, symbol in cases.items():
        found = operators(bound(symbol))
        assert [found.count(n) for n in (LINE, AGAIN, CONVOLUTION, BY_WEIGHT)] == [0, 1, 0, 1], why


def blocks(count: int, filters: int = 16) -> Any:
    """Residual blocks of one convolution each; the third adds a projection."""
    x = conv(mx.sym.var("data"), "stem", num_filter=filters)
    y = relu(norm(x, "bn"), "r")
    for i in range(count):
        skip = norm(conv(y, "skip", num_filter=filters, **POINT), "skip_bn") if i == 2 else y
        y = relu(norm(conv(y, f"c{i}", num_filter=filters), f"bn{i}") + skip, f"r{i}")
    return y


def test_of_sums_every_second_is_kept():
    """The first adds a line, so it is not; nor is the last, of which only the gradient of the norm knows."""
    tasks = bound(loss(blocks(5)))._planned.train.problem.tasks
    assert [t.name for t in tasks if t.op == AGAIN] == ["r0", "r2", "r4"]
    assert [t.name for t in tasks if t.op == "_norm_act"] == ["r1", "r3"]
    assert [t.name for t in tasks if t.op == LINE] == ["r_line", "skip_bn_line"]


def read_again(y: Any) -> Any:
    """Something that reads `y` backwards, which so is kept."""
    return loss(conv(y, "end", num_filter=16) + relu(norm(y, "m"), "s"))


def test_a_sum_of_a_norm_is_made_of_its_line_also_where_it_is_kept():
    found = operators(bound(read_again(blocks(1))))
    assert found.count(AGAIN) == found.count("_backward__norm_act_line") == 1
    assert found.count("BatchNorm") == 0 and found.count(BY_WEIGHT) == 1


def test_a_mark_holds_for_what_is_kept():
    """A sum that is not kept anyway is not marked any more."""
    with mx.AttrScope(__force_mirroring__="True"):
        y = blocks(1)
    for net, is_marked in ((read_again(y), True), (loss(conv(y, "end")), False)):
        tasks = bound(net)._planned.train.problem.tasks
        assert [t.mirror for t in tasks if t.op == AGAIN] == [is_marked]


def test_inference_and_arrays_of_float64_stay_as_they_are():
    exe = bound(loss(chain()[2]))
    assert LINE not in [t.op for t in exe._planned.infer.problem.tasks]
    for net in (loss(chain()[2]), loss(conv(blocks(1), "end"))):
        assert not {LINE, AGAIN} & set(operators(bound(net, type_dict={"data": "float64"})))


def test_without_a_compiler_nothing_changes(monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", "onednn")
    assert not {LINE, AGAIN} & set(operators(bound(loss(blocks(2)))))


NETS = {
    "resnet": lambda: mx.models.resnet_cifar(8),
    "resnet v2": lambda: mx.models.resnet_cifar(8, version=2),
    "far padding": lambda: loss(chain(lambda y, n: conv(y, n, pad=(2, 0)))[2]),
    "no rectifier": lambda: loss(conv(norm(conv(mx.sym.var("data"), "a"), "n"), "b")),
    "1x1": lambda: loss(chain(lambda y, n: conv(y, n, num_filter=64, **POINT))[2]),
    "1x1 with a bias, twice": lambda: bottleneck(False),
    "blocks": lambda: loss(conv(blocks(5), "end")),
    "blocks of 1x1": lambda: loss(conv(blocks(3, 128), "end", num_filter=64, **POINT)),
}
POINT = dict(kernel=(1, 1), pad=(0, 0))


def bottleneck(no_bias: bool = True) -> Any:
    """1x1, 3x3, 1x1, with a norm before each."""
    x = conv(mx.sym.var("data"), "stem", num_filter=128)
    for i, (filters, how) in enumerate(((32, POINT), (32, {}), (128, POINT))):
        x = conv(relu(norm(x, f"n{i}"), f"r{i}"), f"c{i}", num_filter=filters, no_bias=no_bias, **how)
    return loss(x)


@pytest.mark.parametrize("net", NETS)
def test_a_step_has_the_same_bits_with_and_without_and_under_any_budget(net, two_threads, monkeypatch):
    exe = bound(NETS[net](), size=(12, 11))
    got = step(exe)
    assert CONVOLUTION in operators(exe)
    plan = exe.memory_plan
    check(plan)
    assert exe.measured_bytes == plan.peak_bytes
    for share in (plan.lower_bound_bytes, (plan.peak_bytes + plan.lower_bound_bytes) // 2):
        try:
            tight = bound(NETS[net](), size=(12, 11), memory_budget=share)
        except mx.MemoryBudgetError as error:
            tight = bound(NETS[net](), size=(12, 11), memory_budget=error.least_feasible_bytes)
        for name, x in step(tight).items():
            np.testing.assert_array_equal(x, got[name], err_msg=name)
    added = bound(NETS[net](), size=(12, 11), grad_req="add")
    for g in added.grad_dict.values():
        g[:] = 0
    for name, x in step(added).items():
        np.testing.assert_array_equal(x, got[name], err_msg=name)
    without(monkeypatch)
    plain = bound(NETS[net](), size=(12, 11))
    assert CONVOLUTION not in operators(plain)
    for name, x in step(plain).items():
        if "1x1" not in net and "skip" not in name:  # products are added up in another order
            np.testing.assert_array_equal(x, got[name], err_msg=name)
        np.testing.assert_allclose(x, got[name], rtol=0, atol=2e-5 * np.abs(x).max(), err_msg=name)
    assert kept_bytes(plan.problem) < kept_bytes(plain.memory_plan.problem)


def test_gradients_are_those_of_finite_differences(monkeypatch):
    """In float64, by the reference kernels, with padding next to numbers far from 0."""
    last, acts, loads = (asking(n, Willing()) for n in ("channels_last", "norm_act", "norm_prologue"))
    monkeypatch.setattr(passes, "PASSES", (last, acts, *named("split_gradients"), loads))
    net = loss(chain(lambda y, n: conv(y, n, num_filter=4))[2])
    names = ("a_weight", "n_gamma", "n_beta", "b_weight", "b_bias")
    exe = bound(net, size=(4, 5), type_dict={"data": "float64"}, grad_req=dict.fromkeys(names, "write"))
    assert CONVOLUTION in operators(exe)
    found = step(exe)
    labels = exe.arg_dict["softmax_label"].asnumpy().astype(int)

    def value() -> float:
        out = exe.forward(is_train=True)[0].asnumpy()
        return float(-np.log(out[np.arange(len(labels)), labels]).sum())

    rng = np.random.default_rng(1)
    for name in names:
        at, d = exe.arg_dict[name], found[f"d_{name}"]
        way = rng.standard_normal(d.shape)
        x = at.asnumpy()
        both = []
        for sign in (1, -1):
            at[:] = x + sign * 1e-5 * way
            both.append(value())
        at[:] = x
        assert (both[0] - both[1]) / 2e-5 == pytest.approx(float((d * way).sum()), rel=1e-5, abs=1e-7), name


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_16_bits_are_near_32(kind):
    if kind not in storable():
        pytest.skip(f"this CPU cannot load {kind}")
    net = NETS["resnet v2"]()
    small, full = bound(net, n=8, amp=kind), bound(net, n=8)
    for exe in (small, full):
        assert {CONVOLUTION, BY_WEIGHT, AGAIN} <= set(operators(exe))
    got, want = step(small), step(full)
    for name in want:
        error = np.linalg.norm(got[name] - want[name]) / (np.linalg.norm(want[name]) + 1e-6)
        assert error < (0.5 if name.startswith("d_") else 0.05), (name, error)


@pytest.fixture
def two_threads():
    """Gradients of 1x1 are taken where there are channels for every thread."""
    before = set_num_threads(2)
    yield
    set_num_threads(before)


def kept(symbol: Any, **shapes: tuple[int, ...]) -> int:
    """Bytes kept by the step that budgets are for, which makes no sums again."""
    asked = dict(memory_budget="1TiB", optimizer=mx.optimizer.SGD(), **shapes)
    return kept_bytes(symbol.memory_plan(mx.cpu(), **asked).problem)


ARRAYS = {1: {32: 6, 16: 5, 8: 5}, 2: {32: 7, 16: 6, 8: 5}}
LINES = {1: {32: 6, 16: 6, 8: 5}, 2: {32: 7, 16: 6, 8: 5}}


@pytest.mark.parametrize("version", [1, 2])
def test_a_residual_network_keeps_lines_in_place_of_arrays(version, monkeypatch):
    """Of 20 layers, by the sides of images, 3 of them: of more, sums are made again as well. Version 1: in
    front of the second convolution of each block and of the first one, and every second sum; lines also of
    projections, none of the last sum. Version 2: in front of all convolutions.
    """
    shapes = dict(data=(3, 3, 32, 32), softmax_label=(3,))
    net = mx.models.resnet_cifar(20, version=version)
    after = kept(net, **shapes)
    without(monkeypatch)
    gone = sum(n * 3 * 4 * side * side * (512 // side) for side, n in ARRAYS[version].items())
    lines = sum(n * 2 * padded(4 * 512 // side) for side, n in LINES[version].items())
    assert kept(net, **shapes) - after == gone - lines


def test_in_front_of_1x1_nothing_is_kept_either(two_threads, monkeypatch):
    shapes = dict(data=(4, 3, 32, 32), softmax_label=(4,))
    after = kept(bottleneck(), **shapes)
    without(monkeypatch)
    gone = 4 * 4 * 32 * 32 * (128 + 32 + 32) - 2 * 4 * (128 + 32 + 32)
    assert kept(bottleneck(), **shapes) - after == gone
