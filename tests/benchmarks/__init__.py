"""Tests of the benchmarks, of scripts that measure, and of the torture."""
