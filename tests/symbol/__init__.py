"""Tests of mxlite.symbol."""
