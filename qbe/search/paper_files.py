"""Moved."""

from qbe.search.queries import *  # noqa: F403
