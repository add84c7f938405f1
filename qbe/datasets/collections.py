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
        texts = {each.query_id: each.default_text() for each in dataset.queries_iter()}
        qrels: dict[str, dict[str, int]] = {}
        for each in dataset.qrels_iter() if dataset.has_qrels() else ():
            qrels.setdefault(each.query_id, {})[each.doc_id] = int(each.relevance)
        absent = {paper_id for grades in qrels.values() for paper_id in grades}
        documents = ((each.doc_id, *_texts(each)) for each in dataset.docs_iter())
        papers = write_papers(output, _papers(documents, absent))
    except (LookupError, AttributeError, OSError, RuntimeError) as error:
        raise DatasetError(
            f"expected documents and queries of {name} from ir_datasets, which has or gets none; check the "
            "name (https://ir-datasets.com lists them) and the network"
        ) from error
    qrels = qrels or {query: {} for query in texts}
    line = _write_split(output, name.replace("/", "-"), texts, qrels, absent)
    return [f"irds: {papers:,} papers of {name}, by ir_datasets", line]


def _texts(document: Any) -> tuple[str, str]:
    body = getattr(document, "abstract", None) or getattr(document, "text", None) or document.default_text()
    return getattr(document, "title", None) or "", body


def _papers(documents: Iterable[tuple[str, str, str]], absent: set[str]) -> Iterator[Paper]:
    """Yield the documents that have a text, and take their ids out of those that are ``absent``."""
    for paper_id, title, text in documents:
        if (text or title).strip():
            absent.discard(paper_id)
            record = {"paper_id": paper_id, "title": title, "abstract": text if text.strip() else title}
            yield parse_paper(record, f"document {paper_id}", unsplit)


def write_beir(options: DatasetOptions, output: Path, _: Report) -> list[str]:
    """Write a collection in BEIR's layout: corpus.jsonl, queries.jsonl, and a split in each qrels/*.tsv."""
    if options.source is None:
        raise UsageError("expected a folder of https://github.com/beir-cellar/beir as `source`, found none")
    folder = Path(options.source)
    splits = sorted(folder.glob("qrels/*.tsv"))
    files = (folder / "corpus.jsonl", folder / "queries.jsonl", *(splits or [folder / "qrels"]))
    if file := next((file.name for file in files if not file.is_file()), ""):
        expected = "corpus.jsonl, queries.jsonl and qrels/*.tsv"
        raise DatasetError(f"{folder}: expected {expected}, found no {file}; give a folder of BEIR")
    texts = {query: text for query, _, text in _rows(folder / "queries.jsonl")}
    judged = {path.stem: _qrels(path) for path in splits}
    absent = {name for qrels in judged.values() for grades in qrels.values() for name in grades}
    papers = write_papers(output, _papers(_rows(folder / "corpus.jsonl"), absent))
    lines = [_write_split(output, name, texts, judged[name], absent, f".{name}") for name in judged]
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
    """Read lines of a query, a document and a grade; a first one without a digit is a header."""
    qrels: dict[str, dict[str, int]] = {}
    for place, (number, row) in enumerate(read_fields(path, "\t")):
        try:
            query, paper_id, grade = row
            qrels.setdefault(query, {})[paper_id] = int(grade)
        except ValueError as error:
            if place or any(map(str.isdigit, "".join(row))):
                expected = "a query id, a document id and a whole number"
                raise bad_line(path, number, expected, "\t".join(row)) from error
    return qrels


def _write_split(
    output: Path, name: str, texts: dict[str, str], qrels: Qrels, absent: set[str], split: str = ""
) -> str:
    if unknown := next((query for query in qrels if query not in texts), None):
        raise DatasetError(
            f"{name}: expected a text of each judged query, found none of {unknown}; mend the files"
        )
    topics = [Topic(query, "", text=texts[query]) for query in qrels]
    judged = [paper_id for grades in qrels.values() for paper_id in grades]
    lacking = sum(paper_id in absent for paper_id in judged)
    write_queries(output, topics, {f"{name}.qrels": qrels} if judged else {}, split=split)
    said = f", {lacking:,} of them of papers that the corpus lacks" if lacking else ""
    return f"  {name}: {len(topics):,} queries, {len(judged):,} judgements{said}"
