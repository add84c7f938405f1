"""What the analyses of citation recommendation share: options, rankings of a split's queries."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qbe.run import Run
    from qbe.types import Hit, Paper

PACKAGES = ("faiss-cpu", "numpy", "onnxruntime", "pyserini")

BLOCK = 64
"""Queries that are ranked at a time."""

DEPTH = 1000
"""Hits of a query, as the protocol of citations reads them."""

SIGNIFICANT = 0.05


def collection_options(parser: argparse.ArgumentParser) -> None:
    """Add options for the collection, the plot and the threads."""
    parser.add_argument(
        "--collection",
        type=Path,
        default=Path("data/citations"),
        metavar="DIR",
        help="written by qbe datasets citations (default: %(default)s)",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="the figures as lines, .svg or .png")
    parser.add_argument("--threads", type=int, help="default: all processors this process may use")


def index_option(parser: argparse.ArgumentParser) -> None:
    """Add an option for an index of the collection's papers."""
    parser.add_argument(
        "--index",
        type=Path,
        default=Path("indexes/citations"),
        metavar="DIR",
        help="of papers.jsonl of the collection (default: %(default)s)",
    )


def ranked(search: Callable[[Sequence[Paper]], Sequence[Sequence[Hit]]], papers: Sequence[Paper]) -> Run:
    """The run of queries that are papers, whose ids are theirs; ``search`` ranks some of them."""
    from qbe.run import Run

    rankings: dict[str, tuple[Hit, ...]] = {}
    for first in range(0, len(papers), BLOCK):
        block = papers[first : first + BLOCK]
        for paper, hits in zip(block, search(block), strict=True):
            rankings[paper.paper_id] = tuple(hits)
    return Run("qbe", rankings)


def decimals(value: float, places: int = 3) -> str:
    """A figure as tables of the protocol print it.

    >>> decimals(0.2656), decimals(1.0)
    ('.266', '1.000')
    """
    return f"{value:.{places}f}".removeprefix("0")


def chance(p: float) -> str:
    """A probability as text.

    >>> chance(0.00002), chance(0.03)
    ('p < 0.001', 'p = 0.030')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
