"""Readers of papers, each a stream of records; what they have in common is a `qbe.types.Paper`."""
