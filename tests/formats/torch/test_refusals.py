"""Modules that cannot be imported from PyTorch are refused with path and line, all nodes at once."""

import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("torch", reason="PyTorch is where these modules come from")

import torch
from torch import nn

import mxlite as mx
from mxlite.core import MXLiteError, ShapeError, UnknownNameError
from mxlite.formats.building import NotSupportedError
from tests.formats.torch.peer import compare

pytestmark = pytest.mark.torch


class Inner(nn.Module):
    def __init__(self, work):
        super().__init__()
        self.work = work

    def forward(self, x):
        return self.work(x)


class Outer(nn.Module):
    def __init__(self, work):
        super().__init__()
        self.fc, self.inner = nn.Linear(4, 4), Inner(work)

    def forward(self, x):
        return self.inner(self.fc(x))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


def refused(work, kind=NotSupportedError, module=Outer):
    with pytest.raises(kind) as raised:
        mx.from_torch(module(work), torch.randn(3, 4))
    return str(raised.value)


def test_everything_unsupported_is_listed_at_once():
    """By the operators that the module calls, and no other: some are decomposed before one is found that
    mxlite does not have.
    """

    def work(x):
        found = torch.linalg.svdvals(x), torch.fft.rfft(x).abs(), torch.special.log_ndtr(x)
        rest = torch.special.bessel_j0(x), torch.special.zeta(x.abs() + 2, 1.0), torch.cosine_similarity(x, x)
        return sum(y.sum() for y in (*found, *rest))

    said = refused(work)
    assert said.startswith("Outer cannot be imported: mxlite has no way to run 5 nodes of it.")
    named = re.findall(r"= aten\.(\w+)\S* in inner, .*test_refusals\.py:\d+: mxlite has no converter", said)
    assert named == ["linalg_svdvals", "fft_rfft", "special_log_ndtr", "special_bessel_j0", "special_zeta"]


def test_control_flow_that_depends_on_numbers_is_named():
    said = refused(lambda x: x if x.sum() > 0 else -x)
    assert "torch.export cannot trace Outer (in inner" in said and "test_refusals.py" in said


def test_a_backward_of_its_own_is_refused():
    """The exporter would forget it, and the gradient would be another."""
    said = refused(lambda x: Doubled.apply(x))
    assert "Doubled is an autograd.Function" in said
    x = torch.ones(1, requires_grad=True)
    Doubled.apply(x).backward()  # as before
    assert x.grad.item() == 3


def test_a_hook_of_a_gradient_is_refused():
    def hooked(x):
        x.register_hook(lambda gradient: -gradient)
        return x

    assert "Tensor.register_hook changes a gradient" in refused(hooked)
    x = torch.ones(1, requires_grad=True)
    x.register_hook(lambda gradient: -gradient)  # as before
    x.sum().backward()
    assert x.grad.item() == -1


def test_other_threads_differentiate_and_import_during_an_import():
    entered, left = threading.Event(), threading.Event()

    def slow(x):
        entered.set()
        assert left.wait(60)
        return x * 2

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(lambda: mx.from_torch(Outer(slow), torch.randn(3, 4)))
        assert entered.wait(60)
        second = pool.submit(refused, lambda x: Doubled.apply(x))
        x = torch.ones(1, requires_grad=True)
        Doubled.apply(x).backward()  # not refused: this thread exports nothing
        left.set()
        assert first.result()[0].list_outputs() and "Doubled is an autograd" in second.result()
    assert x.grad.item() == 3
    assert Doubled.apply(x).item() == 2


def test_a_buffer_that_forward_writes_is_named():
    class Counter(nn.Module):
        def __init__(self, work):
            super().__init__()
            self.register_buffer("seen", torch.zeros(4))

        def forward(self, x):
            self.seen += x.mean(0)
            return x * self.seen

    assert "writes to the buffer 'seen'" in refused(None, module=Counter)


def test_a_view_that_is_written_is_the_data_that_it_shows():
    def written(x):
        y = x * 1
        y.view(-1)[0] = 0
        y.t()[1].mul_(2)
        return y.double()

    module, x = Outer(written), torch.randn(3, 4)
    symbol, args, _ = mx.from_torch(module, x)
    found = symbol.eval(x=mx.nd.array(x.numpy()), **args)[0].asnumpy()
    assert found.dtype == "float64" and abs(found - module(x).detach().numpy()).max() < 1e-6


def test_types_and_things_that_are_no_module():
    with pytest.raises(NotSupportedError, match=r"in fc.*one dtype, got \['float64', 'float32', 'float32'\]"):
        mx.from_torch(Outer(torch.sin), torch.randn(3, 4).double())
    assert "complex64" in refused(lambda x: torch.view_as_real(x.to(torch.complex64)))
    with pytest.raises(MXLiteError, match=r"takes a torch.nn.Module, got function"):
        mx.from_torch(lambda x: x, torch.randn(1))


def test_an_import_leaves_the_module_as_it_was():
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    before = {n: t.clone() for n, t in module.state_dict().items()}
    mx.from_torch(module, torch.randn(3, 4))
    assert not any(part.training for part in module.modules())
    assert all(torch.equal(t, before[n]) for n, t in module.state_dict().items())


def test_an_operator_can_be_added():
    from mxlite.formats.torch import table

    work = torch.special.bessel_j1
    assert "special_bessel_j1" in refused(work)
    try:
        mx.torch.register("aten.special_bessel_j1")(lambda n: n.builder.op("sin", n["self"]))
        symbol, _, _ = mx.from_torch(Outer(work), torch.randn(3, 4))
        assert "sin" in {n.op.op_name for n in symbol.graph.nodes if n.op is not None}
    finally:
        del table.CONVERTERS["aten.special_bessel_j1"]


def test_an_operator_of_a_library_stays_whole():
    """`torch.library` makes an autograd.Function of its backward, which the program does not need."""
    from mxlite.formats.torch import table

    @torch.library.custom_op("mxlite_tests::tripled", mutates_args=())
    def tripled(x: torch.Tensor) -> torch.Tensor:
        return 3 * x

    tripled.register_fake(torch.empty_like)
    tripled.register_autograd(lambda ctx, dy: 3 * dy)
    assert "mxlite_tests.tripled.default in inner" in refused(tripled)
    try:
        mx.torch.register("mxlite_tests.tripled")(lambda n: n.builder.op("_mul_scalar", n["x"], scalar=3))
        layer = nn.Linear(4, 4)
        compare(nn.Sequential(layer, Outer(lambda x: tripled(x))), (torch.randn(3, 4),))
    finally:
        del table.CONVERTERS["mxlite_tests.tripled"]


def test_parameters_of_another_shape_or_name_are_not_loaded():
    module = nn.Linear(4, 2)
    before = module.weight.clone()
    with pytest.raises(ShapeError, match=r"'bias' is \(2,\) in Linear, got \(3,\)"):
        mx.torch.load_into(module, {"weight": mx.nd.zeros((2, 4)), "bias": mx.nd.zeros((3,))})
    with pytest.raises(UnknownNameError, match=r"no parameter or buffer 'wieght'"):
        mx.torch.load_into(module, {"wieght": mx.nd.zeros((2, 4))})
    assert torch.equal(module.weight, before)


def test_without_torch_the_error_says_what_to_install():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import mxlite as mx\n"
        "try: mx.from_torch(None, ())\n"
        "except mx.MXLiteError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pip install 'torch>=2.6'" in said


def test_mxlite_does_not_import_torch():
    code = "import sys, mxlite as mx; mx.from_torch, mx.torch.plan; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
