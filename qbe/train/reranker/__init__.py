"""The facet rerankers: cross-encoders learned from graded pairs of papers."""
