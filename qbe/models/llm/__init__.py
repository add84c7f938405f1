"""Grades of pairs of papers by a language model behind an OpenAI-compatible endpoint."""
