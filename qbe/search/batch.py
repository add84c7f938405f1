"""Many queries on their way through a search: read, searched and written as text, block by block."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from qbe.query import Query, Topic
from qbe.search.checks import reranker_name, run_tag
from qbe.types import Hit, Run

if TYPE_CHECKING:
    from qbe.index.index import Index
    from qbe.search.contracts import AnySearcher
    from qbe.search.unfinished import Inputs

BLOCK = 64
"""Queries searched together, and kept together when a run is interrupted."""

NOT_SHAPING = ("index", "topics", "pool", "output", "threads", "resume", "overwrite")
"""Options whose value does not change a run, or is described by what it names."""


class Result(NamedTuple):
    """A query, its id in the run, and what was found."""

    query_id: str
    query: Query
    hits: Sequence[Hit]


class Form(NamedTuple):
    """How results are written: ``trec``, ``json`` or ``table``, and how many columns a table takes."""

    name: str
    width: int


def blocks(asked: Sequence[Topic | Query]) -> list[Sequence[Topic | Query]]:
    """The queries, BLOCK at a time."""
    return [asked[first : first + BLOCK] for first in range(0, len(asked), BLOCK)]


def search_block(
    options: argparse.Namespace,
    index: Index,
    searcher: AnySearcher,
    asked: Sequence[Topic | Query],
    pools: Mapping[str, Sequence[str]] | None,
    form: Form,
) -> list[Result]:
    """What is found for each query, in order; topics are read from the index first."""
    from qbe.search.queries import read_queries

    queries = read_queries(index, asked, options.facets, explain=options.explain)
    own = None if pools is None else [pools[one.query_id] for one in asked]
    found = searcher.batch_search(
        queries, options.hits, own, matches=form.name != "trec", explain=options.explain
    )
    triples = zip(asked, queries, found, strict=True)
    return [Result(one.query_id, query, hits) for one, query, hits in triples]


def to_text(
    options: argparse.Namespace, index: Index, results: Sequence[Result], form: Form, *, first: bool
) -> str:
    """Results in the form asked for; texts of blocks one behind the other are the text of all.

    ``first`` tells whether nothing stands before them: tables have empty lines in between.
    """
    if form.name == "trec":
        from qbe.trec import format_run

        return format_run(Run(run_tag(options), {query_id: tuple(hits) for query_id, _, hits in results}))
    from qbe.search.present import to_json, to_table

    if form.name == "json":
        return "".join(to_json(index, *result, explain=options.explain) + "\n" for result in results)
    tables = (to_table(index, query, hits, form.width, explain=options.explain) for _, query, hits in results)
    return ("" if first else "\n") + "\n\n".join(tables) + "\n"


def describe_run(options: argparse.Namespace, index: Index, form: Form) -> Inputs:
    """All that shapes a run, so that an interrupted one is gone on with as it was begun."""
    from qbe.files import sha256

    settings = {name: value for name, value in vars(options).items() if name not in NOT_SHAPING}
    described = {
        "index": index.manifest.digest,
        "topics": sha256(options.topics),
        "pool": sha256(options.pool) if options.pool else None,
        "options": {**settings, "format": form.name, "width": form.width if form.name == "table" else None},
        "models": _models(options, index),
        "version": [version("qbe"), BLOCK],
    }
    inputs: Inputs = json.loads(json.dumps(described, default=_plain))
    return inputs


def _models(options: argparse.Namespace, index: Index) -> dict[str, Any]:
    """What tells the reranker from another, and a tagger that reads queries anew."""
    models: dict[str, Any] = {}
    if reranker_name(options) == "cross-encoder":
        from qbe.rerank.open import describe_reranker

        given = {"name": options.reranker, "precision": options.rerank_precision}
        models["reranker"] = describe_reranker(**{key: value for key, value in given.items() if value})
    if options.tagger is not None or options.facets == "predicted":
        from qbe.tag.tagger import Tagger

        models["tagger"] = Tagger.open(options.tagger or index.manifest.settings["tagger"]).identity
    return models


def _plain(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"expected an option that JSON can hold, found {value!r}")
