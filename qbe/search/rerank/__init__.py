"""Rerankers: models that read a query and a candidate together, and score the pair."""
