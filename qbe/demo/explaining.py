"""What the demonstration says of the sample, and of what to do next."""

from __future__ import annotations

import shlex
import textwrap
from pathlib import Path

ABOUT = (
    "Each of the 128 papers is invented and has a problem, a method and a finding, which vary independently: "
    "any kind of method meets any kind of problem in exactly two papers. So it shows what a facet changes. "
    "It is a demonstration, not a benchmark: scores on it say nothing about search in real literature.",
    "For method and finding a ranking by words alone can beat one by vectors here. The papers of one method "
    "or finding share its rare words, whatever their problem is. The vector of a sentence is computed in the "
    "context of its abstract and so carries the topic too, which here says nothing about the method. In real "
    "literature papers that share a method mostly share a problem as well. --separate 1 takes the query's "
    "problem out.",
)
"""Paragraphs about the sample."""


def about_the_sample(width: int) -> str:
    """What the sample is for, and why words can beat vectors there.

    >>> about_the_sample(60).splitlines()[:2]
    ['About the sample', '']
    """
    return "\n\n".join(["About the sample", *(textwrap.fill(text, width) for text in ABOUT)])


def next_steps(folder: Path) -> str:
    """Commands to continue with; ``folder`` is the sample's index.

    >>> print(next_steps(Path("demo")))
    What to do next
    <BLANKLINE>
      search by words alone      the commands above with --first-stage bm25 --rerank none
      search with your own text  qbe search --index demo --text "We ..." --facet method
      index your own papers      qbe index --corpus FILE --output DIR
      check the installation     qbe doctor
      read on                    README.md, docs/searching.md, docs/indexing.md; qbe COMMAND --help
    """
    index = shlex.quote(str(folder))
    rows = {
        "search by words alone": "the commands above with --first-stage bm25 --rerank none",
        "search with your own text": f'qbe search --index {index} --text "We ..." --facet method',
        "index your own papers": "qbe index --corpus FILE --output DIR",
        "check the installation": "qbe doctor",
        "read on": "README.md, docs/searching.md, docs/indexing.md; qbe COMMAND --help",
    }
    lines = (f"  {what:<{max(map(len, rows))}}  {how}" for what, how in rows.items())
    return "\n".join(["What to do next", "", *lines])
