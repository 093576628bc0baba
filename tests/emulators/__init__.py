"""Hardware and libraries that are not here: a GPU, its driver, cuDNN, CuPy, each on the CPU."""
