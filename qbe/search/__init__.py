"""Searching an index: one searcher a file, fusion as pure functions, and the searcher that users call."""
