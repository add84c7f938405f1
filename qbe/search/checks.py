"""Which options of ``python -m qbe.search`` go together, and what they come to."""

from __future__ import annotations

import argparse

from qbe.errors import UsageError

RERANKING = (
    "reranker",
    "rerank_precision",
    "rerank_depth",
    "rerank_weight",
    "query_tokens",
    "candidate_tokens",
)
"""Options that count only where results are reranked."""


def reranks(options: argparse.Namespace) -> bool:
    """Whether results are reranked: where that is asked for, or by default where a facet is."""
    if options.rerank is None:
        return bool(options.facet or options.topics)
    return bool(options.rerank != "none")


def run_tag(options: argparse.Namespace) -> str:
    """The tag of the run: the one given, else the names of its stages."""
    tag: str = options.run_tag or f"qbe-{options.first_stage}{'+rerank' if reranks(options) else ''}"
    return tag


def check(options: argparse.Namespace, form: str) -> None:
    """Raise UsageError for values out of range and for options that do not go together.

    ``form`` is the format of the output: ``trec``, ``json`` or ``table``.
    """
    if options.hits is not None and options.hits < 1:
        raise UsageError(f"expected --hits of at least 1, found {options.hits}")
    if options.depth < 1:
        raise UsageError(f"expected --depth of at least 1, found {options.depth}")
    if options.title is not None and options.text is None:
        raise UsageError("--title goes with --text; a paper file holds its own title")
    if options.sentences is not None and options.topics:
        raise UsageError("--sentences picks from one paper; give --paper, --paper-file or --text with it")
    if options.run_tag is not None and len(options.run_tag.split()) != 1:
        raise UsageError(f"expected a --run-tag of one word, found {options.run_tag!r}")
    _check_explaining(options, form)
    _check_reranking(options)


def _check_explaining(options: argparse.Namespace, form: str) -> None:
    if options.explain and form == "trec":
        if options.format:
            raise UsageError("--explain goes with --format table or json, found trec")
        raise UsageError(
            "--explain has no place in a TREC run, the form without a terminal; add --format table"
        )
    tagging = options.tagger is not None or options.facets == "predicted"
    if tagging and not (options.facet or options.topics or options.explain):
        raise UsageError(
            "--tagger and --facets predicted are of use only with a facet; add --facet, or drop them"
        )


def _check_reranking(options: argparse.Namespace) -> None:
    given = [f"--{name.replace('_', '-')}" for name in RERANKING if getattr(options, name) is not None]
    if given and not reranks(options):
        raise UsageError(
            f"{given[0]} goes with --rerank cross-encoder, the default only with a facet; add that, or drop "
            f"{given[0]}"
        )
    for name in ("rerank_depth", "query_tokens", "candidate_tokens"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UsageError(f"expected --{name.replace('_', '-')} of at least 1, found {value}")
    weight = options.rerank_weight
    if weight is not None and not 0 <= weight <= 1:
        raise UsageError(f"expected a --rerank-weight from 0 to 1, found {weight:g}")
