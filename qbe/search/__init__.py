"""Searching an index: first stages, rerankers, sessions, and results for people and for programs."""
