"""Training of the grade model."""
