"""From CUDA C++ text to machine code that is kept on disk."""
