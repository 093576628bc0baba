"""Names of MXNet that stand for nothing of ours, or for its view of shapes and devices."""
