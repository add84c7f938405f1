"""Searches that are kept, and the papers that are new for them."""
