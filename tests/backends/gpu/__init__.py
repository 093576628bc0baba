"""Tests of the GPU backend, on emulators or on a GPU."""
