"""Grades: how similar a candidate is to a paper in each facet, on the scale of the assessors (0 to 3)."""
