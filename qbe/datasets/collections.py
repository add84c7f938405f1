"""Collections of short queries as others have them: any of ir_datasets, and folders as BEIR lays them out.

Documents become a corpus, queries topics that are texts. The title stands in for an abstract; a document
without any text is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from qbe.corpus import parse_paper, read_records
from qbe.corpus.sentences import unsplit
from qbe.datasets.releases import DatasetOptions, Report, write_papers, write_queries
from qbe.errors import DatasetError, UsageError, check_package
from qbe.query import Topic
from qbe.runs import Qrels
from qbe.types import Paper
from qbe.util.text import bad_line, read_fields


def write_irds(name: str, output: Path, report: Report) -> list[str]:
    """Write a collection that ir_datasets has under a name, downloaded by it where need be."""
    package = check_package("ir_datasets")
    report(f"reading {name} by ir_datasets, which downloads what it lacks")
    try:
        dataset = package.load(name)
        papers = write_papers(output, _papers((each.doc_id, *_texts(each)) for each in dataset.docs_iter()))
        texts = {each.query_id: each.default_text() for each in dataset.queries_iter()}
        qrels: dict[str, dict[str, int]] = {}
        for each in dataset.qrels_iter() if dataset.has_qrels() else ():
            qrels.setdefault(each.query_id, {})[each.doc_id] = int(each.relevance)
    except (LookupError, AttributeError, OSError, RuntimeError) as error:
        expected = "a collection of ir_datasets that has documents and queries, and can be had"
        hint = "https://ir-datasets.com lists them"
        raise DatasetError(f"expected {expected}, found {name} ({error!r:.200}); {hint}") from error
    line = _write_split(output, name.replace("/", "-"), texts, qrels or {query: {} for query in texts}, "")
    return [f"irds: {papers:,} papers of {name}, by ir_datasets", line]


def _texts(document: Any) -> tuple[str, str]:
    body = getattr(document, "abstract", None) or getattr(document, "text", None) or document.default_text()
    return getattr(document, "title", None) or "", body


def _papers(documents: Iterable[tuple[str, str, str]]) -> Iterator[Paper]:
    for paper_id, title, text in documents:
        if (text or title).strip():
            record = {"paper_id": paper_id, "title": title, "abstract": text if text.strip() else title}
            yield parse_paper(record, f"document {paper_id}", unsplit)


def write_beir(options: DatasetOptions, output: Path, _: Report) -> list[str]:
    """Write a collection in BEIR's layout: corpus.jsonl, queries.jsonl, and a split in each qrels/*.tsv."""
    if options.source is None:
        raise UsageError("expected a folder of https://github.com/beir-cellar/beir as `source`, found none")
    folder = Path(options.source)
    splits = sorted(folder.glob("qrels/*.tsv"))
    files = (folder / "corpus.jsonl", folder / "queries.jsonl", *(splits or [folder / "qrels"]))
    if absent := [file.name for file in files if not file.is_file()]:
        expected = "corpus.jsonl, queries.jsonl and qrels/*.tsv"
        raise DatasetError(f"{folder}: expected {expected}, found no {absent[0]}; give a folder of BEIR")
    papers = write_papers(output, _papers(_rows(folder / "corpus.jsonl")))
    texts = {query: text for query, _, text in _rows(folder / "queries.jsonl")}
    lines = [_write_split(output, path.stem, texts, _qrels(path), f".{path.stem}") for path in splits]
    return [f"beir: {papers:,} papers from {folder}", *lines]


def _rows(path: Path) -> Iterator[tuple[str, str, str]]:
    for where, record in read_records(path):
        row: tuple[Any, ...] = (record.get("_id"), record.get("title", ""), record.get("text"))
        if not all(isinstance(each, str) for each in row):
            raise DatasetError(
                f"{where}: expected strings as _id, title and text, found {row!a:.80}; mend it"
            )
        yield row[0], row[1], row[2]


def _qrels(path: Path) -> Qrels:
    """Read lines of a query, a document and a grade below a header."""
    qrels: dict[str, dict[str, int]] = {}
    for number, row in list(read_fields(path, "\t"))[1:]:
        try:
            query, paper_id, grade = row
            qrels.setdefault(query, {})[paper_id] = int(grade)
        except ValueError as error:
            expected = "a query id, a document id and a whole number"
            raise bad_line(path, number, expected, "\t".join(row)) from error
    return qrels


def _write_split(output: Path, name: str, texts: dict[str, str], qrels: Qrels, split: str) -> str:
    if unknown := next((query for query in qrels if query not in texts), None):
        raise DatasetError(
            f"{name}: expected a text of each judged query, found none of {unknown}; mend the files"
        )
    topics = [Topic(query, "", text=texts[query]) for query in qrels]
    count = sum(map(len, qrels.values()))
    write_queries(output, topics, {f"{name}.qrels": qrels} if count else {}, split=split)
    return f"  {name}: {len(topics):,} queries, {count:,} judgements"
