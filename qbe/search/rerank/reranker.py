"""Moved."""

from qbe.search.rank import *  # noqa: F403
from qbe.search.rerankers import FunctionReranker, paper_text, query_text, scoring_of  # noqa: F401
