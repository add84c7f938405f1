"""The tables of `benchmarks/README.md`: the command of each, what it needs, and how long it takes."""

from __future__ import annotations

from typing import NamedTuple

CSFCUBE, PEERS, WHOLE, CITATIONS, SHARDS = "csfcube", "peers", "whole", "citations", "shards"


class Preparation(NamedTuple):
    """What some tables need: a ``command`` that ``makes`` a file. ``minutes`` are those of two processors."""

    name: str
    makes: str
    command: str
    minutes: int
    needs: tuple[str, ...] = ()


class Table(NamedTuple):
    """A table's command, the names of the preparations that it ``needs``, and its minutes."""

    name: str
    command: str
    minutes: int
    needs: tuple[str, ...] = ()


PREPARATIONS = (
    Preparation(PEERS, ".venv-peers/installed", "make peers", 5),
    Preparation(CSFCUBE, "indexes/csfcube/manifest.json", "make reproduce", 10),
    Preparation(WHOLE, "indexes/whole/manifest.json", "make whole", 70),
    Preparation(
        CITATIONS,
        "indexes/citations/manifest.json",
        "qbe datasets citations --output data/citations && "
        "qbe index --corpus data/citations/papers.jsonl --output indexes/citations",
        10,
    ),
    Preparation(
        SHARDS,
        "indexes/whole-4/manifest.json",
        "qbe index --merge indexes/whole --shards 4 --output indexes/whole-4",
        5,
        (WHOLE,),
    ),
)
"""In an order in which each comes after what it needs."""

_PAIRS = "data/graded-pairs/dev-2.tsv data/graded-pairs/dev-3.tsv"
_CITED = "--index indexes/citations --collection data/citations"

TABLES = (
    Table("encoding", "python -m benchmarks.encoding --papers 80 --rounds 3", 10, (PEERS,)),
    Table("batching", "python -m benchmarks.encoding --batching --papers 150", 5),
    Table("tagging", "python -m benchmarks.tagging --papers 200 --rounds 5", 5),
    Table(
        "whole-pairs",
        f"python -m benchmarks.whole_pairs --index indexes/whole --pairs {_PAIRS}",
        15,
        (WHOLE,),
    ),
    Table(
        "scaling",
        "python -m benchmarks.scaling --index indexes/whole --sizes 10000 100000 800000",
        30,
        (WHOLE,),
    ),
    Table(
        "stages",
        "python -m benchmarks.stages --index indexes/whole --sizes 10000 50000 200000 --plot runs/stages.svg",
        40,
        (WHOLE,),
    ),
    Table(
        "bm25",
        "python -m benchmarks.bm25 --index indexes/whole --papers 800000 --rounds 2",
        25,
        (PEERS, WHOLE),
    ),
    Table("multivector", "python -m benchmarks.multivector --rounds 3", 20, (PEERS, CSFCUBE)),
    Table("reading", "python -m benchmarks.reading", 5),
    Table("splitting", "python -m benchmarks.splitting --rounds 5", 5),
    Table("latency", "python -m benchmarks.latency --rounds 5", 10, (CSFCUBE,)),
    Table("batch", "python -m benchmarks.batch --reranked 8", 5, (CSFCUBE,)),
    Table(
        "fused-depth",
        f"python -m benchmarks.fused_depth --index indexes/whole --pairs {_PAIRS}",
        20,
        (WHOLE,),
    ),
    Table("filtering", "python -m benchmarks.filtering --index indexes/whole --papers 180000", 20, (WHOLE,)),
    Table(
        "recommending",
        "python -m benchmarks.recommending --index indexes/whole --papers 100000",
        10,
        (WHOLE,),
    ),
    Table(
        "seeds",
        "python -m benchmarks.seeds --index indexes/citations --qrels data/citations/train.qrels",
        10,
        (CITATIONS,),
    ),
    Table("exploration", "make exploration", 20),
    Table("reranking", "python -m benchmarks.reranking --rounds 2 --pairs 100", 15, (PEERS,)),
    Table(
        "projections",
        f"python -m benchmarks.projections --index indexes/whole --pairs {_PAIRS} --queries 40",
        40,
        (WHOLE,),
    ),
    Table("transport", "python -m benchmarks.transport --rounds 5", 5, (CSFCUBE,)),
    Table("startup", "python -m benchmarks.startup", 5, (CSFCUBE,)),
    Table("serving", "python -m benchmarks.serving --index indexes/whole --searches 10000", 20, (WHOLE,)),
    Table("kills", "python -m benchmarks.kills", 10),
    Table("cluster-same", "python -m benchmarks.cluster same", 20, (CSFCUBE, WHOLE, SHARDS)),
    Table("cluster-overhead", "python -m benchmarks.cluster overhead", 5, (CSFCUBE, WHOLE, SHARDS)),
    Table("cluster-killed", "python -m benchmarks.cluster killed", 15, (CSFCUBE, WHOLE, SHARDS)),
    Table(
        "cluster-encoding",
        "python -m benchmarks.cluster encoding --corpus qrels/corpus.jsonl --papers 3072",
        5,
        (CSFCUBE,),
    ),
    Table("cluster-kills", "python -m benchmarks.cluster_kills", 15),
    Table("hedging", "python -m benchmarks.hedging --queries 500", 5, (CSFCUBE, WHOLE, SHARDS)),
)
"""In the order of the document; those of `qbe train`'s own working folders are left out."""
