"""Programs as MXNet's users write them, and what MXNet 1.9.1 gave."""
