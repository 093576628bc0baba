"""Graphs for cuDNN, built for and run by a stand-in: shapes, strides, tensors, addresses, streams."""

from __future__ import annotations

import importlib
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mxlite import ops
from mxlite.backends import Backend, bind_call, Request
from mxlite.backends.elementwise.epilogue import RECTIFIER
from mxlite.backends.fused.accumulated_gradient import AccumulatedGradient
from mxlite.backends.gpu.convolution import choice
from mxlite.backends.gpu.kernels import table
from mxlite.backends.gpu.kernels.cudnn import cudnn_attention
from mxlite.backends.gpu.kernels.nn import convolution
from mxlite.backends.gpu.passes import GPUTarget
from mxlite.backends.gpu.runtime import autotune
from mxlite.backends.gpu.runtime.cuda_device import CudaDevice
from mxlite.backends.gpu.runtime.device import InOrder
from mxlite.backends.gpu.vendor import cudnn, libraries
from mxlite.core.dtype import as_dtype
from mxlite.core.errors import DeviceError
from mxlite.memplan.problem import ALIGN
from mxlite.ops.norm.norm_act import NormActAttrs
from tests.backends.gpu.kernels.test_convolution import arrays, close, HOST
from tests.emulators import fake_cudnn
from tests.emulators.emulated_device import compiler, EmulatedDevice
from tests.emulators.emulated_driver import EmulatedDriver

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")


class StreamedDevice(EmulatedDevice):
    """An emulated device that has a current stream."""

    stream = 0


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(cudnn, "library", lambda: fake_cudnn)
    monkeypatch.setattr(fake_cudnn.state, "executed", [])
    monkeypatch.setattr(fake_cudnn.state, "refuse", lambda graph: False)
    monkeypatch.setattr(fake_cudnn.state, "stream", 0)
    return StreamedDevice()


def test_handles_and_plans_are_made_while_the_device_is_this_threads(device, monkeypatch):
    chosen, made = [], []

    class Chosen(StreamedDevice):
        @contextmanager
        def active(self):
            chosen.append(self)
            yield
            chosen.pop()

    def noted(name, make):
        def call(*arguments, **named):
            made.append((name, len(chosen)))
            return make(*arguments, **named)

        return call

    for name in ("create_handle", "pygraph"):
        monkeypatch.setattr(fake_cudnn, name, noted(name, getattr(fake_cudnn, name)))
    op, a, shapes = small()
    kernel_of(Chosen(), op, a, shapes, "float32")
    assert {name for name, _ in made} == {"create_handle", "pygraph"}
    assert all(count == 1 for _, count in made)


def kernel_of(device, op, attrs, shapes, dtype, used=None):
    backend = Backend("emulated", np, convolution.rows(device))
    return backend.choose(op, attrs, *shapes, np.dtype(dtype), used=used)


def run(kernel, device, op, attrs, inputs, sizes, shapes):
    dtype, made = inputs[0].dtype, []
    for name in op.output_names(attrs):
        shape = sizes[name.removeprefix("d_") if op.forward_op else name]
        nbytes = int(np.prod(shape)) * dtype.itemsize
        made.append(device.empty(nbytes).view(dtype).reshape(shape))  # aligned, as on a GPU
        made[-1].fill(np.nan)
    work, given = scratch(device, kernel.workspace), [aligned(device, x) for x in inputs]
    bind_call(kernel, np, op, attrs, given, made, work=work, shapes=shapes)()
    return dict(zip(op.output_names(attrs), made))


def aligned(device, x):
    y = device.empty(x.nbytes).view(x.dtype).reshape(x.shape)
    y[...] = x
    return y


def scratch(device, nbytes):
    """Bytes that begin where an arena may put them."""
    return device.empty(nbytes + ALIGN)[ALIGN:]


def odd(x):
    """A copy that begins at an odd element."""
    y = np.empty(1 + x.size, x.dtype)[1:].reshape(x.shape)
    y[...] = x
    return y


CASES = {
    "3x3": (ops.ConvolutionChannelsLast, (2, 6, 7, 4), dict(kernel=(3, 3), num_filter=8, pad=(1, 1))),
    "channels first": (ops.Convolution, (2, 4, 6, 7), dict(kernel=(3, 2), num_filter=8, stride=(2, 1))),
    "1x1": (ops.Convolution, (2, 4, 6, 7), dict(kernel=(1, 1), num_filter=8, no_bias=True)),
    "depthwise": (
        ops.ConvolutionChannelsLast,
        (2, 6, 7, 4),
        dict(kernel=(3, 3), num_filter=4, num_group=4, dilate=(1, 2), pad=(1, 0)),
    ),
    "a row": (ops.ConvolutionChannelsLast, (2, 9, 4), dict(kernel=(3,), num_filter=8, stride=(2,))),
    "a volume": (ops.ConvolutionChannelsLast, (1, 3, 4, 5, 2), dict(kernel=(2, 1, 3), num_filter=4)),
    "transposed": (
        ops.DeconvolutionChannelsLast,
        (2, 4, 5, 4),
        dict(kernel=(3, 3), num_filter=6, stride=(2, 2), pad=(1, 0), no_bias=False),
    ),
    "transposed, channels first": (ops.Deconvolution, (1, 4, 3, 5), dict(kernel=(3, 3), num_filter=6)),
}


@pytest.mark.parametrize("name", CASES)
def test_all_directions(device, name):
    op, data, attrs = CASES[name]
    a = op.Attrs(**attrs)
    ins, outs = op.infer_shape(a, data, *(None,) * (len(op.input_names(a)) - 1))
    sizes = {**dict(zip(op.input_names(a), ins)), "out": outs[0]}
    inputs = dict(zip(op.input_names(a), arrays(ins, "float32"))) | {"d_out": arrays(outs, "float32", 1)[0]}
    for which in (op, op.grad_op):
        given = [inputs[n] for n in which.input_names(a)]
        kernel = kernel_of(device, which, a, (ins, outs), "float32")
        assert kernel.name.startswith("cudnn"), kernel.name
        assert kernel.workspace >= fake_cudnn.WORKSPACE
        got = run(kernel, device, which, a, given, sizes, (ins, outs))
        host = HOST.choose(which, a, ins, outs, np.dtype("float32"))
        close(got, run(host, device, which, a, given, sizes, (ins, outs)))
    assert len(fake_cudnn.state.executed) == 3


def test_epilogue(device):
    op = ops.ConvolutionEpilogue
    a = op.Attrs(kernel=(3, 3), num_filter=8, add=True, epilogue=RECTIFIER)
    ins, outs = op.infer_shape(a, (2, 5, 6, 4), None, None, None)
    inputs, sizes = arrays(ins, "float32"), {"out": outs[0]}
    kernel = kernel_of(device, op, a, (ins, outs), "float32")
    got = run(kernel, device, op, a, inputs, sizes, (ins, outs))
    host = HOST.choose(op, a, ins, outs, np.dtype("float32"))
    close(got, run(host, device, op, a, inputs, sizes, (ins, outs)))
    (graph,) = fake_cudnn.state.executed
    assert len(graph.inputs) == 4


def small():
    op = ops.ConvolutionChannelsLast
    a = op.Attrs(kernel=(3, 3), num_filter=8, no_bias=True)
    return op, a, op.infer_shape(a, (2, 5, 6, 4), None)


@pytest.mark.parametrize("allow", ["0", "1"])
def test_float32_is_float32_unless_tf32_is_allowed(device, allow, monkeypatch):
    monkeypatch.setenv("MXLITE_ALLOW_TF32", allow)
    op, a, shapes = small()
    notes = fake_cudnn.numerical_note
    true = [] if allow == "1" else [notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS]
    for dtype, wanted in (("float32", true), ("float16", [])):
        kernel = kernel_of(device, op, a, shapes, dtype)
        run(kernel, device, op, a, arrays(shapes[0], dtype), {"out": shapes[1][0]}, shapes)
        assert fake_cudnn.state.executed[-1].notes == [notes.NONDETERMINISTIC, *wanted]


def test_engines_of_the_front_ends_own_are_not_taken(device, monkeypatch):
    monkeypatch.setattr(
        fake_cudnn.state, "foreign", [SimpleNamespace(cpp_index=None, name="norm_sm100[T=8]")]
    )
    op, a, shapes = small()
    kernel = kernel_of(device, op, a, shapes, "float32")
    run(kernel, device, op, a, arrays(shapes[0], "float32"), {"out": shapes[1][0]}, shapes)
    assert fake_cudnn.state.executed[-1].barred == ["norm_sm100[T=8]"]


def test_where_cudnn_has_nothing_our_own_kernels_work(device, monkeypatch):
    op, a, shapes = small()
    monkeypatch.setattr(fake_cudnn.state, "refuse", lambda graph: True)
    assert kernel_of(device, op, a, shapes, "float32").name.startswith("cuda convolution")
    monkeypatch.setattr(fake_cudnn.state, "refuse", lambda graph: False)
    assert kernel_of(device, op, a, shapes, "float64").name.startswith("cuda convolution")
    none = op.infer_shape(a, (0, 5, 6, 4), None)
    assert kernel_of(StreamedDevice(), op, a, none, "float32").name.startswith("cuda convolution")
    assert kernel_of(EmulatedDevice(), op, a, shapes, "float32").name.startswith("cuda convolution")


def test_a_fault_while_planning_is_told(device, monkeypatch, caplog):
    """That cuDNN has nothing for a graph is no news; that it fails is."""
    op, a, shapes = small()
    monkeypatch.setattr(fake_cudnn.state, "refuse", lambda graph: True)
    kernel_of(device, op, a, shapes, "float32")
    assert not caplog.text

    def fail(graph):
        raise RuntimeError("CUDNN_STATUS_INTERNAL_ERROR")

    monkeypatch.setattr(fake_cudnn.state, "refuse", fail)
    assert kernel_of(StreamedDevice(), op, a, shapes, "float32").name.startswith("cuda convolution")
    assert "cudnn convolution could not be planned, and is not used: CUDNN_STATUS_INTERNAL" in caplog.text


def test_arrays_that_lie_at_odd_addresses_go_to_our_own_kernels(device):
    op, a, (ins, outs) = small()
    for which in (op, op.grad_op):
        kernel = kernel_of(device, which, a, (ins, outs), "float16")
        x, w, d = (odd(v) for v in arrays((*ins, *outs), "float16"))
        given, made = ([x, w], [np.empty(outs[0], "float16")])
        if which is op.grad_op:
            given, made = [d, x, w], [np.empty(ins[0], "float16"), np.empty(ins[1], "float16")]
        want = [np.empty_like(y) for y in made]
        work = scratch(device, kernel.workspace)
        bind_call(kernel, np, which, a, given, made, work=work, shapes=(ins, outs))()
        host = HOST.choose(which, a, ins, outs, np.dtype("float16"))
        work = np.empty(host.workspace, "uint8")
        bind_call(host, np, which, a, given, want, work=work, shapes=(ins, outs))()
        close(dict(enumerate(made)), dict(enumerate(want)))
    assert not fake_cudnn.state.executed


def test_one_handle_goes_from_stream_to_stream(device, monkeypatch):
    """None can be made, and none may run for the first time, while a stream is captured."""
    op, a, shapes = small()
    kernel = kernel_of(device, op, a, shapes, "float32")
    x, w = (aligned(device, v) for v in arrays(shapes[0], "float32"))
    out = device.empty(4 * int(np.prod(shapes[1][0]))).view("float32").reshape(shapes[1][0])
    work = scratch(device, kernel.workspace)

    def connected():
        services = {"work": work, "shapes": shapes}
        found = []
        link = lambda run, *arrays, **more: found.append(kernel.link(run, *arrays, **more))  # noqa: E731
        bind_call(kernel, np, op, a, [x, w], [out], link=link, **services)
        return found[0]

    connected()()
    again = connected()
    there = fake_cudnn.state.handles
    for stream in (77, 78, 77, 0):
        monkeypatch.setattr(fake_cudnn.state, "stream", stream)
        device.stream = stream
        again()
        again()
    assert fake_cudnn.state.handles == there
    assert len(fake_cudnn.state.executed) == 9

    def refuse(*_, **__):
        raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")

    monkeypatch.setattr(fake_cudnn, "set_stream", refuse)
    device.stream = 5
    with pytest.raises(DeviceError, match="cudnn convolution could not be run: CUDNN_STATUS_EXECUTION"):
        again()


def test_the_handle_is_told_of_a_stream_before_that_is_captured(device, monkeypatch):
    """It asks the driver about the stream, of which a capture allows little."""
    there, seen = CudaDevice(EmulatedDriver(late=0.0), 0), []
    began = there.driver.begin_capture
    monkeypatch.setattr(there.driver, "begin_capture", lambda s: (seen.append(("captured", s)), began(s)))
    monkeypatch.setattr(fake_cudnn, "set_stream", lambda handle, stream: seen.append(("told", stream)))
    session = cudnn.session(there)
    graph = SimpleNamespace(execute=lambda pack, work, handle: seen.append(("executed", there.stream)))
    session.execute(graph, {}, 0)
    stream = there.driver.stream()
    there.capture([lambda: session.execute(graph, {}, 0)], stream)
    session.execute(graph, {}, 0)
    assert seen == [
        ("told", there.compute), ("executed", there.compute),
        ("told", stream), ("captured", stream), ("executed", stream),
        ("told", there.compute), ("executed", there.compute),
    ]  # fmt: skip

    def refuse(*_, **__):
        raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")

    monkeypatch.setattr(fake_cudnn, "set_stream", refuse)
    there.capture([lambda: None])  # which uses no cuDNN


def test_a_plan_is_made_once(device):
    op, a, shapes = small()
    session = cudnn.session(device)
    assert session is cudnn.session(device)
    for _ in range(3):
        kernel_of(device, op, a, shapes, "float32")
    assert len(session._plans) == 1


def test_of_a_plan_that_takes_much_scratch_there_is_a_lean_one_too(device, monkeypatch):
    monkeypatch.setattr(choice, "LEAN", fake_cudnn.WORKSPACE - 1)
    op, a, shapes = small()
    kernel_of(device, op, a, shapes, "float32")
    assert [key[2] for key in cudnn.session(device)._plans] == [cudnn.LIMIT, choice.LEAN]


ADDED = (
    AccumulatedGradient,
    ops.ConvolutionChannelsLast,
    dict(kernel=(3, 3), num_filter=8, stride=(2, 1), pad=(1, 1), no_bias=True),
)


def added(dtype):
    """A gradient that is added to another: operator, attributes, shapes, inputs and what it makes."""
    op, of, attrs = ADDED
    a = of.Attrs(**attrs)
    (data, weight), (out,) = of.infer_shape(a, (2, 6, 7, 4), None)
    shapes = ((out, weight, data), (data,))
    inputs = arrays(shapes[0], dtype)
    wanted = frozenset({"d_out", "weight", "d_data"})
    grads = HOST.choose(of.grad_op, a, (data, weight), (out,), np.dtype(dtype), used=wanted)
    made, work = np.empty(data, dtype), np.empty(grads.workspace, np.uint8)
    given = [inputs[0], None, inputs[1], None][: len(of.grad_op.input_names(a))]
    outs = [made if n == "d_data" else None for n in of.grad_op.output_names(a)]
    bind_call(grads, np, of.grad_op, a, given, outs, work=work, shapes=((data, weight), (out,)))()
    return op, op.Attrs(of, a, "data"), shapes, inputs, made


@pytest.mark.parametrize("faster", ["at once", "apart"])
def test_a_gradient_is_added_as_it_is_made_or_apart_as_the_clock_says(device, monkeypatch, tmp_path, faster):
    """At once it may lie where the other term lay; apart it may not, since it comes first."""
    monkeypatch.setenv("MXLITE_CACHE_DIR", str(tmp_path))
    op, a, shapes, inputs, made = added("float32")

    def time(run, repeats=5):
        fake_cudnn.state.executed.clear()
        with np.errstate(all="ignore"):
            run()
        graphs = len(fake_cudnn.state.executed)
        at_once = graphs and len(fake_cudnn.state.executed[0].inputs) == 3
        return 1.0 if graphs and (at_once == (faster == "at once")) else 2.0

    monkeypatch.setattr(StreamedDevice, "time", staticmethod(time), raising=False)
    autotune.forget()
    there = StreamedDevice()
    kernel = kernel_of(there, op, a, shapes, "float32")
    assert kernel.name == "cudnn convolution by data" + (", sum" if faster == "apart" else "")
    assert kernel.in_place == ({"out": ("addend",)} if faster == "at once" else {})
    given = [aligned(there, x) for x in inputs]
    out = given[2] if faster == "at once" else aligned(there, np.full(shapes[1][0], np.nan, "float32"))
    work = scratch(there, kernel.workspace)
    bind_call(kernel, np, op, a, given, [out], work=work, shapes=shapes)()
    close({"out": out}, {"out": inputs[2] + made})
    autotune.forget()


def test_where_cudnn_cannot_add_our_own_kernel_does(device, monkeypatch):
    monkeypatch.setattr(fake_cudnn.state, "refuse", lambda graph: any(t.how[0] == "add" for t in graph.made))
    op, a, shapes, inputs, made = added("float32")
    kernel = kernel_of(device, op, a, shapes, "float32")
    assert kernel.name.startswith("cuda convolution")
    want, work = inputs[2] + made, scratch(device, kernel.workspace)
    bind_call(kernel, np, op, a, inputs, [inputs[2]], work=work, shapes=shapes)()
    close({"out": inputs[2]}, {"out": want})


@pytest.mark.parametrize(
    "missing, what",
    [("libcublasLt", "cuBLASLt"), ("libcudart", "CUDA runtime"), ("libcudnn", "cuDNN")],
)
def test_the_package_is_not_asked_without_the_libraries_that_it_calls(monkeypatch, missing, what):
    """The front end builds plans without the CUDA runtime, and fails when it runs them."""
    asked = []

    def open_library(path):
        asked.append(path)
        if missing in path:
            raise OSError(path)

    cudnn._loaded.cache_clear()
    monkeypatch.setattr(libraries.ctypes, "CDLL", open_library)
    monkeypatch.setattr(libraries, "driver_version", lambda: 13000)
    monkeypatch.setitem(sys.modules, "cudnn", None)  # asking would say so
    assert cudnn.library() is None
    assert cudnn.session(there := StreamedDevice()) is None
    assert cudnn.why_none(there) == f"there is no {what}"
    assert any("libcublasLt.so.13" in path for path in asked)
    cudnn._loaded.cache_clear()


def test_why_cudnn_is_not_used_is_told(device, monkeypatch, caplog):
    """Of a package that does not load, and of a device that it does not open."""
    assert cudnn.why_none(device) == "" and cudnn.session(device) is not None

    def refuse():
        raise RuntimeError("CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED")

    monkeypatch.setattr(fake_cudnn, "create_handle", refuse)
    other = StreamedDevice()
    for _ in range(2):
        assert cudnn.session(other) is None
    assert cudnn.why_none(other) == "RuntimeError: CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED"
    assert caplog.text.count("SUBLIBRARY_LOADING_FAILED") == 1
    monkeypatch.undo()
    cudnn._loaded.cache_clear()
    monkeypatch.setattr(cudnn, "is_loaded", lambda *where: True)
    monkeypatch.setitem(sys.modules, "cudnn", None)
    assert cudnn.library() is None and "cudnn" in cudnn.why_not_loaded()
    cudnn._loaded.cache_clear()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("wanted", [None, ("d_key",)])
def test_attention_and_its_gradient(device, causal, wanted):
    """With heads that share keys; gradients that nobody wants go to scratch."""
    op = ops.scaled_dot_product_attention
    a = op.Attrs(causal=causal)
    ins = ((2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 16))
    _, outs = op.infer_shape(a, *ins)
    backend = Backend("emulated", np, cudnn_attention.rows(device))
    inputs = [aligned(device, x) for x in arrays(ins, "float16")]
    kinds = (np.dtype("float16"),) * 3

    def made_by(which, given, made, names):
        have = {n for n, x in zip(which.input_names(a), given) if x is not None}
        used = frozenset(have | {n for n, x in zip(names, made) if x is not None})
        for owner in (backend, HOST):
            kernel = owner.choose(which, a, ins, outs, kinds[0], kinds, used)
            assert kernel.is_reference == (owner is HOST)
            work = scratch(device, kernel.workspace)
            services = {"work": work, "shapes": (ins, outs), "train": True, "rng": None, "state": {}}
            bind_call(kernel, np, which, a, given, made, **services)()
            yield [None if x is None else x.copy() for x in made]

    made = [aligned(device, np.zeros(outs[0], "float16")), aligned(device, np.zeros(outs[1], "float32"))]
    got, want = made_by(op, inputs, made, op.output_names(a))
    close(
        {"out": got[0], "sums": got[1].astype("float16")}, {"out": want[0], "sums": want[1].astype("float16")}
    )
    have = dict(zip(("query", "key", "value", "out", "log_sum"), (*inputs, *made)))
    have["d_out"] = aligned(device, arrays(outs[:1], "float16", 2)[0])
    names = op.grad_op.output_names(a)
    grads = [
        aligned(device, np.zeros(s, "float16")) if wanted is None or n in wanted else None
        for n, s in zip(names, ins)
    ]
    given = [have[n] for n in op.grad_op.input_names(a)]
    got, want = made_by(op.grad_op, given, grads, names)
    for name, x, y in zip(names, got, want):
        if y is not None:
            close({name: x}, {name: y})


def test_attention_that_cudnn_cannot_run_is_left_to_others(device, monkeypatch, caplog):
    """It is tried when it is chosen, where anything is measured, and not again."""
    op, half = ops.scaled_dot_product_attention, np.dtype("float16")
    shapes = ((2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 16))
    _, outs = op.infer_shape(op.Attrs(), *shapes)
    tried = []

    def fails(*given, **named):
        tried.append(given)
        raise RuntimeError("Unable to load any libcudart library")

    def chosen(there, which):
        rows = cudnn_attention.rows(there)
        used = frozenset({*which.input_names(op.Attrs()), *which.output_names(op.Attrs())})
        return Backend("emulated", np, rows).choose(which, op.Attrs(), shapes, outs, half, (half,) * 3, used)

    def time(run, repeats):
        with np.errstate(all="ignore"):  # the arrays hold garbage
            run()

    monkeypatch.setattr(StreamedDevice, "time", staticmethod(time), raising=False)
    there = StreamedDevice()
    for which in (op, op.grad_op):
        assert chosen(there, which).name == "cudnn attention"
    assert len(fake_cudnn.state.executed) == 2
    monkeypatch.setattr(fake_cudnn.pygraph, "execute", fails)
    there = StreamedDevice()
    for which in (op, op.grad_op) * 2:
        assert chosen(there, which).is_reference
    assert len(tried) == 2
    assert (
        caplog.text.count("cudnn attention is not used: cudnn attention could not be run: Unable to load")
        == 2
    )
    monkeypatch.setenv("MXLITE_GPU_TUNING", "0")  # nor is it where nothing is measured
    assert chosen(StreamedDevice(), op).is_reference and len(tried) == 3


def test_rows_on_cudnn_come_before_others(device):
    op = ops.scaled_dot_product_attention
    rows = table(device)[op]
    assert rows[0].__module__.endswith("cudnn_attention")
    assert op not in cudnn_attention.rows(EmulatedDevice())


def test_the_gradient_of_attention_is_made_of_as_many_samples_as_scratch_allows(device, monkeypatch):
    op = ops.scaled_dot_product_attention
    ins = ((4, 1, 4, 8), (4, 1, 7, 8), (4, 1, 7, 8))
    _, outs = op.infer_shape(op.Attrs(), *ins)

    def refuse(graph):
        return graph.made[0].how[0] == "part" and graph.inputs[0].dim[0] > 2

    monkeypatch.setattr(fake_cudnn.state, "refuse", refuse)
    half = np.dtype("float16")
    backend = Backend("emulated", np, cudnn_attention.rows(device))
    q, k, v, d = (aligned(device, x) for x in arrays((*ins, *outs[:1]), "float16"))
    out, sums = np.empty(outs[0], half), np.empty(outs[1], "float32")
    kernel = HOST.choose(op, op.Attrs(), ins, outs, half, (half,) * 3)
    services = {"shapes": (ins, outs), "train": True, "rng": None, "state": {}}
    given = [q, k, v]
    work = scratch(device, kernel.workspace)
    bind_call(kernel, np, op, op.Attrs(), given, [out, sums], work=work, **services)()
    out, sums = aligned(device, out), aligned(device, sums)
    have = {"query": q, "key": k, "value": v, "out": out, "log_sum": sums, "d_out": d}
    given = [have[n] for n in op.grad_op.input_names(op.Attrs())]
    found = []
    for owner in (backend, HOST):
        made = [aligned(device, np.zeros(s, half)) for s in ins]
        kernel = owner.choose(op.grad_op, op.Attrs(), ins, outs, half, (half,) * 3)
        work = scratch(device, kernel.workspace)
        bind_call(kernel, np, op.grad_op, op.Attrs(), given, made, work=work, **services)()
        found.append(dict(enumerate(made)))
    assert len(fake_cudnn.state.executed) == 2
    close(*found)


def test_on_a_device_the_fastest_way_is_taken_and_kept(device, monkeypatch, tmp_path):
    """Our own kernel, if that is what the clock says; without measuring, cuDNN's first offer."""
    monkeypatch.setenv("MXLITE_CACHE_DIR", str(tmp_path))
    measured = []

    def time(run, repeats=5):
        fake_cudnn.state.executed.clear()
        with np.errstate(all="ignore"):  # the arrays hold garbage
            run()
        measured.append(run)
        return 2.0 if fake_cudnn.state.executed else 1.0

    op, a, shapes = small()
    want = {"0": "cudnn convolution", "1": "cuda convolution"}
    for tuning, name in want.items():
        monkeypatch.setenv("MXLITE_GPU_TUNING", tuning)
        monkeypatch.setattr(StreamedDevice, "time", staticmethod(time), raising=False)
        for _ in range(2):  # another device asks the disk
            found = kernel_of(StreamedDevice(), op, a, shapes, "float32")
            assert found.name.startswith(name)
            autotune.forget()
    assert len(measured) == 4  # the first is tried by either device without measuring


def test_without_measuring_a_convolution_that_cudnn_cannot_run_is_ours(device, monkeypatch, caplog):
    monkeypatch.setenv("MXLITE_GPU_TUNING", "0")

    def time(run, repeats=5):
        with np.errstate(all="ignore"):  # the arrays hold garbage
            run()
        return 1.0

    def fails(graph, *_, **__):
        raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")

    monkeypatch.setattr(StreamedDevice, "time", staticmethod(time), raising=False)
    op, a, shapes = small()
    assert kernel_of(StreamedDevice(), op, a, shapes, "float32").name.startswith("cudnn convolution")
    monkeypatch.setattr(fake_cudnn.pygraph, "execute", fails)
    assert kernel_of(StreamedDevice(), op, a, shapes, "float32").name.startswith("cuda convolution")
    assert "is not used where there is another way: " in caplog.text


@pytest.mark.parametrize("faster", ["ours", "cudnn", "apart"])
def test_no_plan_is_made_where_another_way_was_chosen(device, monkeypatch, tmp_path, faster):
    """In a later process: none for our own kernel, of a sum apart none with the sum, and no lean one beside
    the plan that was chosen."""
    monkeypatch.setenv("MXLITE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(choice, "LEAN", fake_cudnn.WORKSPACE - 1)

    def time(run, repeats=5):
        fake_cudnn.state.executed.clear()
        with np.errstate(all="ignore"):  # the arrays hold garbage
            run()
        graphs = fake_cudnn.state.executed
        if faster == "apart":
            return 1.0 if graphs and len(graphs[0].inputs) == 2 else 2.0
        return 1.0 if bool(graphs) == (faster == "cudnn") else 2.0

    monkeypatch.setattr(StreamedDevice, "time", staticmethod(time), raising=False)
    op, a, shapes = added("float32")[:3] if faster == "apart" else small()
    names, plans = [], []
    for _ in range(2):
        autotune.forget()
        there = StreamedDevice()
        names.append(kernel_of(there, op, a, shapes, "float32").name)
        plans.append(len(cudnn.session(there)._plans))
    autotune.forget()
    assert names[0] == names[1]
    assert plans == {"ours": [2, 0], "cudnn": [2, 1], "apart": [4, 1]}[faster]


def test_no_plan_is_made_where_a_product_is_taken_without_measuring(device):
    """A convolution of one tap."""
    op, data, attrs = ops.ConvolutionChannelsLast, (2, 6, 7, 4), dict(kernel=(1, 1), num_filter=8)
    a = op.Attrs(**attrs)
    ins, outs = op.infer_shape(a, data, None, None)
    assert kernel_of(device, op, a, (ins, outs), "float32").name == "cuda gemm"
    assert not cudnn.session(device)._plans


NORMS = {
    "alone": (ops.BatchNorm, {}),
    "rectified": (ops.NormAct, {"relu": True}),
    "with a sum": (ops.NormAct, {"relu": True, "plus": "array"}),
}


def norm(name, dtype, shape=(6, 5, 4, 8), **attrs):
    op, more = NORMS[name]
    a = op.Attrs(fix_gamma=False, axis=-1, **{**more, **attrs})
    wide, narrow = np.dtype(as_dtype(dtype)), np.dtype("float32")
    count = len(op.input_names(a))
    ins, outs = op.infer_shape(a, shape, *(None,) * (count - 1))
    kinds = tuple(narrow if 1 <= i <= 4 else wide for i in range(count))
    return op, a, ins, outs, kinds


def norm_kernel(device, op, a, ins, outs, kinds, train=True):
    return Backend("emulated", np, table(device)).choose(op, a, ins, outs, kinds[0], kinds, None, train)


@pytest.fixture
def timed(device, monkeypatch, tmp_path):
    """A device on which cuDNN's norms measure faster than ours."""
    monkeypatch.setenv("MXLITE_CACHE_DIR", str(tmp_path))
    autotune.forget()
    device.time = lambda run: (
        2.0 if isinstance(run, InOrder) or run.__module__ == "tests.emulators.emulated_device" else 1.0
    )
    yield device
    autotune.forget()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", NORMS)
def test_norms_forward_and_backward(timed, name, dtype):
    op, a, ins, outs, kinds = case = norm(name, dtype)
    rng = np.random.default_rng(0)
    x = [aligned(timed, (rng.uniform(0.5, 1.5, s) if i == 4 else rng.standard_normal(s)).astype(k))
         for i, (s, k) in enumerate(zip(ins, kinds))]  # fmt: skip
    d_out = aligned(timed, rng.standard_normal(outs[0]).astype(kinds[0]))
    kernel = norm_kernel(timed, *case)
    assert kernel.name == "cudnn batch norm"

    def computed(backend_kernel):
        forward, backward = backend_kernel(op), backend_kernel(op.grad_op)
        made = [aligned(timed, np.zeros(s, kinds[0] if i == 0 else np.float32)) for i, s in enumerate(outs)]
        given = [aligned(timed, v) for v in x]
        work = scratch(timed, max(forward.workspace, backward.workspace))
        bind_call(forward, np, op, a, given, made, work=work, train=True, shapes=(ins, outs))()
        assert all(np.array_equal(p, q) for p, q in zip(given, x)), "forward must not move averages"
        have = {**dict(zip(op.input_names(a), given)), **dict(zip(op.output_names(a), made)), "d_out": d_out}
        needs = op.grad_op.input_names(a)
        like = {f"d_{n}": v for n, v in zip(op.input_names(a), given)}
        grads = [aligned(timed, np.zeros_like(like[n])) for n in op.grad_op.output_names(a)]
        back = [have.get(n) for n in needs]
        bind_call(backward, np, op.grad_op, a, back, grads, work=work, train=True, shapes=(ins, outs))()
        return {str(i): v for i, v in enumerate((*made, *grads, given[3], given[4]))}, backward.name

    got, used = computed(lambda o: norm_kernel(timed, o, *case[1:]))
    want, _ = computed(lambda o: HOST.choose(o, a, ins, outs, kinds[0], kinds))
    lean = dtype == "float32" or name != "rectified"
    assert used == ("cudnn batch norm gradient" if lean else "cuda norm, sum, rectifier gradient")
    for i, y in want.items():
        limit = 2e-2 if y.dtype != np.float32 or dtype != "float32" else 2e-5
        np.testing.assert_allclose(np.float64(got[i]), np.float64(y), rtol=limit, atol=limit * 4, err_msg=i)


def test_norms_that_are_left_to_our_kernels(timed):
    for attrs, train in (({"use_global_stats": True}, True), ({}, False)):
        assert norm_kernel(timed, *norm("alone", "float32", **attrs), train=train).name == "cuda batch norm"
    op, _, ins, outs, kinds = norm("alone", "float32")
    fixed = op.Attrs(fix_gamma=True, axis=-1)
    assert norm_kernel(timed, op, fixed, ins, outs, kinds).name == "cuda batch norm"


def test_no_norm_is_planned_where_the_choice_is_known_or_cannot_be_measured(timed, monkeypatch):
    """A plan takes seconds."""
    timed.time = lambda run: 1.0
    assert norm_kernel(timed, *norm("alone", "float32")).name == "cuda batch norm"
    autotune.forget()  # a process later: the choice is on disk
    cudnn._sessions.clear()
    monkeypatch.setattr(fake_cudnn, "pygraph", None)
    assert norm_kernel(timed, *norm("alone", "float32")).name == "cuda batch norm"
    monkeypatch.setenv("MXLITE_GPU_TUNING", "0")
    assert norm_kernel(timed, *norm("alone", "float32", (2, 3, 4, 8))).name == "cuda batch norm"


def test_what_cudnn_has_normalized_is_not_made_again_by_our_kernel(timed, monkeypatch):
    """It rounds in a way of its own, and results do not depend on whether there is a budget."""
    _, _, ins, outs, kinds = norm("with a sum", "float32")
    attrs = NormActAttrs(fix_gamma=False, axis=-1, plus="array")
    again = Request(ops.NormRemat, attrs, ins, outs[:1], kinds[0], kinds)
    target = GPUTarget.of(table(timed))
    assert not target.has_kernel(again)
    monkeypatch.setenv("MXLITE_GPU_TUNING", "0")  # then the norm is ours
    assert target.has_kernel(again)


class WholeDevice(StreamedDevice):
    """What the device check asks of a device besides: copies, and a graph that is the calls."""

    def active(self):
        return nullcontext()

    def mark(self):
        return 0

    def upload(self, target, source):
        target[...] = source

    def download(self, target, source, after):
        target[...] = source

    def fill_bytes(self, target, byte):
        target.view(np.uint8)[...] = byte

    def capture(self, calls):
        return InOrder(calls)


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("name", NORMS)
def test_the_device_check_holds_cudnns_norms_against_ours(device, monkeypatch, name, gradient):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[4] / "scripts"))
    ways = importlib.import_module("device_sections.ways")
    there, found = WholeDevice(), {}
    case = ways.norm_case("float32", (3, 2, 3, 8), gradient, **ways.NORMS[name])
    ways.norm(there, cudnn.session(there), case, found)
    assert {*found} == {n for n in case.makes if not n.startswith("new")}
    monkeypatch.setattr(
        fake_cudnn, "batch_norm", lambda how, pack, was=fake_cudnn.batch_norm: was(how, pack)[::-1]
    )
    with pytest.raises((AssertionError, ValueError)):
        ways.norm(there, cudnn.session(there), case, found)
