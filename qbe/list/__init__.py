"""The papers of an index as a list."""
