"""Moved."""

from qbe.search.rank import *  # noqa: F403
