"""Moved."""

from qbe.search.explain import *  # noqa: F403
