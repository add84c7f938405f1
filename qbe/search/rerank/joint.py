"""Moved."""

from qbe.search.rerankers import *  # noqa: F403
