"""``mini``, the collection in the package: 3,000 arXiv papers and 60 judged queries (``mini/README.md``)."""

from __future__ import annotations

import csv
import json
import lzma
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from qbe.datasets.releases import DatasetOptions, Report, write_queries
from qbe.errors import DatasetError
from qbe.query import Topic
from qbe.types import Facet
from qbe.util.files import write_text


def _packaged(name: str) -> bytes:
    """Return the bytes of a file of the collection."""
    try:
        return resources.files("qbe.datasets").joinpath("mini", name).read_bytes()
    except OSError as error:
        raise DatasetError(
            f"expected {name} in the installed package, found none ({error.strerror}); install qbe again"
        ) from error


def corpus() -> bytes:
    """Return the 3,000 papers as JSON lines."""
    return lzma.decompress(_packaged("papers.jsonl.xz"))


def rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(_packaged(name).decode().splitlines(), delimiter="\t"))


def grades(query: str) -> dict[str, dict[str, int]]:
    """Return the grades of a query paper's candidates by facet."""
    return {
        row["paper_id"]: {facet.value: int(row[facet.value]) for facet in Facet}
        for row in rows("judgments.tsv")
        if row["query_id"] == query
    }


def write_mini(_options: DatasetOptions, output: Path, _report: Report) -> list[str]:
    """Write the collection to a folder, its closed queries to ``closed/`` there; return a line a part."""
    papers = corpus()
    write_text(output / "corpus.jsonl", papers.decode())
    parts: dict[str, dict[str, list[dict[str, str]]]] = {"open": {}, "closed": {}}
    part_of = {row["query_id"]: parts[row["part"]] for row in rows("queries.tsv")}
    for row in rows("judgments.tsv"):
        part_of[row["query_id"]].setdefault(row["query_id"], []).append(row)
    lines = [f"mini: {len(papers.splitlines()):,} papers"]
    for name, folder in (("open", output), ("closed", output / "closed")):
        folder.mkdir(exist_ok=True)
        count = _write_queries(parts[name], folder)
        lines.append(f"{name} queries: {len(parts[name])}, each in 3 facets; {count:,} graded pairs")
    return lines


def _write_queries(judged: Mapping[str, Sequence[Mapping[str, str]]], folder: Path) -> int:
    """Write topics, qrels, pools and two folds (every other query) of judged candidates; return how many."""
    topics = [Topic(f"{query}_{facet}", query, facet) for query in judged for facet in Facet]
    pools = {topic.query_id: [row["paper_id"] for row in judged[topic.paper_id]] for topic in topics}
    qrels, folds = {}, {}
    for facet in Facet:
        ids = {topic.query_id: topic.paper_id for topic in topics if topic.facet is facet}
        qrels[f"mini.{facet}.qrels"] = {
            query_id: {row["paper_id"]: int(row[facet.value]) for row in judged[query]}
            for query_id, query in ids.items()
        }
        odd, even = list(ids)[::2], list(ids)[1::2]
        folds[facet.value] = {"fold1_dev": odd, "fold2_dev": even, "fold1_test": even, "fold2_test": odd}
    write_queries(folder, topics, qrels, pools)
    write_text(folder / "folds.json", json.dumps(folds, indent=1))
    return sum(map(len, judged.values()))
