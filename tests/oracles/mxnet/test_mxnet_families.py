"""Programs of families that MXNet's examples had give MXNet's numbers; see `test_mxnet_programs.py`.

The literals are printed by `python tests/oracles/mxnet/mxnet_families.py mxnet`.
"""

import os

import numpy as np
import pytest

import mxlite as mx
from tests.oracles.mxnet import mxnet_families
from tests.oracles.mxnet.mxnet_programs import numbers_of_mxnet

# fmt: off
MEASURED = {
    "segmentation": [
        0.11445, 0.29849, -0.19666, -0.21775, -0.50245, 3.40027, -0.04969, 0.25707, 0.02639, 0.09259,
        -0.21322, 0.15079, -0.16682, 0.01161, 1.48989, 6.65011, 0.25897, 0.07292, 35.91859, 13.99969,
        0.06386, 0.05863, -0.09497, 0.20748, -0.04265, 0.07709, 0.33324, 0.12532, 0.1594, -0.14463,
        -0.14579, 0.07947, 1.36757, 0.65896, 0.17081, 0.13872, 12.0, 4.6875, 0.0625, 0.0625, 0.38125, 288.0,
        96.00023, 0.3343, 0.33359,
    ],
    "text_in_pictures": [
        5.4752, 5.50395, 5.4184, 5.42753, 5.3626, 5.34912, 0.60435, 0.82457, 0.27143, -0.28395, -0.88055,
        3.599, -0.10403, 0.26867, 0.7459, 0.62532, 0.23131, 0.07732, -1.74163, 2.57103, -0.04969, 0.13878,
        0.78269, 0.91668, 0.11108, -0.14543, 0.24396, 3.19831, 0.19878, -0.21087, -0.15606, 0.51497,
        -0.01052, 0.07358, 2.41854, 2.71935, -0.19984, 0.20002, 0.13961, -0.18711, -0.31782, 0.04899,
        -0.17667, 0.04232, 0.79242, -0.29707, -0.09626,
    ],
    "words_in_context": [
        0.03286, 2.43745, -0.04974, 0.14856, 2.41667,
    ],
    "style_of_a_picture": [
        1.03151, 0.99939, 0.93091, 0.82108, 0.70257, 0.57957, 212.0296, 133.86367, 0.26119, 0.33799,
        8.02736, 0.02148, 0.22849,
    ],
    "domains_told_apart_in_vain": [
        -0.0402, 0.09989, -0.25431, -0.14144, 0.16036, 0.30222, 0.12762, -0.18746, 0.14863, -1.31623,
        1.26919, -0.03348, 0.13529, -0.14691, -0.22415, 0.25715, -1.26513, 0.33557, -0.21094, -0.17377,
    ],
}
# fmt: on
"""Program -> its numbers, to five decimals."""


@pytest.mark.parametrize("program", mxnet_families.PROGRAMS, ids=lambda p: p.__name__)
def test_a_program_for_mxnet_gives_mxnets_numbers(program, tmp_path):
    values = program(mx, str(tmp_path))
    np.testing.assert_allclose(values, MEASURED[program.__name__], rtol=1e-4, atol=1e-4)


@pytest.mark.mxnet
@pytest.mark.skipif("MXLITE_MXNET_PYTHON" not in os.environ, reason="no Python with MXNet 1.9.1 is named")
def test_mxnet_still_gives_the_measured_numbers():
    found = numbers_of_mxnet(mxnet_families.__file__)
    for name, values in MEASURED.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-4)
