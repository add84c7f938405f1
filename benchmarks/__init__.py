"""Measurements against the tools a user would otherwise pick; see README.md for the table."""
