"""Choices by measurement: made once, kept on disk, and nothing on disk is believed but a name on offer."""

from __future__ import annotations

import os

import numpy as np
import pytest

from mxlite.backends.gpu.matrix import gemm
from mxlite.backends.gpu.matrix.gemm import kernel_name, Product
from mxlite.backends.gpu.runtime import autotune
from mxlite.backends.gpu.vendor.cublaslt import CublasError, CublasLtCall
from mxlite.core import MXLiteError
from mxlite.core.disk import kept
from tests.backends.gpu.kernels.test_gemm import check
from tests.backends.gpu.runtime.test_cublaslt import BlasDevice, device, lib, runs  # noqa: F401
from tests.emulators.emulated_device import compiler
from tests.engine.watchdog import in_time


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MXLITE_CACHE_DIR", str(tmp_path / "cache"))
    autotune.forget()
    yield tmp_path / "cache" / autotune.FOLDER
    autotune.forget()


class Clock:
    def __init__(self, *times):
        self.times, self.asked = times, []

    def __call__(self, i):
        self.asked.append(i)
        if isinstance(self.times[i], Exception):
            raise self.times[i]
        return self.times[i]


def test_the_fastest_is_measured_once_and_remembered(cache):
    clock = Clock(3.0, 1.0, 2.0)
    assert [autotune.fastest("k", "abc", clock) for _ in range(2)] == [1, 1]
    assert clock.asked == [0, 1, 2]
    autotune.forget()
    assert autotune.fastest("k", "cab", Clock()) == 2  # from disk, by its name
    assert autotune.fastest("other", "abc", Clock(1, 2, 0.5)) == 2
    assert len(os.listdir(cache)) == 2


def test_ranks_measure_nothing_as_all_need_the_same_kernels(monkeypatch):
    assert autotune.fastest("known", "ab", Clock(2.0, 1.0)) == 1
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "2")
    assert [autotune.fastest(key, "ab", Clock(2.0, 1.0)) for key in ("known", "new")] == [1, 0]
    monkeypatch.setenv("PMI_SIZE", "1")
    assert autotune.fastest("alone", "ab", Clock(2.0, 1.0)) == 1


def test_measuring_ends_with_the_time_for_it_and_a_later_process_goes_on(monkeypatch):
    monkeypatch.setenv("MXLITE_GPU_TUNING_SECONDS", "5")
    now, clock = [0.0], Clock(2.0, 1.0)
    monkeypatch.setattr(autotune.time, "monotonic", lambda: now[0])

    def slow(i):
        now[0] += 2.0
        return clock(i)

    chosen = [autotune.fastest(key, "ab", slow) for key in ("k", "l", "m", "m", "k")]
    assert chosen == [1, 1, 0, 0, 1]  # 4 s, 8 s, and that is more than 5
    assert clock.asked == [0, 1, 0, 1, 0]  # the last is only tried
    autotune.forget()
    assert autotune.fastest("m", "ab", slow) == 1  # nothing of it is on disk
    monkeypatch.setenv("MXLITE_GPU_TUNING_SECONDS", "0")
    assert [autotune.fastest(key, "ab", Clock(1.0)) for key in ("k", "new")] == [1, 0]
    assert autotune.fastest("fails", "ab", Clock(MXLiteError("no"), 1.0)) == 1


@in_time(20)
def test_what_is_measured_may_have_a_choice_to_make_itself():
    def seconds(i):
        return [2.0, 1.0][i] + 0 * autotune.fastest("inner", "xy", Clock(2.0, 1.0))

    assert autotune.fastest("outer", "ab", seconds) == 1


def test_what_is_hardly_faster_is_not_taken():
    assert autotune.fastest("k", "ab", Clock(1.0, 0.99)) == 0


def test_a_way_that_fails_is_not_taken_and_named(caplog):
    assert autotune.fastest("k", "abc", Clock(2.0, MXLiteError("misaligned"), 1.0)) == 2
    assert "b could not be run" in caplog.text and "misaligned" in caplog.text
    assert autotune.fastest("none", "ab", Clock(MXLiteError("no"), MXLiteError("no"))) == 0


def test_the_first_that_runs(cache):
    no, clock = MXLiteError("no"), Clock(3.0, 1.0)
    assert autotune.first_that_runs("ab", clock) == 0 and clock.asked == [0]
    assert autotune.first_that_runs("abc", Clock(no, float("inf"), 1.0)) == 2
    assert autotune.first_that_runs("ab", Clock(no, no)) == 0
    assert not cache.exists()


def test_a_choice_that_is_no_longer_on_offer_is_made_again():
    assert autotune.fastest("k", "ab", Clock(2.0, 1.0)) == 1
    assert autotune.fastest("k", "ac", Clock(2.0, 1.0)) == 1
    autotune.forget()
    assert autotune.fastest("k", "ac", Clock()) == 1


@pytest.mark.parametrize(
    "blob", [b"", b"nonsense", b"[1]", b'{"name": 3}', b'{"name": "z"}', b'{"name": "b"' * 999]
)
def test_files_that_say_nothing_useful(cache, blob):
    autotune.fastest("k", "ab", Clock(2.0, 1.0))
    (file,) = cache.iterdir()
    kept.write(str(file), autotune.MAGIC, "k", blob)
    autotune.forget()
    clock = Clock(1.0, 2.0)
    assert autotune.fastest("k", "ab", clock) == 0 and clock.asked == [0, 1]
    file.write_bytes(os.urandom(200))
    autotune.forget()
    assert autotune.fastest("k", "ab", Clock(2.0, 1.0)) == 1


def test_nothing_is_kept_where_there_is_no_cache(monkeypatch):
    monkeypatch.setenv("MXLITE_CACHE_DIR", "off")
    assert autotune.fastest("k", "ab", Clock(2.0, 1.0)) == 1
    autotune.forget()
    assert autotune.fastest("k", "ab", Clock(1.0, 2.0)) == 0


class TimedDevice(BlasDevice):
    """A device whose clock likes one of the ways: the number of an algorithm, or our own kernel."""

    architecture = "sm_90"

    def __init__(self, lib, likes):  # noqa: F811
        super().__init__(lib)
        self.likes = likes

    def time(self, run, repeats=5):
        self.launched.clear()
        run()
        found = runs(self)
        return 1.0 if (found[0].split()[6] if found else "ours") == self.likes else 2.0


@pytest.mark.skipif(compiler is None, reason="g++ is not installed")
@pytest.mark.parametrize("likes, name", [("0", "cublasLt"), ("1", "cublasLt"), ("ours", "cuda gemm")])
def test_products_are_measured(lib, monkeypatch, likes, name):  # noqa: F811
    lib.lib.stub_without(0)
    timed = TimedDevice(lib, likes)
    p = Product(20, 12, 8, "float32", bias="columns", beta=1.0)
    assert kernel_name(timed, p) == name
    timed.log()
    check(p, device=timed)
    assert [x.split()[6] for x in runs(timed)] == ([likes] if name == "cublasLt" else [])
    other = TimedDevice(lib, "nothing")  # finds what was chosen
    monkeypatch.setattr(other, "time", None)
    assert kernel_name(other, p) == name
    monkeypatch.setenv("MXLITE_GPU_TUNING", "0")
    assert kernel_name(timed, p) == "cublasLt"


@pytest.mark.skipif(compiler is None, reason="g++ is not installed")
@pytest.mark.parametrize("tunes", ["0", "1"])
def test_a_product_that_the_library_refuses_to_run_is_ours(lib, monkeypatch, caplog, tunes):  # noqa: F811
    """Though its heuristic offered it; it may be the first time that it runs, or was chosen long ago."""
    monkeypatch.setenv("MXLITE_GPU_TUNING", tunes)
    monkeypatch.setattr(gemm._Stage, "MOST", 100)  # too large to be measured
    lib.lib.stub_without(0)
    p = Product(20, 12, 9, "float32", bias="columns", beta=1.0)
    asked = []

    def refuse(call):
        asked.append(call)
        raise CublasError("cublasLtMatmul failed with status 15: not supported.")

    monkeypatch.setattr(CublasLtCall, "__call__", refuse)
    timed = TimedDevice(lib, "0")
    check(p, device=timed)
    assert len(asked) == 1 and runs(timed) == [] and "is made by mxlite's own kernel" in caplog.text


@pytest.mark.skipif(compiler is None, reason="g++ is not installed")
def test_products_too_large_to_be_measured(lib, monkeypatch):  # noqa: F811
    monkeypatch.setattr(gemm._Stage, "MOST", 100)
    timed = TimedDevice(lib, "1")
    check(Product(20, 13, 8, "float32", beta=1.0), device=timed)
    assert "algorithm 0" in runs(timed)[0]
    assert np.isfinite(gemm._Stage.MOST)
