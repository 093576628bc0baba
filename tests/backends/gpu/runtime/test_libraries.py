"""Which of several versions of NVIDIA's libraries are tried first."""

from __future__ import annotations

import sys

import pytest

from mxlite.backends.gpu.compiler import nvrtc
from mxlite.backends.gpu.vendor import cublaslt, libraries


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """Wheels for CUDA 12 and for CUDA 13 lie in this Python."""
    for name in ("cu13/lib/libcublasLt.so.13", "cu13/lib/libnvrtc.so.13", "cublas/lib/libcublasLt.so.12",
                 "cuda_nvrtc/lib/libnvrtc.so.12"):  # fmt: skip
        file = tmp_path / "nvidia" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    monkeypatch.setattr(libraries.sysconfig, "get_path", lambda _: str(tmp_path))


@pytest.mark.parametrize("there, first", [(12080, 12), (13000, 13), (13020, 13), (14000, 13), (None, 13)])
@pytest.mark.parametrize("of", [cublaslt, nvrtc])
def test_libraries_that_the_driver_can_run_come_first(of, there, first, wheels, monkeypatch):
    monkeypatch.setattr(libraries, "driver_version", lambda: there)
    found = libraries.candidates(of.FOLDERS, of.NAMES)
    assert libraries.major(found[0]) == first and "nvidia" in found[0]
    assert {12, 13} == {libraries.major(f) for f in found} - {0}  # the other is there for want of this
    newer = [libraries.major(f) * 1000 > (there or 99999) for f in found]
    assert newer == sorted(newer)


def test_wheels_are_found_wherever_python_finds_packages(tmp_path, monkeypatch):
    """Of the user, below a virtual environment, or where PYTHONPATH says; not where one happens to stand."""
    for folder in ("user", "here"):
        (tmp_path / folder / "nvidia/cu13/lib").mkdir(parents=True)
        (tmp_path / folder / "nvidia/cu13/lib/libcublasLt.so.13").touch()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(libraries.sysconfig, "get_path", lambda _: str(tmp_path / "venv"))
    monkeypatch.setattr(libraries.sys, "path", ["", str(tmp_path / "user")])
    found = libraries.candidates(cublaslt.FOLDERS, cublaslt.NAMES)
    assert found[0] == str(tmp_path / "user/nvidia/cu13/lib/libcublasLt.so.13")
    assert found[1:] == list(cublaslt.NAMES)


def test_files_say_what_cuda_they_are_of():
    names = {"libnvrtc.so.13": 13, "a.so.12/libcublasLt.so": 0, "nvrtc64_130_0.dll": 13,
             "nvrtc64_120_0.dll": 12, "cublasLt64_12.dll": 12, "libnvrtc.so": 0}  # fmt: skip
    assert {name: libraries.major(name) for name in names} == names
    assert {libraries.major(n) for n in (*cublaslt.NAMES, *nvrtc.NAMES)} == {0, 12, 13}


def test_a_driver_that_is_not_there_has_no_version(monkeypatch):
    class Library:
        def __init__(self, name):
            raise OSError(name)

    monkeypatch.setattr(libraries.ctypes, "CDLL", Library)
    assert libraries.driver_version.__wrapped__() is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the stand-in is a class for libcuda.so.1")
def test_the_drivers_version_is_what_it_says(monkeypatch):
    class Library:
        def __init__(self, name):
            assert name == "libcuda.so.1"

        @staticmethod
        def cuDriverGetVersion(number):
            number._obj.value = 12090
            return 0

    monkeypatch.setattr(libraries.ctypes, "CDLL", Library)
    assert libraries.driver_version.__wrapped__() == 12090
