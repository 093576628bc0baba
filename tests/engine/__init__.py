"""Tests of mxlite.engine."""
