"""Moved."""

from qbe.search.filters import *  # noqa: F403
