"""From PyTorch to ONNX, with a parity check: beside ``qbe.train``, the only package that imports torch."""
