"""Tests of mxlite.backends."""
