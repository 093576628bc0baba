"""Training on all ranks against one process that adds up the gradients of micro-batches in order.

    training.py RANKS [cpu | gpu | emulated [case ...]]
"""

from __future__ import annotations

import sys

import numpy as np

import mxlite as mx
from mxlite.backends.gpu.grouping import groups
from mxlite.comm import current
from mxlite.engine import use_engine
from tests.dist.programs.devices import device_of_this_rank

STEPS, N = 20, 6
CONTEXT = mx.cpu()
WIDTHS = 301, 300, 299


def conv_net():
    x = mx.sym.Variable("data")
    for i in range(3):
        x = mx.sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=6, no_bias=i > 0, name=f"conv{i}")
        x = mx.sym.BatchNorm(x, fix_gamma=False, name=f"bn{i}")
        x = mx.sym.Activation(x, act_type="relu", name=f"relu{i}")
    x = mx.sym.FullyConnected(x, num_hidden=5, name="fc")
    return mx.sym.SoftmaxOutput(x, name="softmax")


def table_net():
    x = mx.sym.Variable("data")
    x = mx.sym.Embedding(x, input_dim=40, output_dim=4, sparse_grad=True, name="table")
    x = mx.sym.FullyConnected(mx.sym.mean(x, axis=1), num_hidden=5, name="fc")
    return mx.sym.SoftmaxOutput(x, name="softmax")


def wide_net():
    """Weights of which each message is one of its own, and one of which is sent in two pieces."""
    x = mx.sym.Variable("data")
    for i, width in enumerate(WIDTHS):
        x = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=width, name=f"fc{i}"), act_type="tanh")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=5, name="fc"), name="softmax")


def images(step, rank):
    rng = np.random.default_rng([step, rank])
    return rng.standard_normal((N, 3, 8, 8)).astype("float32"), rng.integers(0, 5, N).astype("float32")


def words(step, rank):
    """Rows 20 r to 20 r + 5 of the table on rank r: each rank reaches rows that others do not."""
    rng = np.random.default_rng([step, rank])
    return rng.integers(0, 6, (N, 4)) + 10.0 * (rank % 4), rng.integers(0, 5, N).astype("float32")


def overflowing(step, rank):
    """Images of which one of the last rank is too bright for float16, in one step."""
    x, y = images(step, rank)
    return (x * 1e5 if step == 7 and rank == mx.dist.size() - 1 else x), y


def module_for(net, x, optimizer, kvstore, workers=1, **how):
    mx.random.seed(7 + mx.dist.rank())  # rank 0's parameters are to be everybody's
    module = mx.mod.Module(net, context=CONTEXT, **how)
    module.bind([("data", x.shape)], [("softmax_label", (N,))])
    module.init_params(mx.init.Xavier())
    name, params = optimizer
    # A process alone divides by the samples of all workers, as ranks do by themselves.
    more = {"rescale_grad": 1 / (workers * N)} if kvstore is None else {}
    module.init_optimizer(kvstore=kvstore, optimizer=name, optimizer_params={**params, **more})
    return module


def parameters(module):
    return {n: a.asnumpy() for n, a in module.get_params()[0].items()}


def step(module, x, y):
    shapes = {}
    if isinstance(module, mx.mod.BucketingModule):
        shapes = dict(
            bucket_key=x.shape[1], provide_data=[("data", x.shape)], provide_label=[("softmax_label", (N,))]
        )
    module.forward_backward(mx.io.DataBatch([mx.nd.array(x)], [mx.nd.array(y)], **shapes))


def alone(net, batch, optimizer, rounded, **how):
    """Parameters of one process that runs each rank's batch, and updates by the sum of the gradients.

    rounded: types to which gradients are rounded first, by parameter.
    """
    module = module_for(net, batch(0, 0)[0], optimizer, None, mx.dist.size(), fused_update=False, **how)
    dense = {}
    for n, g in module._executor.grad_dict.items():
        if g is not None:
            dense |= {n: g.whole, f"{n} flags": g.flags} if hasattr(g, "flags") else {n: g}
    for i in range(STEPS):
        total = {}
        for r in range(mx.dist.size()):
            step(module, *batch(i, r))
            for n, array in dense.items():
                add = np.bitwise_or if array.dtype == np.uint8 else np.add
                value = array.asnumpy().astype(rounded.get(n, array.dtype)).astype(array.dtype)
                with np.errstate(invalid="ignore"):
                    total[n] = add(total[n], value) if r else value
        for n, array in dense.items():
            array[:] = total[n]
        module.update()
    return parameters(module), module.loss_scale


def together(net, batch, optimizer, **how):
    """The same on all ranks, and the module."""
    module = module_for(net, batch(0, 0)[0], optimizer, "dist_sync", **how)
    for i in range(STEPS):
        step(module, *batch(i, mx.dist.rank()))
        module.update()
    found = parameters(module)
    assert module.measured_bytes == module.memory_plan.peak_bytes, "planned bytes are not those measured"
    digest = "".join(f"{n} {a.tobytes().hex()}\n" for n, a in sorted(found.items()))
    mx.dist.agree("Parameters", digest)
    return found, module


SGD = "sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-3}
ADAM = "adam", {"learning_rate": 0.01}
CASES = {
    "momentum": (conv_net, images, SGD, {}),
    "adam, bfloat16": (conv_net, images, ADAM, {"amp": "bfloat16"}),
    "float16, one rank overflows": (
        conv_net, overflowing, SGD, {"amp": "float16", "loss_scale": "dynamic"}
    ),
    "states that ranks share": (wide_net, images, SGD, {}),
    "states that ranks share, adam": (wide_net, images, ADAM, {}),
    "weights that ranks share, bfloat16": (wide_net, images, ADAM, {"amp": "bfloat16"}),
    "rows": (table_net, words, SGD, {}),
    "rows, adam": (table_net, words, ADAM, {}),
}  # fmt: skip


def cast_before_sum(module, amp):
    """The type that each gradient has before it is cast and summed in the step, by parameter."""
    tasks = module.memory_plan.problem.tasks
    assert any(t.exchanges for t in tasks)
    names = {t.name for t in tasks if t.op == "_backward_Cast"}
    kind = mx.core.bfloat16 if amp == "bfloat16" else np.float16
    return {n: kind for n in module._training.parameters if f"{n}_{amp}_backward" in names}


def gathered(net, batch, optimizer, whole, **how):
    """Runs whose ranks share the weights, kept and gathered again; scores are those of the module `whole`."""
    runs, how = {}, {"fused_update": True, "ranks": mx.memplan.Ranks(shard="weights"), **how}
    runs["gathered"] = together(net(), batch, optimizer, **how)
    peak = runs["gathered"][1].memory_plan.peak_bytes
    try:
        module_for(net(), batch(0, 0)[0], optimizer, "dist_sync", memory_budget=1, **how)
    except mx.MemoryBudgetError as error:
        least = error.least_feasible_bytes
    assert least < peak < whole.memory_plan.peak_bytes
    room = 16 << 10  # for scores of another batch
    runs["gathered again"] = together(net(), batch, optimizer, memory_budget=least + room, **how)
    again = runs["gathered again"][1]
    tasks = [again.memory_plan.problem.tasks[t] for t, k in zip(*steps_of(again)) if k]
    assert any(t.op == "_gather_over_ranks" for t in tasks), "no weight was gathered a second time"
    x = batch(99, 0)[0]
    batches = [mx.io.DataBatch([mx.nd.array(x[:n])], None) for n in (N, 4)]  # the second with a program of its own
    for _, module in runs.values():
        executor, size = module._executor, current().size
        assert {"fc0_weight", "fc1_weight"} <= set(executor.parts) and executor.shares_states
        shape = executor.parts["fc1_weight"]
        assert len(executor.arg_dict["fc1_weight"]) - np.prod(shape) / size < 2 * size
        for data in batches:
            for m in (module, whole):
                m.forward(data, is_train=False)
            (mine,), (theirs,) = module.get_outputs(), whole.get_outputs()
            assert mine.asnumpy().tobytes() == theirs.asnumpy().tobytes(), "scores differ"
        given = {n: a + 1 for n, a in module.get_params()[0].items()}
        module.set_params(given, {})
        for n, a in module.get_params()[0].items():
            assert np.array_equal(a.asnumpy(), given[n].asnumpy()), n
    return runs


def steps_of(module):
    return module.memory_plan.schedule.task, module.memory_plan.schedule.copy


def check(name):
    net, batch, optimizer, how = CASES[name]
    whole, module = together(net(), batch, optimizer, fused_update=True, **how)
    plan, types = module.memory_plan, cast_before_sum(module, how.get("amp"))
    assert module.is_fused
    runs = {"fused": (whole, module)}
    runs["unfused"] = together(net(), batch, optimizer, fused_update=False, **how)
    for part in (0.5, 0.8) if net is conv_net else ():
        budget = int(plan.lower_bound_bytes + part * (plan.peak_bytes - plan.lower_bound_bytes))
        runs[f"{budget} bytes"] = together(
            net(), batch, optimizer, fused_update=True, memory_budget=budget, **how
        )
        assert runs[f"{budget} bytes"][1].measured_bytes <= budget < plan.peak_bytes
    if net is wide_net and not how:
        budget = plan.peak_bytes - plan.breakdown["optimizer"] // 4
        runs["shared"] = together(net(), batch, optimizer, fused_update=True, memory_budget=budget, **how)
        assert runs["shared"][1]._executor.shares_states and not module._executor.shares_states
        assert runs["shared"][1].measured_bytes <= budget
        try:
            module_for(net(), batch(0, 0)[0], optimizer, "dist_sync", fused_update=True, memory_budget=1)
        except mx.MemoryBudgetError as error:
            least = error.least_feasible_bytes
        runs["least"] = together(net(), batch, optimizer, fused_update=True, memory_budget=least, **how)
        assert runs["least"][1]._executor.shares_states and runs["least"][1].measured_bytes <= least
    if net is wide_net:
        runs |= gathered(net, batch, optimizer, module, **how)
    with use_engine("naive"):
        runs["naive engine"] = together(net(), batch, optimizer, fused_update=True, **how)
    if current().rank:
        return
    wanted = {}
    for kind, (found, module) in runs.items():
        # A step has some gradients in 16 bits before they are summed.
        rounded = types if module.is_fused else {}
        if bool(rounded) not in wanted:
            wanted[bool(rounded)] = alone(net(), batch, optimizer, rounded, **how)
        want, scale = wanted[bool(rounded)]
        assert module.loss_scale == scale, f"{name}, {kind}: {module.loss_scale}, not {scale}"
        for n, value in want.items():
            assert np.isfinite(value).all()
            assert found[n].tobytes() == value.tobytes(), f"{name}, {kind}: {n} differs"


def check_buckets():
    """Ranks of a BucketingModule in different buckets at a step, by the bits of both in one process."""

    def sym_gen(length):
        """Layers whose gradients arise in another order in every other bucket."""
        x = mx.sym.slice_axis(mx.sym.Variable("data"), axis=1, begin=0, end=4)
        for i in (0, 1) if length % 2 else (1, 0):
            x = mx.sym.FullyConnected(x, mx.sym.Variable(f"fc{i}_weight"), num_hidden=4, no_bias=True)
        return mx.sym.SoftmaxOutput(x, name="softmax"), ["data"], ["softmax_label"]

    def module_of(kvstore, workers):
        mx.random.seed(7 + mx.dist.rank())
        module = mx.mod.BucketingModule(sym_gen, 8, context=CONTEXT, fused_update=kvstore is not None)
        module.bind([("data", (N, 8))], [("softmax_label", (N,))])
        module.init_params(mx.init.Xavier())
        params = {"learning_rate": 0.5, "rescale_grad": 1 / (workers * N)}
        module.init_optimizer(kvstore=kvstore, optimizer_params=params)
        return module

    def batch(i, rank):
        rng = np.random.default_rng([i, rank])
        length = 7 + (i + rank) % 2
        return rng.standard_normal((N, length)).astype("float32"), rng.integers(0, 4, N).astype("float32")

    module = module_of("dist_sync", mx.dist.size())
    for i in range(4):
        step(module, *batch(i, mx.dist.rank()))
        module.update()
    found = parameters(module)
    mx.dist.agree("Parameters of buckets", *(f"{n} {a.tobytes().hex()}" for n, a in sorted(found.items())))
    if current().rank:
        return
    one = module_of(None, mx.dist.size())
    for i in range(4):
        total = {}
        for r in range(mx.dist.size()):
            step(one, *batch(i, r))
            grads = one._current._executor.grad_dict
            for n in found:
                total[n] = total[n] + grads[n].asnumpy() if r else grads[n].asnumpy()
        for n, value in total.items():
            grads[n][:] = value
        one.update()
    for n, value in parameters(one).items():
        assert found[n].tobytes() == value.tobytes(), f"buckets: {n} differs"


mx.dist.init()
assert current().size == int(sys.argv[1])
kind = (*sys.argv[2:3], "cpu")[0]
if kind != "cpu":
    WIDTHS = 48, 176, 49
    groups.GROUP_BYTES = 4096  # else the gradients of a network of this size wait for one update of all
with device_of_this_rank(kind) as CONTEXT:
    for name in sys.argv[3:] or CASES:
        check(name)
    check_buckets()
mx.dist.barrier()
if current().rank == 0:
    print("training agrees")
