"""Tests of mxlite.graph."""
