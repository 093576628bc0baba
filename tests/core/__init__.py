"""Tests of mxlite.core."""
