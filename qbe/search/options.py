"""The options of ``python -m qbe.search``."""

from __future__ import annotations

import argparse
from pathlib import Path

from qbe.search.reranking import MATCHING_WEIGHT, RERANK_DEPTH, RERANK_WEIGHT
from qbe.types import Facet

TABLE_HITS = 10
RUN_HITS = 1000


def parser() -> argparse.ArgumentParser:
    """The command's parser."""
    parser = argparse.ArgumentParser(
        prog="python -m qbe.search",
        description="Find papers like a paper, for its problem (background), its method or its findings "
        "(result), or by sentences picked by hand, or by its whole abstract.",
    )
    parser.add_argument("--index", type=Path, required=True, metavar="DIR", help="built by qbe.index")
    _queries(parser)
    _results(parser)
    _first_stages(parser.add_argument_group("first stages in detail"))
    _reranking(parser.add_argument_group("reranking"))
    return parser


def _queries(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--topics",
        type=Path,
        metavar="FILE",
        help="tab-separated: query_id, paper_id, facet (none: the whole abstract)",
    )
    source.add_argument("--paper", metavar="ID", help="a paper of the index")
    source.add_argument(
        "--paper-file", metavar="FILE", help="JSON with title and abstract; - is standard input"
    )
    source.add_argument("--text", help="an abstract, as it is")
    parser.add_argument("--title", help="the title that goes with --text")
    aspect = parser.add_mutually_exclusive_group()
    aspect.add_argument(
        "--facet",
        choices=[facet.value for facet in Facet],
        help="the aspect to match (default: the topic's own facet, else the whole abstract)",
    )
    aspect.add_argument("--sentences", metavar="0,3", help="positions of the sentences to match, from 0")
    parser.add_argument(
        "--facets",
        choices=("given", "predicted"),
        default="given",
        help="of the query's sentences: those its paper brings, predicted where it brings none, or always "
        "predicted (default: %(default)s)",
    )


def _results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--first-stage", choices=("bm25", "dense", "fused"), default="fused", help="default: %(default)s"
    )
    parser.add_argument(
        "--rerank",
        choices=("none", "cross-encoder", "transport", "attention", "single-match", "mean-max"),
        help="second stage: none, models that read each paper anew, or a matching of sentence vectors "
        "(default: cross-encoder with a facet, else none)",
    )
    parser.add_argument("--hits", type=int, help=f"a query (default: {RUN_HITS}; {TABLE_HITS} in a table)")
    parser.add_argument(
        "--pool", type=Path, metavar="FILE", help="rank these papers only: query_id, paper_id"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write there (default: standard output)")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with a run of --topics to --output that was interrupted; it ends in the same bytes",
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="discard such an unfinished run (a finished one at --output is replaced in any case)",
    )
    parser.add_argument(
        "--format",
        choices=("trec", "json", "table"),
        help="default: a table on a terminal, else a TREC run",
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="show each sentence of the query, with facet and probability, all matches, and the scores and "
        "sentences behind each rank (table or json)",
    )
    parser.add_argument(
        "--run-tag",
        help="last column of the TREC run (default: qbe-<first stage>, then +rerank or +<matching> if "
        "reranked)",
    )
    parser.add_argument(
        "--threads",
        type=int,
        help="queries and candidates worked on at a time, with the same results whatever their number "
        "(default: all processors this process may use)",
    )


def _first_stages(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--bm25-query",
        choices=("title+facet", "facet", "abstract"),
        default="title+facet",
        help="the words of the BM25 query (default: %(default)s)",
    )
    group.add_argument(
        "--match",
        choices=("mean-max", "single-match"),
        default="mean-max",
        help="dense: mean of each query sentence's best match, or the best pair alone (default: %(default)s)",
    )
    group.add_argument(
        "--fusion",
        choices=("weighted", "rrf"),
        default="weighted",
        help="fused: weighted sum of z-normalized scores, or reciprocal ranks (default: %(default)s)",
    )
    group.add_argument(
        "--weights", metavar="bm25=1,...", help="of bm25, sentences, facet, whole (default: all 1)"
    )
    group.add_argument(
        "--depth",
        type=int,
        default=1000,
        help="fused: papers each side brings to the fusion (default: %(default)s)",
    )
    group.add_argument(
        "--nprobe",
        type=int,
        help="lists of an approximate index that are read: more of them bring more of the right candidates "
        "(default: as the index was built)",
    )
    group.add_argument(
        "--encoder", help="for queries from outside (default: the one the index was built with)"
    )
    group.add_argument(
        "--tagger", help="name or folder; for facets of queries (default: the one the index was built with)"
    )


def _reranking(group: argparse._ArgumentGroup) -> None:
    """Options that count only where results are reranked; None tells that one was not given."""
    group.add_argument(
        "--reranker",
        metavar="NAME",
        help="name, folder, or hub name of a BERT-family cross-encoder (default: facet-rerankers)",
    )
    group.add_argument(
        "--rerank-precision",
        choices=("int8", "fp16", "fp32"),
        help="of a cross-encoder for all facets (default: int8, the only one of facet-rerankers)",
    )
    group.add_argument(
        "--rerank-depth", type=int, help=f"papers of the first stage to rerank (default: {RERANK_DEPTH})"
    )
    group.add_argument(
        "--rerank-weight",
        type=float,
        help=f"the reranker's share of the score, from 0 to 1 (default: {RERANK_WEIGHT}; {MATCHING_WEIGHT:g} "
        "for a matching)",
    )
    group.add_argument(
        "--query-tokens",
        type=int,
        help="tokens of the query that are read at most (default: 384; 256 with a pair cross-encoder)",
    )
    group.add_argument(
        "--candidate-tokens",
        type=int,
        help="tokens of a candidate that are read at most (default: 384; 256 with a pair cross-encoder)",
    )
    group.add_argument(
        "--temperature",
        type=float,
        metavar="TAU",
        help="transport: the higher, the more evenly all weigh (default: 0.5; 5000 for whole abstracts)",
    )
    group.add_argument(
        "--regularization",
        type=float,
        metavar="LAMBDA",
        help="transport: the higher, the sparser the plan (default: 20)",
    )
