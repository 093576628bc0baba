"""Tests of mxlite.ndarray."""
