"""Training of joint grades: a cross-encoder that grades pairs of papers, and a larger one that teaches it."""
