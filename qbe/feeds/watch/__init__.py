"""Searches that are kept, and the papers that are new for them."""

FORMATS = ("table", "json", "markdown", "atom")
"""Formats of reports."""
