"""What ``python -m qbe.index`` is asked to do to an index that exists, and which options go with it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from qbe.errors import UsageError

GOES_WITH = {
    "append": ("corpus", "encoder", "tagger", "threads"),
    "update": ("corpus", "encoder", "tagger", "threads"),
    "delete": (),
    "compact": ("threads",),
}
"""The options of each request, ``--output`` apart; all others are settled by the index."""


def request(options: argparse.Namespace, parser: argparse.ArgumentParser) -> str | None:
    """Which of GOES_WITH is asked for; None for a build.

    Raises UsageError for options that do not go with it, and where the corpus is missing.
    """
    asked = next((name for name in GOES_WITH if getattr(options, name)), None)
    if asked is not None:
        for name, value in vars(options).items():
            if name not in ("output", asked, *GOES_WITH[asked]) and value != parser.get_default(name):
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"{option} is of no use with --{asked}; drop one of them")
    if not options.corpus and (asked is None or "corpus" in GOES_WITH[asked]):
        raise UsageError(f"expected --corpus with the papers to {asked or 'index'}, found none; add it")
    return asked


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
