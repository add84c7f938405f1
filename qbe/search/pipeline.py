"""Moved."""

from qbe.search.session import *  # noqa: F403
