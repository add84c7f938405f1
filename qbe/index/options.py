"""The options of ``python -m qbe.index``; `qbe.index.requests` knows which of them go together."""

from __future__ import annotations

import argparse
from pathlib import Path

from qbe.models.session import DEVICES


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(
        prog="python -m qbe.index",
        description="Build an index from a corpus of papers: Lucene postings, contextual sentence vectors "
        "in FAISS, the papers with their sentences' facets, and a manifest. It appears at --output whole or "
        "not at all. With --part build only a part of it, and with --merge join parts. With --append, "
        "--update, --delete or --compact change the index at --output: at once, for whoever opens it later. "
        "Other readers go on, a second writer is refused, and when anything fails the index is as it was.",
    )
    parser.add_argument(
        "--corpus",
        nargs="+",
        metavar="SOURCE",
        help="JSON lines with paper_id, title, abstract (a string or a list of sentences) and optionally "
        "pred_labels, metadata (.gz, .xz, .zst are read too; - is standard input); or a Hugging Face dataset "
        "hf:NAME[:CONFIG][:SPLIT] or a folder of one",
    )
    parser.add_argument(
        "--output", type=Path, required=True, metavar="DIR", help="the index to create or to change"
    )
    _requests(parser.add_mutually_exclusive_group())
    side = parser.add_mutually_exclusive_group()
    side.add_argument("--bm25-only", action="store_true", help="no vectors")
    side.add_argument("--dense-only", action="store_true", help="no Lucene postings (needs no Java)")
    parser.add_argument(
        "--encoder", help="name in the registry, a folder, or a hub name (default: facet-encoder)"
    )
    parser.add_argument(
        "--precision",
        choices=("int8", "fp32"),
        help="of the encoder, for papers and later for queries (default: int8; fp32 on a GPU)",
    )
    parser.add_argument(
        "--device",
        choices=DEVICES,
        help="what encodes: cuda is one NVIDIA GPU, through onnxruntime-gpu, in fp32 and a paper a call; its "
        "vectors may differ from the CPU's in the last place (default: cpu)",
    )
    parser.add_argument(
        "--facets",
        choices=("given", "predicted"),
        help="given: keep the labels that the corpus brings, and predict those of papers without; predicted: "
        "predict all (default: given)",
    )
    parser.add_argument(
        "--tagger", metavar="NAME_OR_FOLDER", help="what predicts facets (default: facet-tagger)"
    )
    _vectors(parser.add_argument_group("vectors and their neighbours"))
    parser.add_argument("--store-positions", action="store_true", help="keep term positions in Lucene")
    parser.add_argument("--store-docvectors", action="store_true", help="keep term vectors in Lucene")
    parser.add_argument("--threads", type=int, help="default: all processors this process may use")
    parser.add_argument("--overwrite", action="store_true", help="replace what is at --output")
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted build")
    parser.add_argument(
        "--timings", type=Path, metavar="FILE", help="write the seconds of each stage and the peak of memory"
    )
    return parser


def _requests(group: argparse._MutuallyExclusiveGroup) -> None:
    """What else than a build is asked for."""
    group.add_argument(
        "--part",
        metavar="K/N",
        help="encode only every n-th shard of 512 papers, from the k-th on (2/8): a folder that --merge "
        "takes, made by a process or machine of its own",
    )
    group.add_argument(
        "--merge",
        nargs="+",
        type=Path,
        metavar="DIR",
        help="join all parts of a corpus, in any order, into the index that a build in one go makes; nothing "
        "is encoded, Lucene and FAISS are built now",
    )
    group.add_argument(
        "--append", action="store_true", help="add the papers of --corpus, with the index's own settings"
    )
    group.add_argument(
        "--update", action="store_true", help="add the papers of --corpus, in place of those of the same ids"
    )
    group.add_argument(
        "--delete", nargs="+", metavar="ID", help="delete papers; @FILE: those of the file, one id a line"
    )
    group.add_argument(
        "--compact",
        action="store_true",
        help="make what was added and what is left one again, as a build would (nothing is encoded)",
    )


def _vectors(group: argparse._ArgumentGroup) -> None:
    """Options of how vectors are stored and candidates found; None tells that one was not given."""
    group.add_argument(
        "--stored",
        choices=("auto", "float16", "int8"),
        help="how vectors are stored; int8 takes half the space, with a scale a vector (default: auto, "
        "float16 up to 200,000 sentences, int8 above)",
    )
    group.add_argument(
        "--ann",
        choices=("auto", "flat", "hnsw", "ivf-sq", "ivf-pq", "ivf-opq-pq"),
        help="how FAISS finds candidates, which stored vectors then score exactly: flat (all sentences are "
        "compared), a graph (hnsw), or lists of short codes (default: auto, flat up to 200,000 sentences "
        "unless an option below is given, else ivf-pq)",
    )
    group.add_argument(
        "--nlist", type=int, help="lists (default: the power of 2 nearest to the root of the sentences)"
    )
    group.add_argument("--nprobe", type=int, help="lists that a search reads (default: a quarter)")
    group.add_argument(
        "--pq",
        type=int,
        metavar="BYTES",
        help="of a product-quantized code (default: a sixth of the dimension, 64 for 384)",
    )
    group.add_argument(
        "--tune-recall",
        type=float,
        metavar="SHARE",
        help="choose nlist, nprobe and pq by trial: the cheapest with which so many of the places of the "
        "best 20 papers are those of exhaustive search, over 200 queries drawn from the corpus; all trials "
        "stand in the manifest",
    )
    group.add_argument(
        "--ann-on-disk", action="store_true", help="keep the lists in a file and read them from there"
    )
