"""The ONNX standard's own tests."""
