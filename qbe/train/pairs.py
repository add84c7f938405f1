"""Lists of graded pairs to train on: which files, and which pairs of them."""

from __future__ import annotations

from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

from qbe.corpus.titles import TitleIndex
from qbe.errors import CorpusError, UsageError
from qbe.index.reader import IndexReader
from qbe.runs import GradedLists, GradedPair, read_graded_pairs

DATA = Path(__file__).parents[2] / "data"
"""In a checkout of the repository, folders of graded pairs; the READMEs there describe them."""


def data_file(parameter: str, name: str) -> Path:
    """A file or folder of graded pairs of the repository; raises UsageError in an installation, which has
    none, and names the ``parameter`` that gives another.
    """
    path = DATA / name
    if not path.exists():
        raise UsageError(
            f"expected data/{name} of a checkout of qbe's repository, found no such file; give a copy of it, "
            f"or other graded pairs, as `{parameter}`"
        )
    return path


def pair_files(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Files of pairs to train on: paths that are files, and for each folder its ``train*.tsv`` by name.

    Raises UsageError for a folder without such files.

    >>> for name in ("train.tsv", "train-2.tsv", "dev.tsv"):
    ...     Path(name).touch()
    >>> [path.name for path in pair_files([Path()])]
    ['train.tsv', 'train-2.tsv']
    """
    files: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("train*.tsv"), key=lambda file: file.stem) if path.is_dir() else [path]
        files += inside
        if not inside:
            raise UsageError(f"{path}: expected train*.tsv in the folder, found none; check `pairs`")
    return tuple(files)


def joined_lists(files: Iterable[Path]) -> dict[str, list[GradedPair]]:
    """The lists of several files; those of one query are joined, of a pair the last file's grades count.

    Raises FileFormatError for a file that cannot be read.
    """
    pairs: dict[str, dict[str, GradedPair]] = {}
    for file in files:
        for query, some in read_graded_pairs(file).items():
            pairs.setdefault(query, {}).update({pair.paper_id: pair for pair in some})
    return {query: list(some.values()) for query, some in pairs.items()}


def without(lists: GradedLists, excluded: frozenset[str]) -> dict[str, list[GradedPair]]:
    """The pairs whose query and candidate are not ``excluded`` ids; queries without a pair are dropped.

    >>> a, b = GradedPair("a", (3, 1, 0)), GradedPair("b", (0, 0, 0))
    >>> without({"q": [a, b], "r": [a]}, frozenset({"a"}))
    {'q': [GradedPair(paper_id='b', grades=(0, 0, 0))]}
    """
    kept = {
        query: [pair for pair in pairs if pair.paper_id not in excluded]
        for query, pairs in lists.items()
        if query not in excluded
    }
    return {query: pairs for query, pairs in kept.items() if pairs}


def within(lists: GradedLists, held: Container[str]) -> dict[str, list[GradedPair]]:
    """The lists whose query an index has ``held``, of the candidates that it holds too; lists of fewer than
    two are dropped, since they have no order to learn. Raises CorpusError where nothing is left.

    >>> a, b = GradedPair("a", (3, 1, 0)), GradedPair("b", (0, 0, 0))
    >>> within({"q": [a, b], "r": [a, b]}, {"q", "a", "b"})
    {'q': [GradedPair(paper_id='a', grades=(3, 1, 0)), GradedPair(paper_id='b', grades=(0, 0, 0))]}
    """
    kept = {
        query: [pair for pair in pairs if pair.paper_id in held]
        for query, pairs in lists.items()
        if query in held
    }
    kept = {query: pairs for query, pairs in kept.items() if len(pairs) > 1}
    if not kept:
        raise CorpusError(
            f"expected graded pairs of papers of the index, found none of {len(papers_of(lists)):,}; give an "
            "index that holds them"
        )
    return kept


def papers_of(*sets: GradedLists) -> set[str]:
    """The ids of all queries and candidates.

    >>> sorted(papers_of({"q": [GradedPair("a", (3, 1, 0)), GradedPair("b", (0, 0, 0))]}))
    ['a', 'b', 'q']
    """
    return {
        paper_id
        for lists in sets
        for query, pairs in lists.items()
        for paper_id in (query, *(pair.paper_id for pair in pairs))
    }


def encoder_of(reader: IndexReader) -> dict[str, Any]:
    """The identity of the encoder of an index; raises IndexFormatError for an index without vectors."""
    reader.require_vectors()
    assert reader.manifest.dense is not None
    encoder: dict[str, Any] = reader.manifest.dense["encoder"]
    return encoder


def held_by(reader: IndexReader, paper_ids: Iterable[str]) -> set[str]:
    """Those of some papers, by their ids, that an index holds."""
    return {paper_id for paper_id in paper_ids if reader.papers.find(paper_id) is not None}


def without_evaluated(
    lists: GradedLists, reader: IndexReader, evaluated: Path
) -> dict[str, list[GradedPair]]:
    """The pairs whose papers have no title like that of a paper in ``evaluated``, papers as JSON lines.

    Papers that the index lacks stay. Raises CorpusError where ``evaluated`` cannot be read.
    """
    titles, held = TitleIndex.of_corpus(evaluated), held_by(reader, papers_of(lists))
    return without(lists, frozenset(name for name in held if titles.holds(reader.paper(name).title)))
