"""Tests of mxlite.io."""
