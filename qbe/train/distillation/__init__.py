"""Distillation: the facet rerankers learn from scores of stored vectors of a larger encoder."""
