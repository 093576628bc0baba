"""Tests of mxlite.formats, and of files that nobody should have written."""
