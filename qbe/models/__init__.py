"""Models: where they are, what a card says of them, and all that ONNX Runtime computes with them."""
