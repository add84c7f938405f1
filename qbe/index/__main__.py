"""``python -m qbe.index``: build an index from a corpus of papers."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from qbe import _cli
from qbe.errors import UsageError
from qbe.files import write_text
from qbe.types import Paper


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(
        prog="python -m qbe.index",
        description="Build an index from a corpus of papers: Lucene postings, contextual sentence vectors "
        "in FAISS, the papers with their sentences' facets, and a manifest. It appears at --output whole or "
        "not at all.",
    )
    parser.add_argument(
        "--corpus",
        nargs="+",
        required=True,
        metavar="SOURCE",
        help="JSON lines with paper_id, title, abstract (a string or a list of sentences) and optionally "
        "pred_labels, metadata (.gz, .xz, .zst are read too; - is standard input); or a Hugging Face dataset "
        "hf:NAME[:CONFIG][:SPLIT] or a folder of one",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="the index to create")
    side = parser.add_mutually_exclusive_group()
    side.add_argument("--bm25-only", action="store_true", help="no vectors")
    side.add_argument("--dense-only", action="store_true", help="no Lucene postings (needs no Java)")
    parser.add_argument(
        "--encoder", help="name in the registry, a folder, or a hub name (default: all-MiniLM-L6-v2)"
    )
    parser.add_argument(
        "--precision", choices=("int8", "fp32"), default="int8", help="of the encoder (default: %(default)s)"
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
    parser.add_argument("--overwrite", action="store_true", help="replace the index at --output")
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted build")
    parser.add_argument(
        "--timings", type=Path, metavar="FILE", help="write the seconds of each stage and the peak of memory"
    )
    return parser


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


class Bars:
    """Progress on a terminal."""

    def papers(self, papers: Iterable[Paper]) -> Iterator[Paper]:
        return _cli.progress(papers, "reading", "papers")

    def encoding(self, total: int) -> contextlib.AbstractContextManager[Callable[[int], Any]]:
        return _cli.counter("encoding", "papers", total)

    def stage(self, name: str) -> None:
        if sys.stderr.isatty():
            print(name, file=sys.stderr)


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    threads = _cli.threads(options.threads)
    for option in ("encoder", "facets", "tagger"):
        if options.bm25_only and getattr(options, option):
            raise UsageError(f"--{option} is of no use with --bm25-only; drop one of them")
    from qbe.index.ann import AUTO, AnnSettings

    ann = AnnSettings(
        kind=options.ann or AUTO,
        nlist=options.nlist,
        nprobe=options.nprobe,
        pq=options.pq,
        on_disk=options.ann_on_disk,
        tune_recall=options.tune_recall,
    )
    if options.bm25_only and (ann != AnnSettings() or options.ann or options.stored):
        raise UsageError("--ann, --stored and what goes with them are of no use with --bm25-only; drop them")

    from qbe.index.build import build_index
    from qbe.index.settings import BuildSettings
    from qbe.index.timings import Timings
    from qbe.models.registry import DEFAULT_ENCODER, DEFAULT_TAGGER

    settings = BuildSettings(
        corpus=tuple(options.corpus),
        bm25=not options.dense_only,
        dense=not options.bm25_only,
        encoder=options.encoder or DEFAULT_ENCODER,
        precision=options.precision,
        facets=options.facets or "given",
        tagger=options.tagger or DEFAULT_TAGGER,
        positions=options.store_positions,
        docvectors=options.store_docvectors,
        ann=ann,
        stored=options.stored or AUTO,
        threads=threads,
    )
    started, timings = time.monotonic(), Timings()
    try:
        manifest = build_index(
            options.output,
            settings,
            overwrite=options.overwrite,
            resume=options.resume,
            progress=Bars(),
            timings=timings,
        )
    except KeyboardInterrupt:
        print("interrupted; --resume goes on with what is finished", file=sys.stderr)
        raise
    counts = manifest.corpus
    if options.timings:
        write_text(options.timings, timings.report(counts["papers"], counts["sentences"]))
    size = sum(entry["bytes"] for entry in manifest.files.values())
    print(
        f"{options.output}: {counts['papers']:,} papers ({counts['labelled']:,} with facet labels, "
        f"{counts['predicted']:,} predicted), {counts['sentences']:,} sentences, {size / 1e6:,.1f} MB, "
        f"{time.monotonic() - started:.1f} s, digest {manifest.digest[:12]}"
    )


if __name__ == "__main__":
    _cli.run("qbe.index", main)
