"""Moved."""

from qbe.search.matching import *  # noqa: F403
