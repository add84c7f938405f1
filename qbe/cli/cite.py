"""``qbe cite``: recommend papers to cite."""

from __future__ import annotations

import qbe
from qbe.cli import common
from qbe.cli.search import FORMATS, RUN_HITS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from qbe.search.writers import Result

PROGRAM = "qbe cite"
TABLE_HITS = 20
ABOUT = """\
Recommend papers of an index that a paper, or a draft of one, should cite: candidates by BM25 and by \
vectors projected for citation, scored by the citation model; where the index knows who cites whom, by \
that as well."""
OPTIONS = f"""
--index DIR...!  built by qbe index; several are searched as one
? --paper ID!  a paper of the index
? --paper-file FILE!  a paper with title and abstract: PDF, LaTeX (what it cites counts as --cited, too), JSON
  (with the year in metadata), an entry of a bibliography, or text; - is standard input
? --text TEXT!  an abstract, as it is
? --bibtex FILE!  drafts as BibTeX entries with title and abstract
? --topics FILE!  tab-separated: query_id, paper_id
--title TITLE  the title that goes with --text
--hits N  default: {TABLE_HITS} in a table, {RUN_HITS} in a run
--format {FORMATS}  default: by the name of --output; else a table on a
  terminal, trec elsewhere
--output FILE  default: standard output
{common.OVERWRITE}\
--run-tag TAG  default: qbe-cite
--resume  with --topics: continue an unfinished run
{common.THREADS}# papers given, and years
--cited FILE  papers that it cites already, which help to find the rest and are not recommended: a
  bibliography, or a list of ids, DOIs, arXiv ids or addresses, one a line
--exclude FILE  papers not to recommend, as in --cited
--before YEAR_OR_QUERY  only papers of this year or earlier; query: not younger than the paper itself
--no-links  leave out who cites whom among the papers of the index
# model
--depth N  candidates (default: 1000)
--query abstract|title|keyterms (abstract)  words of the BM25 query: title and abstract, the title, or the
  most telling words of both
--model DIR  a citation model of your own, by qbe train citation
--rerank FOLDER  a model of qbe train citation-pairs, or another of pairs of texts, that scores the best
  candidates again, with parameters as in my-reranker:depth=50,weight=0.5 (its share of the score)
--encoder NAME  of an index whose encoder's folder has moved
"""
PARSER = common.Parser(PROGRAM, ABOUT, OPTIONS)


def main(arguments: list[str]) -> None:
    options = PARSER.parse_args(arguments)

    from qbe.cite.config import RUN_TAG
    from qbe.cli.search import checked_form, default_hits, named_papers, write
    from qbe.search import request
    from qbe.search.filters import describe, parse_before
    from qbe.search.stages import parse_reranker

    form, width = checked_form(options)
    for option in ("cited", "exclude"):
        several = getattr(options, option) and (options.topics or options.bibtex)
        common.refuse(several, f"--{option} is about one paper; give --paper, --paper-file or --text with it")
    expected = "the folder of a model of pairs as `rerank`"
    reranker = None if options.rerank is None else parse_reranker(options.rerank, expected)
    is_other = reranker is not None and not isinstance(reranker, qbe.CrossEncoder)
    common.refuse(is_other, f"expected {expected}, found {options.rerank}")
    before = None if options.before is None else qbe.PaperFilter(before=parse_before(options.before))
    config = common.made(qbe.CiteConfig, options, links=not options.no_links, rerank=reranker, filter=before)
    threads = common.threads(options.threads)

    from qbe.search.present import heading_to_cite
    from qbe.search.writers import Result, open_writer

    k, tag = options.hits or default_hits(form, TABLE_HITS), options.run_tag or RUN_TAG
    with qbe.open_index(options.index, encoder=options.encoder, threads=threads) as index:
        ids, load = _papers(options, index)
        cited = named_papers(PROGRAM, index, options.cited) if options.cited else []
        cited = list(dict.fromkeys([*cited, *_cited_in(index, options.paper_file or "")]))
        excluded = named_papers(PROGRAM, index, options.exclude) if options.exclude else []
        writer = open_writer(
            form, tag, index.paper, width, explain=False, command=PROGRAM, title=heading_to_cite
        )

        def recommend(places: Sequence[int]) -> Iterator[Result]:
            """The recommendations for some papers, made some at a time."""
            if config.filter is not None:
                selected = [recommender.selected(load(place)) for place in places]
                common.note(PROGRAM, describe(selected, None if len(ids) > 1 else k))
            with common.Bar("recommending", "papers", len(places)) as advance:
                for first in range(0, len(places), request.BLOCK):
                    block = places[first : first + request.BLOCK]
                    papers = list(map(load, block))
                    requests = [qbe.CiteRequest(paper, cited, excluded) for paper in papers]
                    found = recommender.batch_recommend(requests, k, matches=writer.needs_matches)
                    for place, paper, hits in zip(block, papers, found, strict=True):
                        yield Result(ids[place], qbe.Query(paper), hits)
                    advance(len(block))

        with qbe.Recommender.open(index, config) as recommender:
            write(options, form, width, index, writer, ids, recommend)


def _papers(
    options: argparse.Namespace, index: qbe.Index
) -> tuple[Sequence[str], Callable[[int], qbe.Paper]]:
    """The ids in the run of the papers that the options state, and a function that loads one."""
    from pathlib import Path

    from qbe.cli.search import given_paper
    from qbe.search.queries import find_papers, from_topics, note_on_papers

    if options.topics:
        source = from_topics(index, Path(options.topics))
        return source.ids, lambda place: source.load([place])[0].papers[0]
    if options.bibtex:
        from qbe.corpus.reading import read_corpus
        from qbe.corpus.sentences import split_sentences

        # Entries without an abstract go by their titles alone.
        reading = qbe.Reading("bibtex", on_error="stop", keep_without_abstract=True)
        papers = list(read_corpus([options.bibtex], split_sentences, reading))
        common.note(PROGRAM, note_on_papers(papers))
    elif options.paper is not None:
        papers = find_papers(index, [options.paper])
    else:
        papers = [given_paper(PROGRAM, options)]
    return [paper.paper_id for paper in papers], papers.__getitem__


def _cited_in(index: qbe.Index, paper_file: str) -> list[str]:
    """The papers of the index that a LaTeX source cites; none of another file, and where there are none."""
    from qbe.cli.search import named_papers
    from qbe.corpus.latex import SUFFIXES

    if not paper_file.lower().endswith(SUFFIXES):
        return []
    try:
        return named_papers(PROGRAM, index, paper_file)
    except qbe.QbeError as error:
        common.note(PROGRAM, f"{error} (nothing of it counts as cited)")
        return []
