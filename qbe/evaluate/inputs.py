"""Qrels and run files as an evaluation takes them: several files joined."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from qbe import trec
from qbe.errors import CorpusError, FileFormatError, UsageError
from qbe.types import Facet, Hit, Run

_FACET_NAME = re.compile(rf"(?P<name>.+)\.(?:{'|'.join(facet.value for facet in Facet)})(?:\.[^.]+)?")


def read_qrels(paths: Iterable[Path]) -> dict[str, dict[str, int]]:
    """Judgements of several TREC qrels files as one.

    Raises FileFormatError for a broken file, no judgement at all, or a document judged for a query
    in two files.
    """
    joined: dict[str, dict[str, int]] = {}
    source: dict[str, Path] = {}
    for path in paths:
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


def group_runs(paths: Sequence[Path]) -> dict[str, tuple[Path, ...]]:
    """Run files by the name of their system, in the order given.

    ``NAME.background.trec``, ``NAME.method.trec`` and ``NAME.result.trec`` of one folder (with any
    last extension, or none) are one system, NAME; any other file is a system of its own, named by its
    file name without the extension. Names that would coincide get their folder in front. Raises
    UsageError for a file given twice.
    """
    groups: dict[tuple[str, Path], list[Path]] = {}
    for path in paths:
        match = _FACET_NAME.fullmatch(path.name)
        key = (match["name"], path.parent / match["name"]) if match else (path.stem, path)
        if path in groups.setdefault(key, []):
            raise UsageError(f"expected each run file once, found {path} twice; give it once")
        groups[key].append(path)
    names = [name for name, _ in groups]
    return {
        name if names.count(name) == 1 else str(longer): tuple(files)
        for (name, longer), files in groups.items()
    }


def read_runs(paths: Iterable[Path]) -> Run:
    """One system's run out of its files. Raises FileFormatError for a query in two of them."""
    rankings: dict[str, tuple[Hit, ...]] = {}
    tag = ""
    for path in paths:
        run = trec.read_run(path)
        tag = tag or run.tag
        twice = rankings.keys() & run.rankings.keys()
        if twice:
            raise FileFormatError(
                f"{path}: expected queries that no other file of this run has, found {min(twice)}; "
                "give the files of one run with different queries"
            )
        rankings.update(run.rankings)
    return Run(tag, rankings)


def read_titles(path: Path) -> dict[str, str]:
    """Titles by paper id, from a corpus of JSON lines (``paper_id``, ``title``), white space normalized.

    Raises CorpusError for a file that cannot be read, with the line number for a line that is no such
    record.
    """
    titles: dict[str, str] = {}
    try:
        with path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if not line.strip():
                    continue
                try:
                    record = json.loads(line)
                    titles[str(record["paper_id"])] = " ".join(str(record["title"]).split())
                except (ValueError, LookupError, TypeError) as error:
                    raise CorpusError(
                        f"{path}, line {number}: expected a JSON object with paper_id and title, found "
                        f"{line[:60].decode(errors='replace')!r}; give the corpus as plain JSON lines"
                    ) from error
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror}; check the path") from error
    return titles
