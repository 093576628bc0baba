"""Programs in the style of MXNet's tutorials give MXNet's numbers.

The literals are what MXNet 1.9.1 gives (CPU, MXNET_SUBGRAPH_BACKEND=NONE, Python 3.11, numpy 1.23.5), printed
by `python tests/mxnet_programs.py mxnet`. Where a Python with MXNet is at hand, they are measured again.
"""

import logging
import os
import subprocess
from pathlib import Path

import mxnet_programs
import numpy as np
import pytest

import mxlite as mx

# fmt: off
MEASURED = {
    "fit_with_momentum": [
        0.7586, 0.25483, 0.22998, 0.26113, -1.40952, 2.54204, -0.04961, 0.12083, -0.28594, -0.03047,
        0.43366, 0.41356, 0.8696, 0.09772, -0.03355, 1.03788, 1.04791, 1.05126, 0.45833, 1.05772, 20.0,
        7.68878, 0.20016, 0.51536, 0.0, 0.0, 4.0,
    ],
    "fit_lenet_with_adam": [
        -1.27934, 0.87728, -0.08966, -0.20614, -0.29671, -0.24589, 0.22975, 0.67295, 3.93593, -0.1884,
        -0.01469, 0.16347, 0.13823, 0.00738, -0.16607, -1.42162, 0.57937, -0.2919, -0.19738, -0.11961,
        0.09057, -0.13769, 8.0, 2.70085, 0.28312, 0.36621,
    ],
    "fit_a_residual_network": [
        -0.30005, -0.11717, 1.0, 1.0, 0.23516, 0.05963, 0.18772, -0.08605, 0.26337, -0.09218, 0.16402,
        0.14398, 3.18073, 9.06465, -0.14203, -0.28413, -0.03445, -0.06866, 0.1031, -1.11063, 0.8589,
        -0.0236, 0.18806, -0.28326, 0.95393, -0.21296, 0.12586, -1.74582, 2.31737, -0.2165, -0.19956,
        0.74155, 0.75263, 0.55483, 0.73108, 0.5791, 0.75926, 0.32608, 0.6914, 0.52911, 0.87829, 0.48008,
        0.742, 24.0, 8.14947, 0.30822, 0.39916,
    ],
    "loop_by_hand": [
        0.0, 3.0, 2.0, 0.0, 2.0, 2.0, 0.69277, 0.23909, 0.22998, 0.27151, -1.65655, 2.55397, -0.04979,
        0.13223, 0.15148, 0.07939, -0.11362, 0.41501, 0.79758, 0.09806, -0.17407, -0.04293, 0.0323,
        -0.01767, 0.02057, 0.27344, 0.06164, 0.0, 0.07551, 1.2943, 0.15044, 0.0, 0.02827, 0.96681, 0.82099,
        -1.7878, -0.0, 1.1555, 0.0, -0.80849, 0.0, 0.0, 0.0, 0.0,
    ],
    "stop_and_go_on": [
        0.70562, 0.25188, 0.22998, 0.2853, -1.59899, 2.54649, -0.04979, 0.13476, 0.14184, 0.19575, -0.22034,
        0.41501, 0.80536, 0.09806, -0.21411, 0.70562, 0.25188, 0.22998, 0.2853, -1.59899, 2.54649, -0.04979,
        0.13476, 0.14184, 0.19575, -0.22034, 0.41501, 0.80536, 0.09806, -0.21411, 0.69935, 0.2464, 0.22998,
        0.28091, -1.62132, 2.55278, -0.04979, 0.13525, 0.21828, 0.14539, -0.24642, 0.41501, 0.80234,
        0.09806, -0.21643,
    ],
    "fine_tune": [
        3.51845, 1.85685, 0.0, 0.48932, 0.69934, 0.24441, 0.22998, 0.2789, -1.61861, 2.55636, -0.04979,
        0.1356, -0.20482, -0.1255, 0.33032, 1.2, 0.07964, 0.05, 0.12698,
    ],
    "unrolled_lstm": [
        5.76696, -1.14997, 0.47309, -0.04203, 0.01955, -1.49305, -0.13266, 0.87726, 0.1792, 0.4225,
        -0.08627, -0.5923, 0.64171, 0.08963, 0.18507, -0.1487, 0.59821, -0.15885, -0.0044, -0.11115,
        2.37358, 0.15048, -0.2355, 0.97597, 0.44588, 0.10401, 0.07354, -1.02511, 1.66186, -0.21631, 0.02178,
    ],
    "first_state_of_zeros": [
        0.72038, 0.74887, -0.18874, 0.28517, 2.89511, 4.48585, -0.11996, 0.71031, 13.99476, 13.56294,
        0.71522, 0.39407, 27.0, 69.5, 1.0, 3.5, 7.0, 7.0,
    ],
    "several_losses": [
        -0.17768, 0.22808, -0.28836, 0.09628, -1.06639, 0.2927, -0.05019, 0.10891, 0.21052, -0.05642,
        0.03301, -0.23043, -0.1775, 0.30194, 0.32466, 0.31783, 0.28929, 0.30123, 0.29658, 0.10683, 0.06511,
        0.07958, 0.00055, 0.00027, 0.00185, 0.00996, 0.00993,
    ],
    "rates_of_single_parameters": [
        -0.2312, -0.02218, 0.27562, 0.01932, 0.14083, -0.09644, -0.98412, 1.01636, -0.04104, 0.23284,
        -0.00506, -0.26798, 0.04447, -0.33431, 0.65756, 0.1119, -0.14067,
    ],
    "two_networks_play": [
        -0.28568, 0.04687, -0.06092, 0.05083, -0.14638, 0.25498, -0.25212, 0.07178, -1.08472, 0.31352,
        -0.05758, 0.12685, 0.15052, 0.31097, -0.08202, 0.14542, 0.19592, -1.58991, 0.58997, -0.02792,
        -0.20596, -0.27097, 0.20694, -0.2788, -0.24741, -0.22797, 0.19701,
    ],
    "optimizers_by_hand": [
        0.66627, -1.61065, 2.55503, 0.38542, -0.77084, 1.15626, 0.7, -1.7, 2.7, 0.22558, -1.16945, 2.15734,
        0.73619, -1.73305, 2.73211,
    ],
    "arrays_without_a_graph": [
        0.54475, 1.12391, -0.05076, 0.78257, -1.0, -1.0, 4.0, 7.0, 7.0, 7.0, 0.54475, 1.12391, -0.05076,
        58.18644, 288.86132, 5.27222, 5.23633, 25.0, 12.76992, 0.51523, 0.56325, 0.5, 0.5, 1.0, 3.0, 3.0,
        3.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.21743, 1.0, 0.25, 46.0, 330.0, 4.0, 7.0, 1.0, 2.0, 1.0, 2.0,
        4.78035, 2.99241, 0.86101, 0.35029, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 342.0, 350.0,
    ],
    "sentences_in_buckets": [
        -2.00307, 3.68948, -0.04773, -0.23872, 1.10011, -1.03056, -0.42959, -1.25004, -5.18408,
        7.35399, 0.36194, -0.88519, 0.41473, 33.79793, -3.42121, -3.51663, 0.96696, 14.184,
        -1.31328, -0.36638, -0.56465, -1.14236, 0.11068, -2.76149, 1.099, 3.1098, -0.372, -0.84488,
        8.0, 6.0, 8.38513, 3.0, 4.0, 6.0, 6.0, 30.0, 6.0, 30.0, 3.0, 15.0, 3.0, 15.0, 3.0, 15.0,
        3.0, 15.0, 3.0, 15.0, 6.0, 30.0, 4.0, 20.0, 4.0, 20.0, 3.0, 15.0, -2.01236, 3.76118,
        -0.04773, -0.23872, 1.18132, -0.97414, -0.4865, -1.22242, -5.41581, 7.62738, 0.36461,
        -0.91319, 0.15536, 35.1258, -3.52399, -3.61952, 1.48417, 13.24674, -1.21408, -0.26418,
        -0.47995, -1.06718, 0.06355, -2.72197, 0.92543, 3.09473, -0.42163, -0.8732,
    ],
}
# fmt: on
"""Program -> its numbers, to five decimals."""


@pytest.mark.parametrize("program", mxnet_programs.PROGRAMS, ids=lambda p: p.__name__)
def test_a_program_for_mxnet_gives_mxnets_numbers(program, tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        values = program(mx, str(tmp_path))
    np.testing.assert_allclose(values, MEASURED[program.__name__], rtol=1e-4, atol=1e-4)


def test_every_program_has_its_measured_numbers():
    assert list(MEASURED) == [p.__name__ for p in mxnet_programs.PROGRAMS]


def test_fit_logs_as_mxnet_does(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        mxnet_programs.fit_with_momentum(mx, str(tmp_path))
    lines = [r.getMessage() for r in caplog.records]
    assert lines[0].startswith("Epoch[0] Batch [0-2]\tSpeed: ")
    assert lines[0].endswith("cross-entropy=1.205085")
    assert [x.split("=")[0] for x in lines[1:4]] == [
        "Epoch[0] Train-cross-entropy",
        "Epoch[0] Time cost",
        "Epoch[0] Validation-cross-entropy",
    ]


@pytest.mark.mxnet
@pytest.mark.skipif("MXLITE_MXNET_PYTHON" not in os.environ, reason="no Python with MXNet 1.9.1 is named")
def test_mxnet_still_gives_the_measured_numbers():
    script = Path(mxnet_programs.__file__)
    run = subprocess.run(
        [os.environ["MXLITE_MXNET_PYTHON"], script, "mxnet"],
        env=os.environ | {"MXNET_SUBGRAPH_BACKEND": "NONE"},
        capture_output=True,
        text=True,
        check=True,
    )
    for name, values in MEASURED.items():
        (line,) = [x for x in run.stdout.splitlines() if x.startswith(f'    "{name}": [')]
        found = [float(x) for x in line.split("[")[1].rstrip("],").split(",")]
        np.testing.assert_allclose(found, values, rtol=1e-4, atol=1e-4)


def test_modules_have_all_the_names_that_mxnets_programs_use():
    assert mx.sym is mx.symbol and mx.nd is mx.ndarray and mx.mod is mx.module and mx.init is mx.initializer
    assert mx.rnd is mx.random and mx.viz is mx.visualization and mx.opt is mx.optimizer
    assert mx.misc.FactorScheduler is mx.lr_scheduler.FactorScheduler
    assert issubclass(mx.base.MXNetError, RuntimeError) and mx.base.MXNetError is mx.MXNetError
    assert mx.context.cpu(0) == mx.context.Context("cpu", 0) == mx.context.current_context()
    assert (
        mx.name.Prefix and mx.attribute.AttrScope and mx.callback.do_checkpoint and mx.model.load_checkpoint
    )
