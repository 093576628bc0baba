"""Tests of the command line and of tools: pictures, profiles, the zoo, mx.test_utils."""
