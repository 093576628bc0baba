"""Tests of mxlite.module."""
