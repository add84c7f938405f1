"""Moved."""

from qbe.search.grading import *  # noqa: F403
