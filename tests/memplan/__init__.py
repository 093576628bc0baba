"""Tests of mxlite.memplan."""
