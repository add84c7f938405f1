"""Moved."""

from qbe.search.first_stages import EncodedAspect  # noqa: F401
