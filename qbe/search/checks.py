"""Which options of ``python -m qbe.search`` go together, and what they come to."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from qbe.errors import UsageError
from qbe.query import Query, Topic
from qbe.search.reranking import MATCHING_WEIGHT, RERANK_WEIGHT

CROSS_ENCODER = ("reranker", "rerank_precision", "query_tokens", "candidate_tokens")
"""Options that count only for cross-encoders."""

TRANSPORT = ("temperature", "regularization")
"""Options that count only for the matching by transport."""

RERANKING = ("rerank_depth", "rerank_weight")
"""Options that count wherever results are reranked."""


def reranker_name(options: argparse.Namespace) -> str:
    """The second stage, or ``none``: the one asked for, by default ``cross-encoder`` where a facet is."""
    if options.rerank is None:
        return "cross-encoder" if options.facet or options.topics else "none"
    return str(options.rerank)


def rerank_weight(options: argparse.Namespace) -> float:
    """The share of the second stage: the one given, else that of its kind."""
    if options.rerank_weight is not None:
        return float(options.rerank_weight)
    return RERANK_WEIGHT if reranker_name(options) == "cross-encoder" else MATCHING_WEIGHT


def run_tag(options: argparse.Namespace) -> str:
    """The tag of the run: the one given, else the names of its stages."""
    second = {"none": "", "cross-encoder": "+rerank"}
    name = reranker_name(options)
    tag: str = options.run_tag or f"qbe-{options.first_stage}{second.get(name, f'+{name}')}"
    return tag


def check(options: argparse.Namespace, form: str) -> None:
    """Raise UsageError for values out of range and for options that do not go together.

    ``form`` is the format of the output: ``trec``, ``json`` or ``table``.
    """
    if options.hits is not None and options.hits < 1:
        raise UsageError(f"expected --hits of at least 1, found {options.hits}")
    if options.depth < 1:
        raise UsageError(f"expected --depth of at least 1, found {options.depth}")
    if options.nprobe is not None and options.nprobe < 1:
        raise UsageError(f"expected --nprobe of at least 1, found {options.nprobe}")
    if options.nprobe is not None and options.first_stage == "bm25":
        raise UsageError("--nprobe is of no use with --first-stage bm25; drop one of them")
    if options.title is not None and options.text is None:
        raise UsageError("--title goes with --text; a paper file holds its own title")
    if options.sentences is not None and options.topics:
        raise UsageError("--sentences picks from one paper; give --paper, --paper-file or --text with it")
    if options.run_tag is not None and len(options.run_tag.split()) != 1:
        raise UsageError(f"expected a --run-tag of one word, found {options.run_tag!r}")
    if (options.resume or options.overwrite) and not (options.topics and options.output):
        given = "--resume" if options.resume else "--overwrite"
        raise UsageError(f"{given} is about a run of topics in a file; give --topics and --output with it")
    _check_explaining(options, form)
    _check_tagging(options, faceted=bool(options.facet or options.topics))
    _check_reranking(options)


def settle_topics(options: argparse.Namespace, queries: Iterable[Topic | Query]) -> None:
    """Where no topic has a facet, search as for any whole abstract: not reranked unless that is asked for.

    Raises UsageError for options that are of use only with a facet.
    """
    if options.topics and not any(query.facet for query in queries):
        options.rerank = options.rerank or "none"
        _check_tagging(options, faceted=False)
        _check_reranking(options)


def _check_explaining(options: argparse.Namespace, form: str) -> None:
    if options.explain and form == "trec":
        if options.format:
            raise UsageError("--explain goes with --format table or json, found trec")
        raise UsageError(
            "--explain has no place in a TREC run, the form without a terminal; add --format table"
        )


def _check_tagging(options: argparse.Namespace, *, faceted: bool) -> None:
    tagging = options.tagger is not None or options.facets == "predicted"
    if tagging and not (faceted or options.explain):
        raise UsageError(
            "--tagger and --facets predicted are of use only with a facet; add --facet, or drop them"
        )


def _check_reranking(options: argparse.Namespace) -> None:
    second = reranker_name(options)
    if (option := _given(options, CROSS_ENCODER)) and second != "cross-encoder":
        raise UsageError(
            f"{option} goes with --rerank cross-encoder, the default only with a facet; add that, or drop "
            f"{option}"
        )
    if (option := _given(options, TRANSPORT)) and second != "transport":
        raise UsageError(f"{option} goes with --rerank transport; add that, or drop {option}")
    if (option := _given(options, RERANKING)) and second == "none":
        raise UsageError(
            f"{option} goes with a reranker, by default only with a facet; add --rerank and one, or drop "
            f"{option}"
        )
    for name in ("rerank_depth", "query_tokens", "candidate_tokens"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UsageError(f"expected --{name.replace('_', '-')} of at least 1, found {value}")
    weight = options.rerank_weight
    if weight is not None and not 0 <= weight <= 1:
        raise UsageError(f"expected a --rerank-weight from 0 to 1, found {weight:g}")
    for name in TRANSPORT:
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"expected a --{name} above 0, found {value:g}")


def _given(options: argparse.Namespace, names: Sequence[str]) -> str | None:
    """The first of some options that was given, as it is written; None where none was."""
    given = [name for name in names if getattr(options, name) is not None]
    return f"--{given[0].replace('_', '-')}" if given else None
