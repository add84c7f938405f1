"""Graded pairs of one's own: candidates from an index, grades by a language model or by hand, agreement."""
