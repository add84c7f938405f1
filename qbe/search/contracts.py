"""Moved."""

from qbe.search.first_stages import *  # noqa: F403
