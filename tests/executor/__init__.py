"""Tests of mxlite.executor."""
