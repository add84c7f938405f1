"""``qbe cite``: recommend papers to cite."""

from __future__ import annotations

import sys

from qbe.cli import common as _cli
from qbe.cli.cite_options import OPTIONS, PROGRAM, TABLE_HITS, parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from qbe.cite.config import CiteConfig
    from qbe.cite.recommender import CiteRequest, Recommender
    from qbe.index.index import Index
    from qbe.search.output import Inputs
    from qbe.search.writers import ResultWriter
    from qbe.types import Paper


def main(arguments: list[str]) -> None:
    """Parse the options, recommend, and write the results."""
    options = parser().parse_args(arguments)
    from pathlib import Path

    from qbe.cite.config import RUN_TAG
    from qbe.cli.cite_options import check, config_of
    from qbe.cli.search_options import default_hits, destination_of, form_of
    from qbe.util.outputs import CITED, check_output, with_tag

    form, width = form_of(options)
    check(options, form)
    config = config_of(options)
    threads = _cli.threads(options.threads)
    if options.output:
        check_output(options.output, with_tag(CITED, options.run_tag))

    from qbe.cite.recommender import CiteRequest, Recommender
    from qbe.index.opening import open_index
    from qbe.search.output import write_blocks
    from qbe.search.present import heading_to_cite
    from qbe.search.writers import open_writer

    k = options.hits or default_hits(form, TABLE_HITS)
    with open_index(options.index, encoder=options.encoder, threads=threads) as index:
        ids, load = _papers(options, index)
        cited = list(dict.fromkeys([*_named(index, options.cited), *_cited_in(index, options.paper_file)]))
        excluded = _named(index, options.exclude)
        tag = options.run_tag or RUN_TAG
        writer = open_writer(
            form, tag, index.paper, width, explain=False, command=PROGRAM, title=heading_to_cite
        )
        destination = destination_of(options, form, options.output, PROGRAM)
        topics = Path(options.topics) if options.topics else None
        with Recommender.open(index, config) as recommender:

            def requests(block: slice) -> list[CiteRequest]:
                return [CiteRequest(paper, cited, excluded) for paper in load(block)]

            write_blocks(
                destination,
                lambda: _inputs(index, config, topics, k, tag, form, width),
                len(ids),
                lambda blocks: _recommend(recommender, ids, requests, k, writer, blocks),
            )


def _papers(
    options: argparse.Namespace, index: Index
) -> tuple[Sequence[str], Callable[[slice], Sequence[Paper]]]:
    """The ids in the run of the papers that the options state, and a function that loads some of them."""
    from pathlib import Path

    from qbe.corpus.reading import read_corpus
    from qbe.corpus.records import Reading
    from qbe.corpus.sentences import split_sentences
    from qbe.search.queries import find_papers, from_topics, note_on_papers, pasted_paper
    from qbe.search.query_file import paper_from_file

    if options.topics:
        source = from_topics(index, Path(options.topics))
        return source.ids, lambda block: [query.papers[0] for query in source.load(block)]
    if options.bibtex:
        # Entries without an abstract go by their titles alone.
        reading = Reading("bibtex", on_error="stop", keep_without_abstract=True)
        papers = list(read_corpus([options.bibtex], split_sentences, reading))
    elif options.paper is not None:
        papers = find_papers(index, [options.paper])
    elif options.paper_file is not None:
        papers = [paper_from_file(options.paper_file)]
    else:
        papers = [pasted_paper(options.text, options.title or "")]
    if options.paper is None and (note := note_on_papers(papers)):
        print(f"{PROGRAM}: {note}", file=sys.stderr)
    return [paper.paper_id for paper in papers], lambda block: papers[block]


def _named(index: Index, path: str | None) -> list[str]:
    """The papers of the index that a file names; what the index lacks is said on standard error."""
    if path is None:
        return []
    from pathlib import Path

    from qbe.search.paper_files import papers_of

    with index.reading() as reader:
        named = papers_of(reader, Path(path))
    if note := named.missing_in_words(path):
        print(f"{PROGRAM}: {note}", file=sys.stderr)
    return named.paper_ids


def _cited_in(index: Index, paper_file: str | None) -> list[str]:
    """The papers of the index that a LaTeX source cites; none of another file, and where there are none."""
    from qbe.corpus.latex import SUFFIXES
    from qbe.errors import QbeError

    if paper_file is None or not paper_file.lower().endswith(SUFFIXES):
        return []
    try:
        return _named(index, paper_file)
    except QbeError as error:
        print(
            f"{PROGRAM}: {_cli.with_options(str(error), OPTIONS)} (nothing of it counts as cited)",
            file=sys.stderr,
        )
        return []


def _recommend(
    recommender: Recommender,
    ids: Sequence[str],
    requests: Callable[[slice], list[CiteRequest]],
    k: int,
    writer: ResultWriter,
    blocks: Sequence[slice],
) -> Iterator[str]:
    """The recommendations of blocks of papers, made as they are asked for."""
    from qbe.query import Query
    from qbe.search.filtering import describe
    from qbe.search.writers import Result

    if recommender.config.filter is not None:
        selected = [recommender.selected(request.paper) for block in blocks for request in requests(block)]
        if note := describe(selected, None if len(ids) > 1 else k):
            print(f"{PROGRAM}: {note}", file=sys.stderr)
    with _cli.counter("recommending", "papers", sum(len(ids[block]) for block in blocks)) as advance:
        for block in blocks:
            batch = requests(block)
            hits = recommender.batch_recommend(batch, k, matches=writer.needs_matches)
            results = [
                Result(query_id, Query(request.paper), each)
                for query_id, request, each in zip(ids[block], batch, hits, strict=True)
            ]
            yield writer.text(results, block.start == 0)
            advance(len(batch))


def _inputs(
    index: Index, config: CiteConfig, topics: object, k: int, tag: str, form: str, width: int
) -> Inputs:
    """All that a run depends on, as JSON holds it; ``width`` is that of tables, in columns."""
    from importlib.metadata import version
    from pathlib import Path

    from qbe.cite.model import WEIGHTS, default_model
    from qbe.search.output import BLOCK
    from qbe.search.rerank.open import describe_reranker
    from qbe.util.files import sha256

    assert isinstance(topics, Path)
    dense = index.manifest.dense
    assert dense is not None  # a recommender was opened
    model = default_model(dense["encoder"]) if config.model is None else Path(config.model)
    reranker = config.rerank
    return {
        "index": index.manifest.digest,
        "topics": sha256(topics),
        "options": {
            **config.record(),
            "hits": k,
            "run_tag": tag,
            "format": form,
            "width": width if form == "table" else None,
        },
        "model": sha256(model / WEIGHTS),
        "reranker": None if reranker is None else describe_reranker(reranker.model),
        "version": [version("qbe"), BLOCK],
    }


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
