"""Tests of mxlite.ops: rows of the table against the rules, and single facts."""
