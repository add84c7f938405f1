"""What ``python -m qbe.index`` is asked to do, and which options go with it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from qbe.errors import UsageError
from qbe.index.dense.ann import AUTO, AnnSettings
from qbe.models.session import CPU, CUDA

_CANDIDATES = ("stored", "ann", "nlist", "nprobe", "pq", "tune_recall", "ann_on_disk")
_CONDUCT = ("threads", "overwrite", "resume", "timings")
_CHANGE = ("corpus", "encoder", "tagger", "device", "threads")

GOES_WITH = {
    "part": ("corpus", "encoder", "precision", "device", "facets", "tagger", *_CONDUCT),
    "merge": (
        *("encoder", "tagger", "dense_only", "store_positions", "store_docvectors"),
        *(*_CANDIDATES, *_CONDUCT),
    ),
    "append": _CHANGE,
    "update": _CHANGE,
    "delete": (),
    "compact": ("threads",),
}
"""The options of each request, ``--output`` apart; all others are settled by the index or its parts."""

REMEDIES = {"part": "give it with --merge, where it counts", "merge": "drop it: nothing is encoded"}

OF_VECTORS = ("encoder", "facets", "tagger", "precision", "device", "part", *_CANDIDATES)
"""Options that an index without vectors has no use for."""


def request(options: argparse.Namespace) -> str | None:
    """Which of GOES_WITH is asked for; None for a build.

    Raises UsageError for options that do not go together, and where the corpus is missing.
    """
    given = [name for name, value in vars(options).items() if value is not None and value is not False]
    if options.bm25_only and (useless := [name for name in OF_VECTORS if name in given]):
        raise UsageError(f"{_written(useless[0])} is of no use with --bm25-only; drop one of them")
    asked = next((name for name in GOES_WITH if name in given), None)
    if asked is not None:
        for name in given:
            if name not in ("output", asked, *GOES_WITH[asked]):
                remedy = REMEDIES.get(asked, "drop one of them")
                raise UsageError(f"{_written(name)} is of no use with --{asked}; {remedy}")
    if not options.corpus and (asked is None or "corpus" in GOES_WITH[asked]):
        purpose = asked if asked in ("append", "update") else "index"
        raise UsageError(f"expected --corpus with the papers to {purpose}, found none; add it")
    if options.part:
        part_numbers(options.part)
    ann_settings(options)
    if options.device == CUDA and options.precision == "int8":
        raise UsageError("--device cuda encodes in fp32, found --precision int8; drop one of them")
    return asked


def _written(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def part_numbers(text: str) -> tuple[int, int]:
    """Number and count of a part from words such as ``2/8``; raises UsageError."""
    number, _, count = text.partition("/")
    if number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count):
        return int(number), int(count)
    raise UsageError(f"expected a part such as 2/8, from 1/8 to 8/8, found {text!r}; check --part")


def precision(options: argparse.Namespace) -> str:
    """The precision given, or that of the device."""
    return str(options.precision or ("int8" if (options.device or CPU) == CPU else "fp32"))


def ann_settings(options: argparse.Namespace) -> AnnSettings:
    """How candidates are to be found; raises UsageError for what does not go together."""
    return AnnSettings(
        kind=options.ann or AUTO,
        nlist=options.nlist,
        nprobe=options.nprobe,
        pq=options.pq,
        on_disk=options.ann_on_disk,
        tune_recall=options.tune_recall,
    )


def ids(given: Sequence[str]) -> list[str]:
    """Paper ids as given, and for each ``@FILE`` those in the file, one a line.

    Raises UsageError for a file that cannot be read.
    """
    found: list[str] = []
    for one in given:
        if not one.startswith("@"):
            found.append(one)
            continue
        try:
            lines = Path(one[1:]).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"expected a file of paper ids, one a line, at {one[1:]}, found {error}; check --delete"
            ) from error
        found += [line for line in lines if line]
    return found
