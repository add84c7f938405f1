"""Run files, several of which are joined, and the titles of papers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from qbe.corpus.reading import read_corpus
from qbe.corpus.records import Reading
from qbe.errors import FileFormatError, UsageError
from qbe.query import SHAPES, split_query_id
from qbe.runs import RunFile, read_run
from qbe.types import Facet, Hit
from qbe.util.files import StrPath

_FACETS = "|".join(facet.value for facet in Facet)
_TARGET = rf"(?P<target>(?:{_FACETS})(?P<other>-not-(?:{_FACETS}))?|{'|'.join(SHAPES)})"
_FACET_NAME = re.compile(rf"(?P<name>.+)\.{_TARGET}(?:\.[^.]+)?")
"""Files of one system: ``NAME.method.trec``, and of exploration ``NAME.method-not-background.trec`` or
``NAME.competitors.trec``.
"""


def group_runs(paths: Sequence[StrPath]) -> dict[str, tuple[Path, ...]]:
    """Group run files by the name of their system, in the order in which they are given.

    ``NAME.background.trec``, ``NAME.method.trec`` and ``NAME.result.trec`` of one folder (with any extension)
    are one system, NAME, and so are ``NAME.method-not-background.trec`` and ``NAME.competitors.trec``. Any
    other file is a system by itself, named by its stem. Where two would have the same name, their folders are
    put before it. Raises UsageError for a file given twice.

    >>> for name, files in group_runs(["runs/a.method.trec", "runs/a.result.trec", "runs/b.trec"]).items():
    ...     print(name, len(files))
    a 2
    b 1
    """
    groups: dict[tuple[str, Path], list[Path]] = {}
    for path in map(Path, paths):
        name = path.name.removesuffix(".gz")
        match = _FACET_NAME.fullmatch(name)
        key = (match["name"], path.parent / match["name"]) if match else (Path(name).stem, path)
        if path in groups.setdefault(key, []):
            raise UsageError(f"expected each run file once, found {path} twice; give it once")
        groups[key].append(path)
    names = [name for name, _ in groups]
    return {
        name if names.count(name) == 1 else str(name_with_folder): tuple(files)
        for (name, name_with_folder), files in groups.items()
    }


def read_runs(paths: Iterable[StrPath], *, explored: bool = False) -> RunFile:
    """Read the run files of one system as one run, with the first file's tag.

    With ``explored``, queries of a file such as ``NAME.method-not-background.trec`` are named by paper and
    target; of several topics of a paper that of the liked facet counts, else the first. Raises
    FileFormatError for a broken file, or a query in two files.
    """
    rankings: dict[str, tuple[Hit, ...]] = {}
    tag = ""
    for path in map(Path, paths):
        run = read_run(path)
        tag = tag or run.tag
        named = _by_target(path, run.rankings) if explored else run.rankings
        twice = rankings.keys() & named.keys()
        if twice:
            raise FileFormatError(
                f"{path}: expected queries that no other file of this run has, found {min(twice)}; "
                "give the files of one run with different queries"
            )
        rankings.update(named)
    return RunFile(tag, rankings)


def _by_target(path: Path, rankings: dict[str, tuple[Hit, ...]]) -> dict[str, tuple[Hit, ...]]:
    match = _FACET_NAME.fullmatch(path.name.removesuffix(".gz"))
    if match is None or (match["other"] is None and match["target"] not in SHAPES):
        return rankings
    named: dict[str, tuple[Hit, ...]] = {}
    for query_id, hits in rankings.items():
        paper_id, facet = split_query_id(query_id)
        is_named = "&" in query_id or query_id.endswith(f"_{match['target']}")
        name = query_id if is_named else f"{paper_id}_{match['target']}"
        if name not in named or match["target"].startswith(f"{facet}-"):
            named[name] = hits
    return named


def read_titles(path: StrPath) -> dict[str, str]:
    """Read the titles of a corpus by paper id."""
    papers = read_corpus([str(path)], lambda abstract: [abstract], Reading(keep_without_abstract=True))
    return {paper.paper_id: paper.title for paper in papers}
