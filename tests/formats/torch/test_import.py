"""Networks imported from PyTorch: outputs, gradients of every parameter, names."""

import pytest

pytest.importorskip("torch", reason="PyTorch is where these networks come from")

import torch

from tests.formats.torch.modules import LIST, NETWORKS
from tests.formats.torch.peer import compare, names_kept, trained

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_and_gradients_are_those_of_pytorch(name):
    torch.manual_seed(7)
    module, inputs = NETWORKS[name]()
    _, args, aux = compare(module, inputs)
    assert names_kept(module, args, aux)


@pytest.mark.parametrize("name", LIST)
def test_the_families_of_the_list_train_as_in_pytorch(name):
    torch.manual_seed(7)
    for ours, theirs in trained(*NETWORKS[name](), steps=3):
        assert abs(ours - theirs) <= 1e-4 * max(abs(theirs), 1)
