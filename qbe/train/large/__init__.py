"""The large encoder: all layers of a base trained on graded pairs, papers in padded batches."""
