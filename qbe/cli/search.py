"""``qbe search``: find papers like a paper, for its problem, its method or its findings."""

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import qbe
from qbe.cli import common
from qbe.cli.common import refuse, searched
from qbe.cli.parser import parse
from qbe.corpus.bibliography import FORMATS as BIBLIOGRAPHIES
from qbe.errors import check_count
from qbe.query import PLAIN, TopicAspect, parse_positions, parse_wish
from qbe.runs import check_pools, read_pools
from qbe.search.filters import PaperFilter, describe, parse_where, parse_years
from qbe.search.stages import JOINT_DEPTH, Fused, Stages, default_stages, parse_first_stage, parse_reranker
from qbe.util.files import check_output

if TYPE_CHECKING:
    from qbe.search.queries import QuerySource
    from qbe.search.writers import Result

TABLE_HITS, CITED_HITS, RUN_HITS = 10, 20, 1000

FORM_OF_NAME = {".json": "json", ".jsonl": "json", ".csv": "csv", ".md": "markdown"}
FORM_OF_NAME |= {".bib": "bibtex", ".ris": "ris"}
"""Formats by how names of files end, where none is given."""

OTHER_NAMES = (
    *(".docx", ".htm", ".html", ".parquet", ".pdf", ".rst", ".tex", ".tsv", ".xls", ".xlsx", ".xml"),
    *(".yaml", ".yml"),
)
"""How names of files end that are of a format which qbe does not write."""

DEFAULTS = {
    "--first-stage": "default: fused, of an index without vectors bm25, without BM25 dense",
    "--rerank": f"default: grades:joint={JOINT_DEPTH} where the index's encoder has grades, else projections "
    "where it has these, else cross-encoder (joint grades alone); none leaves it out",
}


def main(arguments: list[str]) -> None:
    from qbe.search.stages import FIRST_STAGES, RERANKERS, describe_stages

    for option, stages in (("--first-stage", FIRST_STAGES), ("--rerank", RERANKERS)):
        if (option, "help") in pairwise(arguments):
            print(describe_stages(stages), DEFAULTS[option], sep="\n")
            return
    run(parse("search", arguments, searched))


def run(options: argparse.Namespace, open_index: "Callable[..., qbe.Index] | None" = None) -> None:
    """Search as the options say; ``open_index`` may open the index elsewhere than in this process."""
    form, width, how = checked_form(options)
    several = len(options.paper or ()) > 1 or options.not_paper or options.cited
    if options.sentences is not None:
        refuse(options.topics or several, "--sentences picks from one paper; give that with it")
    both = "--unlike goes with --like, what is to be in common; give both"
    refuse(options.unlike and not options.like, both)
    refuse(options.not_paper and options.topics, "--not-paper goes with papers; topics have aspects for that")
    if options.explain:
        refuse(form not in ("table", "json"), f"--explain goes with --format table or json, found {form}")
    stages_of(options, Stages(Fused()))  # what is wrong with them is said before an index is opened
    paper_filter = filter_of(options)
    like, k = options.like, options.hits
    weights, variety = (None, PLAIN) if like is None else parse_wish(like, options.unlike or ())
    if k is None and any(":" in part for part in options.like or ()):  # of a mixed list
        k = round(sum(variety.mix.values()))

    from qbe.index import jvm
    from qbe.search.writers import WITHOUT_MATCHES, open_writer, write_run

    if not options.topics:
        jvm.extra_options.append(jvm.QUICK)
    pools = read_pools(Path(options.pool)) if options.pool else None
    open_index = open_index or qbe.open_index
    with open_index(options.index, encoder=options.encoder, threads=options.threads) as index:
        source = _source(options, index, weights)
        for each in source.notes:
            common.note(each)
        if pools is not None:
            check_pools(pools, source.ids, index)
        stages = stages_of(options, default_stages(index))
        graded_by = ""
        if isinstance(stages.reranker, qbe.LanguageModel) and not variety.bounds:  # those are estimated
            graded_by = stages.reranker.model or ""
        tag = options.run_tag or stages.run_tag
        writer = open_writer(form, tag, index.paper, width, explain=options.explain, graded_by=graded_by)
        with qbe.SearchSession(index, stages, chosen=options.rerank is not None) as session:
            with_matches = form not in WITHOUT_MATCHES
            request = partial(
                qbe.SearchRequest,
                k=k or default_hits(form),
                filter=paper_filter,
                labels=options.facets,
                matches=with_matches,
                explain=options.explain,
                grades=with_matches and session.can_grade,
                variety=variety,
            )
            search = partial(_results, session, source, pools, request)
            write_run(options.output, writer, source.ids, search, **how)


def checked_form(options: argparse.Namespace) -> tuple[str, int, dict[str, bool]]:
    """The format of the output, how many columns a table has, and how `write_run` writes; raises UsageError
    for options that do not go together, OutputError for a file that exists.
    """
    form, output = options.format, (options.output or "").lower()
    ends = f"expected an --output that is named as a TREC run or ends in {', '.join(FORM_OF_NAME)}"
    is_other = form is None and output.endswith(OTHER_NAMES)
    refuse(is_other, f"{ends}, found {options.output}; give the --format")
    if form is None and output:
        form = next((form for ending, form in FORM_OF_NAME.items() if output.endswith(ending)), "trec")
    elif form is None:
        form = "table" if sys.stdout.isatty() else "trec"
    if options.hits is not None:
        check_count("k", options.hits)
    text, tag = options.text or "", options.run_tag
    path = text.strip().removeprefix("@")
    is_name = path.lower().endswith((*OTHER_NAMES, *FORM_OF_NAME, ".txt", ".doc", ".odt")) and " " not in path
    is_file = text and len(path) < 256 and os.path.isfile(path)  # noqa: PTH113
    told = f"expected an abstract as --text, found the name of a file, {text}; give --paper-file {path}"
    refuse(is_name or is_file, told)
    alone = options.title is not None and not text
    refuse(alone, "--title goes with --text; a paper file holds its own title")
    refuse(tag is not None and len(tag.split()) != 1, f"expected a --run-tag of one word, found {tag!r}")
    if options.resume:
        refuse(not (options.topics and output), "--resume goes with a run of --topics to --output; give both")
        once = f"found {form}, in which a paper stands once, whatever queries found it; search again"
        refuse(form in BIBLIOGRAPHIES, f"expected --resume with another --format, {once}")
    if output:
        check_output(options.output, options.overwrite or options.resume)
    how = {"resume": options.resume, "overwrite": options.overwrite}
    how["resumable"] = bool(options.topics) and form not in BIBLIOGRAPHIES
    return form, min(shutil.get_terminal_size((100, 24)).columns, 120), how


def default_hits(form: str, table_hits: int = TABLE_HITS) -> int:
    """The number of hits a query where none is given; ``table_hits`` in formats for people."""
    return RUN_HITS if form in ("trec", "json") else table_hits


def stages_of(options: argparse.Namespace, default: "qbe.Stages") -> "qbe.Stages":
    first, reranker = options.first_stage, options.rerank
    return Stages(
        default.first_stage if first is None else parse_first_stage(first),
        default.reranker if reranker is None else parse_reranker(reranker),
    )


def filter_of(options: argparse.Namespace) -> "qbe.PaperFilter | None":
    years, before = (None, None) if options.year is None else parse_years(options.year)
    given = {"categories": options.category, "authors": options.author}
    where = parse_where(options.where or ())
    made = common.made(PaperFilter, options, years=years, before=before, where=where, **given)
    return None if made == PaperFilter() else made


def _source(options: argparse.Namespace, index: "qbe.Index", weights: Any) -> "QuerySource":
    from qbe.search.queries import QuerySource, distinct_papers, from_topics, query_by

    what: Any = weights or (qbe.Facet(options.facet) if options.facet else None)
    if options.topics:
        return from_topics(index, Path(options.topics), what, predicted=options.facets == "predicted")
    if options.sentences is not None:
        what = parse_positions(options.sentences)
    unlike = distinct_papers(index, options.not_paper or ())
    if options.paper is not None:
        papers = distinct_papers(index, options.paper)
    elif options.cited is not None:
        papers = [index.paper(paper_id) for paper_id in named_papers(index, options.cited)]
    else:
        papers = [given_paper(options)]
    query = query_by(papers, unlike, what)
    aspects = [
        TopicAspect(each.paper.paper_id, each.facet, each.positions, each.weight) for each in query.aspects
    ]
    return QuerySource([query.query_id], [aspects], lambda places: [query for _ in places])


def given_paper(options: argparse.Namespace) -> "qbe.Paper":
    from qbe.search.paper_file import note_on_papers, paper_from_file, pasted_paper

    if options.text is None:
        paper = paper_from_file(options.paper_file)
    else:
        paper = pasted_paper(options.text, options.title or "")
    common.note(note_on_papers([paper]))
    return paper


def named_papers(index: "qbe.Index", path: str, *, required: bool = True) -> list[str]:
    """The papers of the index that a file names; those that the index lacks are told on standard error."""
    from qbe.search.queries import papers_of

    named = papers_of(index.reader, Path(path), required=required)
    common.note(named.missing_in_words(path))
    return named.paper_ids


def _results(
    session: "qbe.SearchSession",
    source: "QuerySource",
    pools: Mapping[str, Sequence[str]] | None,
    request: "Callable[..., qbe.SearchRequest]",
    places: Sequence[int],
) -> "Iterator[Result]":
    """The results of queries, searched some at a time; what users should know is said on standard error."""
    from qbe.search import request as requests
    from qbe.search.session import not_reranked
    from qbe.search.writers import Result

    def load(some: Sequence[int]) -> "list[qbe.SearchRequest]":
        of_pools = [None if pools is None else pools[source.ids[place]] for place in some]
        return [request(query, pool=pool) for query, pool in zip(source.load(some), of_pools, strict=True)]

    blocks = [places[first : first + requests.BLOCK] for first in range(0, len(places), requests.BLOCK)]
    sizes = [len(session.index if pools is None else pools[source.ids[place]]) for place in places]
    if places and (first := load(places[:1])[0]).filter is not None:  # what is wrong is told before searching
        selected = [session.selected(each.query, each.filter) for block in blocks for each in load(block)]
        common.note(describe(selected, first.k if pools is None else None))
        sizes = [min(size, each.papers) for size, each in zip(sizes, selected, strict=True)]
    aspects = [source.aspects[place] for place in places]
    pairs = sum(map(session.rerank_pairs, aspects, sizes))
    notice = not_reranked(session.stages) if session.stages.reranker else ""
    left_out, own, empty = 0, 0, list[str]()
    bar = ("ranking", "candidates", pairs) if pairs else ("searching", "queries", len(places))
    with common.Bar(*bar) as advance:
        for block in blocks:
            rankings = session.batch(load(block), advance if pairs else None)
            for place, ranking in zip(block, rankings, strict=True):
                left_out += notice in ranking.notes
                empty += [] if ranking.hits else [source.ids[place]]
                is_own = 0 < ranking.selected.papers <= len(ranking.query.papers)
                own += not ranking.hits and is_own and pools is None
                yield Result(source.ids[place], ranking.query, ranking.hits)
            if len(source.ids) == 1:
                common.note("; ".join(rankings[0].counts))
            if not pairs:
                advance(len(block))
    if left_out:
        common.note(f"{left_out} of {len(places)} queries: {notice}")
    if own:
        of = f"{own} of {len(places)} queries: " if len(places) > 1 else ""
        common.note(f"{of}all papers that may be found are the query's own, which are left out")
    if empty and pools is not None:
        common.note(f"{len(empty)} of {len(places)} pools hold no paper that may be found ({empty[0]}, ...)")
