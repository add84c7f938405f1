"""What the demonstration shows: searches as commands and tables, what they mean, and what to do next."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

from qbe.datasets.embedded import FACTORS, Layout, grade
from qbe.query import Query
from qbe.search.pipeline import Pipeline
from qbe.search.present import to_table
from qbe.types import Facet

ABOUT = (
    "Each of the 128 papers is invented and has a problem, a method and a finding, which vary independently: "
    "any kind of method meets any kind of problem in exactly two papers. So it shows what a facet changes. "
    "It is a demonstration, not a benchmark: scores on it say nothing about search in real literature.",
    "For method and finding a ranking by words alone can beat one by vectors here. The papers of one method "
    "or finding share its rare words, whatever their problem is. The vector of a sentence is computed in the "
    "context of its abstract and so carries the topic too, which here says nothing about the method. In real "
    "literature papers that share a method mostly share a problem as well. --first-stage "
    "fused:background_penalty=1 takes the query's problem out.",
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


PAPER = "s036"
"""A paper of the sample: self-supervised vectors (method) for suggesting citations (background)."""

FACETS = (Facet.METHOD, Facet.BACKGROUND)
HITS = 3

_SAME_FAMILY = 2
"""The least grade of papers of one family (see `qbe.datasets.embedded.grade`)."""


def searches(pipeline: Pipeline, layout: Layout, width: int) -> Iterator[str]:
    """Search for each facet; gives the command that does the same, its table, and what the layout says of the
    papers found.
    """
    index = pipeline.index
    for facet in FACETS:
        query = Query(index.paper(PAPER), facet)
        hits = pipeline.search(query, k=HITS)
        table = to_table(index.paper, query, hits, width)
        verdict = textwrap.fill(
            in_layout(layout, [hit.paper_id for hit in hits]), width, break_on_hyphens=False
        )
        yield f"$ {command(Path(index.folder), facet)}\n{table}\n\n{verdict}\n"


def command(folder: Path, facet: Facet) -> str:
    """The command that searches as `searches` does, to be pasted into a shell.

    >>> command(Path("my indexes"), Facet.METHOD)
    "qbe search --index 'my indexes' --paper s036 --facet method --hits 3 --format table"
    """
    folder_text = shlex.quote(str(folder))
    return f"qbe search --index {folder_text} --paper {PAPER} --facet {facet} --hits {HITS} --format table"


def in_layout(layout: Layout, paper_ids: list[str]) -> str:
    """How many papers share the kind of method and the kind of problem of the query paper.

    >>> from qbe.datasets.embedded import read_layout
    >>> from qbe.demo.sample_index import SAMPLE
    >>> in_layout(read_layout(SAMPLE / "layout.json"), ["s051", "s007", "s059"])
    "Of these 3 papers 2 share the query's kind of method (contrastive-learning), 1 its kind of problem
    (scholarly-search)."
    """
    counts = []
    for number, facet in enumerate(FACETS):
        sharing = sum(grade(layout, PAPER, paper_id, facet) >= _SAME_FAMILY for paper_id in paper_ids)
        whose = "its" if number else "share the query's"
        family = layout.places[PAPER][facet].family
        counts.append(f"{sharing} {whose} kind of {FACTORS[facet]} ({family})")
    return f"Of these {len(paper_ids)} papers {', '.join(counts)}."
