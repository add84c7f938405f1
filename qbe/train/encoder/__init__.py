"""Sentence encoders learned from co-citations, by ASPIRE's objectives."""
