"""Tests of the passes: what each finds, and that nothing else changes."""
