"""What searching and indexing take where nothing is named: the layout that ``make reproduce`` leaves."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

from qbe.cli import common
from qbe.cli.parser import Parser
from qbe.errors import UsageError

TOPICS, CORPUS, INDEXES = "qrels/topics.tsv", "qrels/corpus.jsonl", "indexes"
VARIABLE = "QBE_INDEX"
_BUILT = ("--corpus", "--output", "--append", "--update", "--sync", "--delete")


def searched(parser: Parser, arguments: list[str]) -> list[str]:
    """The index in $QBE_INDEX, else the only one under ``indexes``, and ``qrels/topics.tsv``.

    Raises UsageError for several indexes.
    """
    given, added = {word.partition("=")[0] for word in arguments}, list[str]()
    if "--index" not in given and (index := os.environ.get(VARIABLE) or _only_index()):
        added += ["--index", index]
    required = (group for group in parser._mutually_exclusive_groups if group.required)
    starts = [name for group in required for each in group._group_actions for name in each.option_strings]
    if starts and given.isdisjoint(starts) and Path(TOPICS).is_file():
        added += ["--topics", TOPICS]
    return _told(added)


def built(_: Parser, arguments: list[str]) -> list[str]:
    """``qrels/corpus.jsonl``, or where there is none the collection in the package, and an output."""
    if not {word.partition("=")[0] for word in arguments}.isdisjoint(_BUILT):
        return []
    if Path(CORPUS).is_file():
        return _told(["--corpus", CORPUS, "--output", f"{INDEXES}/corpus"])
    papers = resources.files("qbe.datasets").joinpath("mini", "papers.jsonl.xz")
    return _told(["--corpus", str(papers), "--output", f"{INDEXES}/mini"])


def _told(added: list[str]) -> list[str]:
    if added:
        common.note(f"taken, since none is given: {' '.join(added)}")
    return added


def _only_index() -> str | None:
    found = sorted(
        str(folder)
        for folder in Path(INDEXES).glob("*")
        if (folder / "CURRENT").is_file() or (folder / "manifest.json").is_file()
    )
    if len(found) > 1:
        raise UsageError(
            f"expected an `index`, found none, and several under {INDEXES}: {', '.join(found)}; give one, or "
            f"set ${VARIABLE}"
        )
    return found[0] if found else None
