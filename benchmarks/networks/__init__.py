"""The benchmarks' networks, and other frameworks' figures for networks of `mx.models`."""
