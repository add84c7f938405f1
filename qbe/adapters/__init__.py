"""Adapters of other libraries: PyTerrier's transformers, and models of sentence-transformers."""
