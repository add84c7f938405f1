"""The facet rerankers: cross-encoders trained on graded pairs of papers."""
