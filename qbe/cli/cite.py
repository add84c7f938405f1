"""``qbe cite``: recommend papers to cite."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import qbe
from qbe.cli import common
from qbe.cli.common import refuse
from qbe.cli.parser import parse
from qbe.cli.search import CITED_HITS, checked_form, default_hits, given_paper, named_papers
from qbe.search.filters import OF_QUERY, describe
from qbe.search.stages import parse_reranker


def main(arguments: list[str]) -> None:
    options = parse("cite", arguments)

    from qbe.cite.recommender import RUN_TAG
    from qbe.search import request

    form, width, how = checked_form(options)
    for option in ("cited", "exclude"):
        several = getattr(options, option) and (options.topics or options.bibtex)
        refuse(several, f"--{option} is about one paper; give --paper, --paper-file or --text with it")
    expected = "the folder of a model of pairs as `rerank`"
    reranker = None if options.rerank is None else parse_reranker(options.rerank, expected)
    is_other = reranker is not None and not isinstance(reranker, qbe.CrossEncoder)
    refuse(is_other, f"expected {expected}, found {options.rerank}")
    before, year = None, options.before
    if year is not None:
        wrong = year != OF_QUERY and not (year.isascii() and year.isdecimal())
        refuse(wrong, f"expected a year or query as `before`, found {year!r}")
        before = qbe.PaperFilter(before=year if year == OF_QUERY else int(year))
    config = common.made(qbe.CiteConfig, options, links=not options.no_links, rerank=reranker, filter=before)

    from qbe.search.present import heading_to_cite
    from qbe.search.writers import WITHOUT_MATCHES, Result, open_writer, write_run

    k, tag = options.hits or default_hits(form, CITED_HITS), options.run_tag or RUN_TAG
    with qbe.open_index(options.index, encoder=options.encoder, threads=options.threads) as index:
        ids, load = _citing_papers(options, index)
        cited = named_papers(index, options.cited) if options.cited else []
        excluded = named_papers(index, options.exclude) if options.exclude else []
        cited = list(dict.fromkeys([*cited, *_cited_in(index, options.paper_file or "")]))
        writer = open_writer(
            form, tag, index.paper, width, explain=False, command="qbe cite", title=heading_to_cite
        )

        def recommend(places: Sequence[int]) -> Iterator[Result]:
            if config.filter is not None:
                selected = [recommender.selected(load(place)) for place in places]
                common.note(describe(selected, None if len(ids) > 1 else k))
            with common.Bar("recommending", "papers", len(places)) as advance:
                for first in range(0, len(places), request.BLOCK):
                    block = places[first : first + request.BLOCK]
                    papers = list(map(load, block))
                    requests = [qbe.CiteRequest(paper, cited, excluded) for paper in papers]
                    found = recommender.batch_recommend(requests, k, matches=form not in WITHOUT_MATCHES)
                    for place, paper, hits in zip(block, papers, found, strict=True):
                        yield Result(ids[place], qbe.Query(paper), hits)
                    advance(len(block))

        with qbe.Recommender.open(index, config) as recommender:
            write_run(options.output, writer, ids, recommend, **how)


def _citing_papers(
    options: argparse.Namespace, index: "qbe.Index"
) -> "tuple[Sequence[str], Callable[[int], qbe.Paper]]":
    """The ids in the run of the papers that the options state, and a function that loads one."""
    from qbe.search.paper_file import note_on_papers
    from qbe.search.queries import distinct_papers, from_topics

    if options.topics:
        source = from_topics(index, Path(options.topics))
        return source.ids, lambda place: source.load([place])[0].papers[0]
    if options.bibtex:
        from qbe.corpus.reading import read_corpus
        from qbe.corpus.sentences import split_sentences

        # Entries without an abstract go by their titles alone.
        reading = qbe.Reading("bibtex", on_error="stop", keep_without_abstract=True)
        papers = list(read_corpus([options.bibtex], split_sentences, reading))
        common.note(note_on_papers(papers))
    elif options.paper is not None:
        papers = distinct_papers(index, [options.paper])
    else:
        papers = [given_paper(options)]
    return [paper.paper_id for paper in papers], papers.__getitem__


def _cited_in(index: "qbe.Index", paper_file: str) -> list[str]:
    """The papers of the index that a LaTeX source cites; none of another file, and where there are none."""
    from qbe.corpus.latex import SUFFIXES

    if not paper_file.lower().endswith(SUFFIXES):
        return []
    try:
        return named_papers(index, paper_file, required=False)
    except qbe.QbeError as error:
        common.note(f"{error} (nothing of it counts as cited)")
        return []
