"""Stand-ins for other packages that the programs import: plots and bars do nothing, the rest is small."""

from __future__ import annotations

import contextlib
import math
import sys
import types
import wave
from unittest import mock

import numpy as np

_SILENT = ("matplotlib", "matplotlib.pyplot", "IPython", "IPython.display", "imageio", "cv2")


class CartPole:
    """A pole on a cart, pushed left or right: state (position, speed, angle, its speed), reward 1 a step.

    Barto, Sutton and Anderson, Neuronlike adaptive elements that can solve difficult learning control
    problems, 1983; the pole has fallen at 12 degrees, and an episode ends after 200 steps.
    """

    def seed(self, seed: int) -> None:
        self._random = np.random.RandomState(seed)

    def reset(self) -> np.ndarray:
        self._state, self._steps = self._random.uniform(-0.05, 0.05, 4), 0
        return self._state

    def step(self, action: int) -> tuple[np.ndarray, float, bool, dict]:
        x, v, angle, turn = self._state
        sin, cos, step = math.sin(angle), math.cos(angle), 0.02
        force = ((10.0 if action else -10.0) + 0.05 * turn**2 * sin) / 1.1
        bend = (9.8 * sin - cos * force) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        push = force - 0.05 * bend * cos / 1.1
        self._state = np.array([x + step * v, v + step * push, angle + step * turn, turn + step * bend])
        self._steps += 1
        fallen = abs(self._state[0]) > 2.4 or abs(self._state[2]) > math.radians(12)
        return self._state, 1.0, fallen or self._steps >= 200, {}


def _load(file: str, **_) -> tuple[np.ndarray, int]:
    """The samples of a WAV file of 16 bits, in [-1, 1), and their rate."""
    with wave.open(file) as sound:
        samples = np.frombuffer(sound.readframes(sound.getnframes()), "<i2")
        return (samples / 32768).astype("f"), sound.getframerate()


def _cepstrum(y: np.ndarray, sr: int, n_mfcc: int = 20, **_) -> np.ndarray:
    """(n_mfcc, frames): logarithms of a spectrum's bands, transformed by cosines."""
    frames = y[: len(y) // 512 * 512].reshape(-1, 512)
    bands = np.abs(np.fft.rfft(frames))[:, :256].reshape(-1, 64, 4).sum(2)
    angles = np.pi / 64 * np.outer(np.arange(n_mfcc), np.arange(64) + 0.5)
    return np.cos(angles) @ np.log(bands + 1e-6).T


def install() -> None:
    """Put them into `sys.modules` of this process, and names into packages that have lost them."""
    with contextlib.suppress(ImportError):
        import pandas  # it looks for bottleneck itself

        with contextlib.suppress(pandas.errors.OptionError):
            pandas.set_option("future.infer_string", False)
        pandas.DataFrame.as_matrix = pandas.Series.as_matrix = lambda table: table.to_numpy("float64")
    with contextlib.suppress(ImportError):
        from PIL import Image

        Image.ANTIALIAS = Image.LANCZOS
    for name in _SILENT:
        sys.modules[name] = mock.MagicMock()
    sys.modules["matplotlib.pyplot"].subplots.side_effect = lambda rows=1, columns=1, **_: (
        mock.MagicMock(),
        [mock.MagicMock() for _ in range(rows * columns)],
    )
    sys.modules["matplotlib"].pyplot = sys.modules["matplotlib.pyplot"]
    _module("tqdm", tqdm=lambda rows, *_, **__: rows, trange=range)
    _module("bottleneck", argpartition=np.argpartition)
    _module("gym", make=lambda _: CartPole())
    sound = _module("librosa", load=_load)
    sound.feature = _module("librosa.feature", mfcc=_cepstrum)
    _module("inception_score", get_inception_score=lambda images: (1.0, 0.0))  # a network of the web grades


def _module(name: str, **names) -> types.ModuleType:
    sys.modules[name] = module = types.ModuleType(name)
    vars(module).update(names)
    return module
