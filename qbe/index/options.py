"""The options of ``python -m qbe.index``, and which of them go together."""

from __future__ import annotations

import argparse
from pathlib import Path

from qbe.errors import UsageError
from qbe.models.session import CPU, CUDA, DEVICES

OF_VECTORS = ("encoder", "facets", "tagger", "precision", "device", "part")
"""Options that say how papers are encoded, or which."""

OF_POSTINGS = ("bm25_only", "dense_only", "store_positions", "store_docvectors")
"""Options that say which sides an index has, and what Lucene keeps: a part has none of it."""

SETTLED = ("precision", "facets", "device", "part", "bm25_only")
"""Options that are settled when parts are merged."""


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(
        prog="python -m qbe.index",
        description="Build an index from a corpus of papers: Lucene postings, contextual sentence vectors "
        "in FAISS, the papers with their sentences' facets, and a manifest. It appears at --output whole or "
        "not at all.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--corpus",
        nargs="+",
        metavar="SOURCE",
        help="JSON lines with paper_id, title, abstract (a string or a list of sentences) and optionally "
        "pred_labels, metadata (.gz, .xz, .zst are read too; - is standard input); or a Hugging Face dataset "
        "hf:NAME[:CONFIG][:SPLIT] or a folder of one",
    )
    source.add_argument(
        "--merge",
        nargs="+",
        type=Path,
        metavar="DIR",
        help="join all parts of a corpus, in any order, into the index that a build in one go makes; nothing "
        "is encoded, Lucene and FAISS are built now",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="the index to create")
    parser.add_argument(
        "--part",
        metavar="K/N",
        help="encode only every n-th shard of 512 papers, from the k-th on (2/8): a folder that --merge "
        "takes, made by a process or machine of its own",
    )
    side = parser.add_mutually_exclusive_group()
    side.add_argument("--bm25-only", action="store_true", help="no vectors")
    side.add_argument("--dense-only", action="store_true", help="no Lucene postings (needs no Java)")
    parser.add_argument(
        "--encoder", help="name in the registry, a folder, or a hub name (default: all-MiniLM-L6-v2)"
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
    parser.add_argument("--store-positions", action="store_true", help="keep term positions in Lucene")
    parser.add_argument("--store-docvectors", action="store_true", help="keep term vectors in Lucene")
    parser.add_argument("--threads", type=int, help="default: all processors this process may use")
    parser.add_argument("--overwrite", action="store_true", help="replace what is at --output")
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted build")
    parser.add_argument(
        "--timings", type=Path, metavar="FILE", help="write the seconds of each stage and the peak of memory"
    )
    return parser


def check(options: argparse.Namespace) -> None:
    """Raise UsageError for options that do not go together."""
    if options.part:
        part_numbers(options.part)
    if options.bm25_only and (option := _given(options, OF_VECTORS)):
        raise UsageError(f"{option} is of no use with --bm25-only; drop one of them")
    if options.part and (option := _given(options, OF_POSTINGS)):
        raise UsageError(f"{option} is of no use with --part; give it with --merge, where it counts")
    if options.merge and (option := _given(options, SETTLED)):
        raise UsageError(f"{option} is of no use with --merge, which encodes nothing; drop it")
    if options.device == CUDA and options.precision == "int8":
        raise UsageError("--device cuda encodes in fp32, found --precision int8; drop one of them")


def part_numbers(text: str) -> tuple[int, int]:
    """Number and count of a part from words such as ``2/8``; raises UsageError."""
    number, _, count = text.partition("/")
    if number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count):
        return int(number), int(count)
    raise UsageError(f"expected a part such as 2/8, from 1/8 to 8/8, found {text!r}; check --part")


def precision(options: argparse.Namespace) -> str:
    """The precision given, or that of the device."""
    return str(options.precision or ("int8" if (options.device or CPU) == CPU else "fp32"))


def _given(options: argparse.Namespace, names: tuple[str, ...]) -> str | None:
    """The first of some options that was given, as it is written; None where none was."""
    given = [name for name in names if getattr(options, name)]
    return f"--{given[0].replace('_', '-')}" if given else None
