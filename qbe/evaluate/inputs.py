"""Qrels files and run files, several of which are joined."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from qbe import trec
from qbe.errors import CorpusError, FileFormatError, UsageError
from qbe.evaluate.results import split_query_id
from qbe.files import StrPath
from qbe.shapes import SHAPES
from qbe.types import Facet, Hit, Paper, Run, Sentence

_FACETS = "|".join(facet.value for facet in Facet)
_WISH = rf"(?P<wish>(?:{_FACETS})(?P<other>-not-(?:{_FACETS}))?|{'|'.join(SHAPES)})"
_FACET_NAME = re.compile(rf"(?P<name>.+)\.{_WISH}(?:\.[^.]+)?")
"""Files of one system: ``NAME.method.trec``, and of exploration ``NAME.method-not-background.trec`` or
``NAME.competitors.trec``.
"""


def read_qrels(paths: Iterable[StrPath]) -> dict[str, dict[str, int]]:
    """Read several TREC qrels files as one: grades by query id and paper id.

    Raises FileFormatError for a broken file, no judgement at all, or a paper judged for a query in two
    files.

    >>> for facet, grade in (("method", 2), ("result", 0)):
    ...     trec.write_qrels(f"{facet}.qrels", [trec.Judgment(f"1_{facet}", "a", grade)])
    >>> read_qrels(["method.qrels", "result.qrels"])
    {'1_method': {'a': 2}, '1_result': {'a': 0}}
    """
    joined: dict[str, dict[str, int]] = {}
    source: dict[str, Path] = {}
    for path in map(Path, paths):
        for query_id, grades in trec.read_qrels(path).items():
            twice = joined.get(query_id, {}).keys() & grades.keys()
            if twice:
                raise FileFormatError(
                    f"{path}: expected each document judged once for a query, found {min(twice)} for "
                    f"{query_id} in {source[query_id]} too; give each qrels file once"
                )
            joined.setdefault(query_id, {}).update(grades)
            source[query_id] = path
    if not joined:
        raise FileFormatError("expected judgements in the qrels files, found none; give other qrels files")
    return joined


def group_runs(paths: Sequence[StrPath]) -> dict[str, tuple[Path, ...]]:
    """Group run files by the name of their system, in the order in which they are given.

    ``NAME.background.trec``, ``NAME.method.trec`` and ``NAME.result.trec`` of one folder (with any last
    extension, or none) are one system, NAME, and so are files named by a facet that is liked and one that is
    not, such as ``NAME.method-not-background.trec``, or by a shape, such as ``NAME.competitors.trec``. Any
    other file is a system by itself, named by its file name without the extension. Where two systems would
    have the same name, their folders are put before it. Raises UsageError for a file given twice.

    >>> for name, files in group_runs(["runs/a.method.trec", "runs/a.result.trec", "runs/b.trec"]).items():
    ...     print(name, len(files))
    a 2
    b 1
    """
    groups: dict[tuple[str, Path], list[Path]] = {}
    for path in map(Path, paths):
        match = _FACET_NAME.fullmatch(path.name)
        key = (match["name"], path.parent / match["name"]) if match else (path.stem, path)
        if path in groups.setdefault(key, []):
            raise UsageError(f"expected each run file once, found {path} twice; give it once")
        groups[key].append(path)
    names = [name for name, _ in groups]
    return {
        name if names.count(name) == 1 else str(name_with_folder): tuple(files)
        for (name, name_with_folder), files in groups.items()
    }


def read_runs(paths: Iterable[StrPath], *, explored: bool = False) -> Run:
    """Read the run files of one system as one run; its tag is that of the first file.

    Where runs ``explored``, the queries of a file such as ``NAME.method-not-background.trec`` (or of a shape,
    ``NAME.competitors.trec``) are named by paper and wish (``ID_method-not-background``) in place of their
    topics; of several topics of a paper that of the liked facet counts, else the first.

    Raises FileFormatError for a broken file, or a query in two files.

    >>> for facet in ("method", "result"):
    ...     trec.write_run(f"bm25.{facet}.trec", Run("bm25", {f"1_{facet}": (Hit("a", 9.5),)}))
    >>> list(read_runs(["bm25.method.trec", "bm25.result.trec"]).rankings)
    ['1_method', '1_result']
    """
    rankings: dict[str, tuple[Hit, ...]] = {}
    tag = ""
    for path in map(Path, paths):
        run = trec.read_run(path)
        tag = tag or run.tag
        named = _by_wish(path, run.rankings) if explored else run.rankings
        twice = rankings.keys() & named.keys()
        if twice:
            raise FileFormatError(
                f"{path}: expected queries that no other file of this run has, found {min(twice)}; "
                "give the files of one run with different queries"
            )
        rankings.update(named)
    return Run(tag, rankings)


def _by_wish(path: Path, rankings: Mapping[str, tuple[Hit, ...]]) -> Mapping[str, tuple[Hit, ...]]:
    """The rankings of a file of exploration by paper and wish; others as they are."""
    match = _FACET_NAME.fullmatch(path.name)
    if match is None or (match["other"] is None and match["wish"] not in SHAPES):
        return rankings
    named: dict[str, tuple[Hit, ...]] = {}
    for query_id, hits in rankings.items():
        paper_id, facet = split_query_id(query_id)
        is_named = "&" in query_id or query_id.endswith(f"_{match['wish']}")
        name = query_id if is_named else f"{paper_id}_{match['wish']}"
        if name not in named or match["wish"].startswith(f"{facet}-"):
            named[name] = hits
    return named


def read_titles(path: StrPath) -> dict[str, str]:
    """Read titles by paper id from a corpus of JSON lines (``paper_id``, ``title``).

    White space in titles is normalized. Raises CorpusError for a file that cannot be read, and, with the
    line number, for a line that is no such record.

    >>> _ = Path("corpus.jsonl").write_text('{"paper_id": "1", "title": " On   stone"}')
    >>> read_titles("corpus.jsonl")
    {'1': 'On stone'}
    """
    return {paper.paper_id: paper.title for paper in _papers(path)}


def read_papers(path: StrPath, queries: Collection[str], others: Collection[str] = ()) -> dict[str, Paper]:
    """Read the papers with some ids from a corpus of JSON lines.

    A record has ``paper_id`` and ``title``, and may have ``abstract`` (a string or a list of sentences) and
    ``metadata``. ``queries`` are ids of papers that must be there, ``others`` of such that need not. Raises
    what `read_titles` raises, and CorpusError where the paper of a query is missing.

    >>> _ = Path("corpus.jsonl").write_text('{"paper_id": "1", "title": "On sand", "abstract": "It is old."}')
    >>> read_papers("corpus.jsonl", {"1"})["1"].abstract
    'It is old.'
    """
    wanted = {*queries, *others}
    papers = {paper.paper_id: paper for paper in _papers(path) if paper.paper_id in wanted}
    missing = [query for query in queries if query not in papers]
    if missing:
        raise CorpusError(
            f"{path}: expected the papers of all {len(queries)} queries, found none for {len(missing)} "
            f"({missing[0]}, ...); give the corpus that the qrels belong to"
        )
    return papers


def _papers(path: StrPath) -> Iterator[Paper]:
    """The papers of a corpus of JSON lines, each abstract as the sentences that it has, or as one."""
    try:
        with Path(path).open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if not line.strip():
                    continue
                try:
                    yield _paper(json.loads(line))
                except (ValueError, LookupError, TypeError, RecursionError) as error:
                    raise CorpusError(
                        f"{path}, line {number}: expected a JSON object with paper_id and title (and text "
                        "as abstract and an object as metadata, where they are there), found "
                        f"{line[:60].decode(errors='replace')!r}; give the corpus as plain JSON lines"
                    ) from error
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror}; check the path") from error


def _paper(record: Any) -> Paper:
    """The paper of a record; raises ValueError, LookupError or TypeError where it is none."""
    if not isinstance(record, dict):
        raise TypeError(f"expected an object, found {type(record).__name__}")
    abstract = record.get("abstract") or []
    sentences = [abstract] if isinstance(abstract, str) else abstract
    title = " ".join(str(record["title"]).split())
    metadata = dict(record.get("metadata") or {})
    return Paper(str(record["paper_id"]), title, tuple(map(Sentence, sentences)), metadata=metadata)
