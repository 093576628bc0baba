"""What others plan for networks of `mx.models`."""
