"""Operators of PyTorch that mxlite imports, each held against PyTorch by one of PyTorch's own samples.

`python -m torture torch_operators` takes all samples of all operators.
"""

from __future__ import annotations

from itertools import islice

import pytest

pytest.importorskip("torch", reason="compares with PyTorch")
pytest.importorskip("expecttest", reason="PyTorch's samples need it")

from mxlite.formats.torch.table import converter

from .torch_operators import judge, name, operators, samples

pytestmark = pytest.mark.torch

PARTS = 4
LEAST = 50
"""Operators that each part imports, at least; the others are refused with these arguments."""


@pytest.mark.parametrize("part", range(PARTS))
def test_an_operator_of_pytorch_is_imported_as_it_is_or_refused(part):
    wrong, right = [], set()
    for operator in [o for o in operators() if converter(f"aten.{o.aten_name}.default")][part::PARTS]:
        for sample in list(islice(samples(operator), 4))[-1:]:
            verdict = judge(sample)
            if verdict is not None and verdict.wrong:
                wrong.append(f"{sample}: {verdict.wrong}")
            if verdict is not None and not verdict.refused:
                right.add(name(operator))
    assert not wrong
    assert len(right) >= LEAST, len(right)
