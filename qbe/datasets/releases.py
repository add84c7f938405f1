"""What data sets share: options, finding a release, judged pools, files of the other commands."""

import json
import os
import sys
from collections.abc import Callable, Container, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbe.corpus.records import dump_record, paper_to_record
from qbe.errors import DatasetError
from qbe.query import Topic
from qbe.runs import Qrels, write_pools, write_qrels, write_topics
from qbe.types import Paper
from qbe.util.files import StrPath, atomic_file, cache_folder
from qbe.util.web import download

Report = Callable[[str], None]
Pools = dict[str, dict[str, int]]  # grades by candidate, by query paper

CANDIDATES, GRADES = "cands", "relevance_adju"


@dataclass(frozen=True, slots=True)
class DatasetOptions:
    """Options of a data set; each takes those that `qbe.datasets.TAKEN_BY` says."""

    source: StrPath | None = None  # the folder of the release (default: ``$QBE_DATA/NAME``, or a download)
    raw: bool = False  # write each abstract as one string, without labels
    corpus: str | None = None  # of citations, a corpus in place of the release; of graded-pairs, the papers
    split_years: tuple[int, ...] = ()  # of such a corpus, the last year of train, and of dev
    leave_out: tuple[StrPath, ...] = ()  # files of papers: none with such a title is a query of citations


def place_of(name: str, source: StrPath | None) -> Path | None:
    """Return the place of a release: ``source``, or else ``$QBE_DATA/NAME`` where QBE_DATA is set."""
    data = os.environ.get("QBE_DATA")
    return Path(source) if source is not None else Path(data, name) if data else None


def find_or_download(
    name: str, source: StrPath | None, url: str, digests: Mapping[str, str], report: Report
) -> Path:
    """Return the folder ``source``, else ``$QBE_DATA/NAME`` if it is there, else a download to the cache."""
    place = place_of(name, source)
    if place is not None and (source is not None or place.is_dir()):
        return place
    folder = cache_folder() / Path(name).name
    by_hand = "check the network, or fetch the release by hand and give its folder as `source`"

    def fetch(path: str) -> bool:
        return download(url + path, folder / path, digests[path], DatasetError, by_hand)

    with ThreadPoolExecutor(8) as several:
        fetched = sum(several.map(fetch, digests))
    if fetched:
        report(f"downloaded {fetched} files of {url}")
    return folder


def find_release(name: str, files: Iterable[str], where: str, source: StrPath | None) -> Path:
    """Return the folder of a release, ``source`` or else ``$QBE_DATA/NAME``, or say where to get it."""
    folder = place_of(name, source)
    absent = [file for file in files if folder is None or not (folder / file).is_file()]
    if folder is None or absent:
        actual = f"no {', '.join(absent)} in {folder}" if folder else "neither"
        raise DatasetError(
            f"expected {name}'s release in `source` or in $QBE_DATA/{name}, found {actual}; get it from "
            f"{where}"
        )
    return folder


def read_pools(path: Path, papers: Container[str], papers_file: str) -> Pools:
    """Read judged pools, ``{query: {"cands": [...], "relevance_adju": [...]}}``, both lists equally long."""
    pools: Pools = {}
    for query, entry in read_object(path).items():
        try:
            pools[query] = dict(zip(entry[CANDIDATES], entry[GRADES], strict=True))
            entry.clear()  # both forms of a large collection would not fit into memory
        except (KeyError, TypeError, ValueError) as error:
            raise DatasetError(
                f"{path}: expected equally long lists cands and relevance_adju for {query}, found others; "
                "take the file of the release"
            ) from error
        if absent := [paper_id for paper_id in (query, *pools[query]) if paper_id not in papers]:
            raise DatasetError(
                f"{path}: {absent[0]} is not in {papers_file}; take all files from one release"
            )
    return pools


def write_queries(
    output: Path,
    topics: Iterable[Topic],
    qrels: Mapping[str, Qrels],
    pools: Mapping[str, Iterable[str]] | None = None,
    split: str = "",
) -> None:
    """Write topics, qrels (judged pools by query, by the name of the file) and pools to a folder."""
    write_topics(output / f"topics{split}.tsv", topics)
    if pools is not None:
        write_pools(output / f"pools{split}.tsv", pools)
    for name, judged in qrels.items():
        write_qrels(output / name, judged)


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file; raise DatasetError for anything else."""

    def compact(pairs: list[tuple[str, Any]]) -> dict[str, Any]:  # TRECCOVID-RF names each paper 2,400 times
        made = dict(pairs)
        if isinstance(names := made.get(CANDIDATES), list):
            made[CANDIDATES] = [sys.intern(name) if isinstance(name, str) else name for name in names]
        return made

    try:
        content = json.loads(path.read_bytes().decode("utf-8-sig"), object_pairs_hook=compact)
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror}; check the path") from error
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: expected JSON, found {error}; take the file of the release") from error
    if not isinstance(content, dict):
        raise DatasetError(f"{path}: expected an object, found something else; take the file of the release")
    return content


def write_papers(output: Path, papers: Iterable[Paper]) -> int:
    """Write papers as ``corpus.jsonl``, the abstract of unlabelled ones as one string; return how many."""
    number = 0
    with atomic_file(output / "corpus.jsonl") as stream:
        for number, paper in enumerate(papers, start=1):  # noqa: B007
            stream.write(dump_record(paper_to_record(paper)) if paper.labelled else raw_line(paper))
    return number


def raw_line(paper: Paper) -> bytes:
    """Return a paper as a line of JSON with its abstract as one string."""
    return dump_record({**paper_to_record(paper), "abstract": paper.abstract})


def raw_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Join the sentences of a record with spaces and drop ``pred_labels``."""
    kept = {field: value for field, value in record.items() if field != "pred_labels"}
    abstract = record["abstract"]
    return {**kept, "abstract": abstract if isinstance(abstract, str) else " ".join(abstract)}
