"""Networks that several benchmarks plan or run, built from `mx`, which may be mxlite or the real MXNet."""
