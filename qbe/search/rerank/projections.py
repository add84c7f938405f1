"""Moved."""

from qbe.search.projections import *  # noqa: F403
