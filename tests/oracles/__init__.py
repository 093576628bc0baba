"""Others that are asked what is right: MXNet 1.9.1 and the ONNX standard."""
