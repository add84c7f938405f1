"""``qbe demo``: a first search, in the collection that is part of the package."""

import json
import shlex
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress

import qbe
from qbe.cli.parser import parse
from qbe.datasets import arxiv
from qbe.errors import EncoderMismatchError, MissingDependencyError, OutputError
from qbe.index import jvm
from qbe.models.cards import DEFAULT_ENCODER
from qbe.util.files import atomic_file, cache_folder

PAPER, HITS = "1904.00842", 3
"""A query of the collection: evidential deep learning (method) for radar maps (problem)."""


def main(arguments: list[str]) -> None:
    parse("demo", arguments)

    from qbe.search.present import to_table

    width, judged = min(shutil.get_terminal_size((100, 24)).columns, 120), arxiv.grades(PAPER)
    with open_demo_index(lambda line: print(line, file=sys.stderr)) as index:
        print(f"{len(index):,} arXiv papers are indexed in {index.folder}\n", flush=True)
        folder = shlex.quote(str(index.folder))
        with qbe.SearchSession(index) as session:
            for facet in ("method", "problem"):
                query = qbe.Query(index.paper(PAPER), facet)
                hits = session.search(qbe.SearchRequest(query, HITS, grades=True)).hits
                command = f"qbe search --index {folder} --paper {PAPER} --facet {facet} --hits {HITS}"
                print(f"$ {command} --format table")
                print(f"{to_table(index.paper, query, hits, width)}\n")
                known = [judged[hit.paper_id] for hit in hits if hit.paper_id in judged]
                method, problem = (sum(each[n] >= 2 for each in known) for n in ("method", "background"))
                verdict = f"{method} similar in method, {problem} in problem"
                print(f"Assessors read {len(known)} of these {len(hits)} papers: {verdict}.\n", flush=True)
    print("What to do next\n")
    search = f"qbe search --index {folder}"
    for what, how in {
        "the same method elsewhere": f"{search} --paper {PAPER} --like same-method-other-problem",
        "search with your own text": f'{search} --text "We ..." --facet method',
        "search on a page": f"qbe serve --index {folder}",
        "index your Zotero library": "qbe index --corpus zotero --output DIR",
        "index other papers": "qbe index --corpus FILE --output DIR",
        "check the installation": "qbe doctor",
        "read on": "README.md, docs/searching.md, docs/indexing.md; qbe COMMAND --help",
    }.items():
        print(f"  {what:<25}  {how}")


def open_demo_index(report: Callable[[str], object]) -> "qbe.Index":
    """The collection's index in the cache, built unless it is whole and of these papers and this encoder."""
    corpus, folder = arxiv.corpus(), cache_folder() / "demo" / "mini"
    ids = [json.loads(line)["paper_id"] for line in corpus.splitlines()]
    with suppress(qbe.IndexFormatError, EncoderMismatchError):
        index = qbe.open_index(folder, encoder=DEFAULT_ENCODER)
        lacks_words = index.manifest.lucene is None and jvm.find_jar() is not None
        if index.manifest.dense is not None and not lacks_words and [each.paper_id for each in index] == ids:
            return index
        index.close()
    report(f"indexing {len(ids):,} papers in {folder}, once ...")
    source = folder.with_name("mini.jsonl")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        raise OutputError(f"cannot write {folder}: no permission; set QBE_CACHE to another folder") from None
    try:
        jvm.anserini_jar()
    except MissingDependencyError as error:
        report(f"the searches below use vectors alone: {error}")
    with atomic_file(source) as stream:
        stream.write(corpus)
    return qbe.build_index(folder, source, qbe.BuildSettings(bm25=jvm.find_jar() is not None), overwrite=True)
