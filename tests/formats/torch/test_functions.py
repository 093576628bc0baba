"""Single functions of PyTorch: each has the results and the gradients that it has there."""

import pytest

pytest.importorskip("torch", reason="PyTorch is where these functions come from")

import torch

from tests.formats.torch.functions import Group, GROUPS
from tests.formats.torch.peer import beside

pytestmark = pytest.mark.torch


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", GROUPS)
def test_functions_are_those_of_pytorch(name):
    torch.manual_seed(3)
    shape, functions = GROUPS[name]
    found = beside(Group(shape, functions), (torch.randn(shape),))
    wrong = {n: e for n, e in zip(functions, found.each) if not e < 1e-4}
    slopes = {n: e for n, e in found.gradients.items() if not e < 1e-4}
    assert not wrong and not slopes
