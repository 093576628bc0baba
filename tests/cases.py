"""The rows that `conformance.py` runs: for each operator, the parameters and shapes worth trying.

A new operator needs a row here (or in `cases_nn.py`, for the layers of neural networks), no test.
"""

from __future__ import annotations

from case import Case as Case

CASES: dict[str, Case] = {}
