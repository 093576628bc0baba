"""The CPU's kernels: oneDNN's and generated ones. `backend.py` assembles the backend from them."""
