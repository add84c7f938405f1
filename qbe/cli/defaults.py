"""What searching and indexing take where nothing is named: the layout that ``make reproduce`` leaves."""

from __future__ import annotations

import os

from qbe.cli import common

TOPICS, CORPUS, INDEXES = "qrels/topics.tsv", "qrels/corpus.jsonl", "indexes"
VARIABLE = "QBE_INDEX"

_HELP = frozenset(("-h", "--help"))
_BUILT = ("--corpus", "--output", "--append", "--update", "--sync", "--delete")


def searched(parser: common.Parser, arguments: list[str]) -> list[str]:
    """Add the index in $QBE_INDEX, else the only one under ``indexes``, and ``qrels/topics.tsv``.

    Raises UsageError for several indexes.
    """
    given, added = {word.partition("=")[0] for word in arguments}, list[str]()
    required = (group for group in parser._mutually_exclusive_groups if group.required)
    starts = [name for group in required for each in group._group_actions for name in each.option_strings]
    if "--index" not in given and given.isdisjoint(_HELP):
        added += ["--index", index] if (index := os.environ.get(VARIABLE) or _only_index()) else []
    if given.isdisjoint(starts) and os.path.isfile(TOPICS):  # noqa: PTH113
        added += ["--topics", TOPICS]
    return _told(parser, arguments, added)


def built(parser: common.Parser, arguments: list[str]) -> list[str]:
    """Add ``qrels/corpus.jsonl``, or where there is none the collection in the package, and an output."""
    given, added = {word.partition("=")[0] for word in arguments}, list[str]()
    if given.isdisjoint(_BUILT) and given.isdisjoint(_HELP):
        from importlib import resources

        corpus, output = CORPUS, f"{INDEXES}/corpus"
        if not os.path.isfile(CORPUS):  # noqa: PTH113
            papers = resources.files("qbe.datasets").joinpath("mini", "papers.jsonl.xz")
            corpus, output = str(papers), f"{INDEXES}/mini"
        added = ["--corpus", corpus, "--output", output]
    return _told(parser, arguments, added)


def _told(parser: common.Parser, arguments: list[str], added: list[str]) -> list[str]:
    if not added or not _HELP.isdisjoint(arguments):
        return arguments
    common.note(parser.prog, f"taken, since none is given: {' '.join(added)}")
    return [*arguments, *added]


def _only_index() -> str | None:
    from pathlib import Path

    from qbe.errors import UsageError

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
