"""From PyTorch to ONNX, with a parity check: beside ``qbe.train``, the only room that imports torch."""
