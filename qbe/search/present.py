"""Moved."""

from qbe.search.writers import *  # noqa: F403
