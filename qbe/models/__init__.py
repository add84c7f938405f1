"""Which models exist, where their files are, and how an ONNX session on them is opened."""
