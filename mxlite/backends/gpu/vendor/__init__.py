"""NVIDIA's libraries: where they are, and calls of cuBLASLt and cuDNN."""
