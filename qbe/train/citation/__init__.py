"""Training of the citation model: a projection of stored vectors, and the heads that judge candidates."""
