"""Networks imported from PyTorch: outputs, gradients of every parameter, names."""

import pytest

pytest.importorskip("torch", reason="PyTorch is where these networks come from")

import torch

from tests.formats.torch.modules import NETWORKS
from tests.formats.torch.peer import compare

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_and_gradients_are_those_of_pytorch(name):
    torch.manual_seed(7)
    module, inputs = NETWORKS[name]()
    _, args, aux = compare(module, inputs)
    assert set(args) | set(aux) <= {*dict(module.named_parameters()), *dict(module.named_buffers())} | {
        n for n in args if n.endswith("_const") or "_const_" in n or "lifted" in n
    }
