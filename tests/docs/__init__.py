"""The documentation and the examples are true."""
