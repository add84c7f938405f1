"""Files of releases, judged pools as CSFCube and ASPIRE release them, and records in the form of a corpus."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from qbe.corpus.records import dump_record, paper_to_record
from qbe.errors import DatasetError
from qbe.runs import Judgment
from qbe.types import Paper

Pools = dict[str, dict[str, int]]
"""Grades by candidate, by query paper."""

CANDIDATES, GRADES = "cands", "relevance_adju"


def find_release(name: str, files: Iterable[str], where: str, source: Path | None) -> Path:
    """Return the folder of a release: ``source`` if given, else ``$QBE_DATA/NAME``.

    Raises DatasetError, which says where to get the release, when a file is missing.
    """
    data = os.environ.get("QBE_DATA")
    if source is None and data:
        source = Path(data, name)
    absent = [file for file in files if source is None or not (source / file).is_file()]
    if source is None or absent:
        actual = f"no {', '.join(absent)} in {source}" if source else "neither"
        raise DatasetError(
            f"expected {name}'s release in `source` or in $QBE_DATA/{name}, found {actual}; get it from "
            f"{where}"
        )
    return source


def read_pools(path: Path, papers: Container[str], papers_file: str, highest: int) -> Pools:
    """Read judged pools, ``{query: {"cands": [...], "relevance_adju": [...]}}``, both lists equally long.

    Raises DatasetError for another form, a candidate judged twice, a grade out of range, and an unknown
    paper.
    """
    pools: Pools = {}
    for query, entry in read_object(path).items():
        candidates, grades = _lists(entry)
        if candidates is None or grades is None or len(candidates) != len(grades):
            raise DatasetError(
                f"{path}: expected equally long lists cands and relevance_adju for {query}, found others; "
                "take the file of the release"
            )
        pools[query] = dict(zip(candidates, grades, strict=True))
        wrong = [grade for grade in grades if type(grade) is not int or not 0 <= grade <= highest]
        absent = [paper_id for paper_id in (query, *candidates) if paper_id not in papers]
        if absent:
            problem = f"{absent[0]}, which {papers_file} lacks"
        elif wrong:
            problem = f"the grade {wrong[0]!r}"
        elif len(pools[query]) != len(candidates):
            problem = "a candidate twice"
        else:
            entry.clear()  # both forms of a large collection would not fit into memory
            continue
        raise DatasetError(
            f"{path}: expected papers of the corpus for {query}, each once with a grade from 0 to {highest}, "
            f"found {problem}; take all files from one release"
        )
    return pools


def as_judgments(pools: Mapping[str, Mapping[str, int]]) -> Iterator[Judgment]:
    """Yield the judgements of pools."""
    return (Judgment(query, *each) for query, pool in pools.items() for each in pool.items())


def _lists(entry: Any) -> tuple[list[Any] | None, list[Any] | None]:
    if not isinstance(entry, dict):
        return None, None
    candidates, grades = entry.get(CANDIDATES), entry.get(GRADES)
    strings = isinstance(candidates, list) and all(isinstance(paper_id, str) for paper_id in candidates)
    return candidates if strings else None, grades if isinstance(grades, list) else None


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file; raise DatasetError for anything else."""
    try:
        content = json.loads(path.read_bytes().decode("utf-8-sig"), object_pairs_hook=_compact)
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror}; check the path") from error
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: expected JSON, found {error}; take the file of the release") from error
    if not isinstance(content, dict):
        raise DatasetError(f"{path}: expected an object, found something else; take the file of the release")
    return content


def _compact(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Share the memory of candidate ids: TRECCOVID-RF names each paper 2,400 times."""
    content = dict(pairs)
    candidates = content.get(CANDIDATES)
    if isinstance(candidates, list):
        content[CANDIDATES] = [sys.intern(c) if isinstance(c, str) else c for c in candidates]
    return content


def unsplit(abstract: str) -> list[str]:
    """Keep an abstract as one text, which the index splits into sentences."""
    return [abstract]


def raw_line(paper: Paper) -> bytes:
    """Return a paper as a line of JSON with its abstract as one string."""
    return dump_record({**paper_to_record(paper), "abstract": paper.abstract})


def raw_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Join the sentences of a record with spaces and drop ``pred_labels``.

    >>> raw_record({"paper_id": "1", "abstract": ["A.", "B."], "pred_labels": ["other", "method"]})
    {'paper_id': '1', 'abstract': 'A. B.'}
    """
    kept = {field: value for field, value in record.items() if field != "pred_labels"}
    abstract = record["abstract"]
    return {**kept, "abstract": abstract if isinstance(abstract, str) else " ".join(abstract)}
