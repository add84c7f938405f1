"""``qbe search``: find papers like a paper, for its problem, its method or its findings."""

from __future__ import annotations

import os
import sys

from qbe.cli import common
from qbe.cli.common import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from functools import partial

    from qbe.index.index import Index
    from qbe.query import Wish
    from qbe.search.filters import FilterResult, PaperFilter
    from qbe.search.opening import RerankerOpener
    from qbe.search.queries import QuerySource
    from qbe.search.request import SearchRequest
    from qbe.search.session import SearchSession
    from qbe.search.stages import Stages
    from qbe.search.writers import Result, ResultWriter
    from qbe.types import Paper

    Pools = Mapping[str, Sequence[str]]

PROGRAM = "qbe search"
TABLE_HITS, RUN_HITS = 10, 1000
FORMATS = "trec|json|table|csv|markdown|bibtex|ris"
BIBLIOGRAPHIES = ("bibtex", "ris")
"""Formats in which a paper stands once, whatever queries found it: a run of them cannot be continued."""

FORM_OF_NAME = {
    ".json": "json",
    ".jsonl": "json",
    ".csv": "csv",
    ".md": "markdown",
    ".bib": "bibtex",
    ".ris": "ris",
}
"""Formats by how names of files end, where none is given."""

OTHER_NAMES = (
    *(".docx", ".htm", ".html", ".parquet", ".pdf", ".rst", ".tex", ".tsv", ".xls", ".xlsx", ".xml"),
    *(".yaml", ".yml"),
)
"""How names of files end that are of a format which qbe does not write."""


ABOUT = """\
Find papers like a paper, for its problem (background), its method or its findings (result), or by \
sentences picked by hand, or by its whole abstract."""
OPTIONS = f"""
--index DIR...!  built by qbe index, or an address of qbe pull; several are searched as one
? --topics FILE!  tab-separated with a header: query_id, paper_id (or text and title, of a paper from
  outside), facet (none: the whole abstract), aspects (several, with weights, in place of the facet)
? --paper ID...!  a paper of the index, or several: papers like these
? --cited FILE!  papers like those of the index that a bibliography names (in any format that qbe index
  reads), or that a LaTeX source cites, or a list of ids, DOIs, arXiv ids or addresses, one a line
? --paper-file FILE!  a paper with title and abstract: PDF, LaTeX, JSON, BibTeX, RIS, CSV, or text with the
  title on the first line; - is standard input
? --text TEXT!  an abstract, as it is, or a question
--title TITLE  the title that goes with --text
--not-paper ID...  papers of the index: rank papers similar to these lower
? --facet background|method|result  facet to match; background includes the problem and the objective, result
  the findings; with --topics, of all topics that state no other (default: the topic's own, else the whole
  abstract)
? --sentences 0,3  positions of the sentences to match, from 0
? --like FACET...  facets to have in common: background, method or result, with a weight as in method:0.5, or
  with the grade that a paper must have at least or at most, as in 'background>=2' 'method<=1'; or
  same-problem-other-method, same-method-other-problem or competitors, short for background --unlike method,
  method --unlike background, background method; or several of these, a mixed list, each with its number of
  hits as in competitors:5
--unlike FACET...  with --like: facets not to have in common
--facets given|predicted (given)  of the query's sentences: those its paper brings, predicted where it brings
  none, or always predicted
--hits N  hits per query (default: {RUN_HITS} in a TREC run and JSON, {TABLE_HITS} in other formats; of a
  mixed list the sum of its numbers)
--pool FILE  tab-separated file of query_id, paper_id: candidates for each query
--output FILE  write there (default: standard output)
{common.OVERWRITE}\
--resume  continue an interrupted run of --topics to --output; it ends in the same bytes
--format {FORMATS}  default: by the name of --output (.json, .jsonl, .csv, .md,
  .bib, .ris), a table on a terminal, else a TREC run
--explain  show each sentence of the query, with facet and probability, all matches, and the scores and
  sentences behind each rank (table or json)
--run-tag TAG  last column of the TREC run (default: qbe-, the first stage, + and the reranker)
--threads N  queries and candidates processed at a time, with the same results whatever their number (default:
  all processors this process may use)
# filters: papers that may be found
{common.FILTERS}# stages
--first-stage STAGE  bm25, dense or fused, with parameters as in fused:depth=500,background_penalty=0; help
  lists them (default: fused; dense or bm25 where the index has but one of them)
--rerank STAGE  none, grades (by stored vectors and words), projections (stored vectors projected for the
  facet), cross-encoder, matching, llm, or the folder of a model, with parameters as in
  projections:depth=1000; help lists them (default: grades or projections where the index's encoder has some,
  else cross-encoder)
--encoder NAME  for queries from outside (default: the one the index was built with)
"""
PARSER = Parser(PROGRAM, ABOUT, OPTIONS)


def main(arguments: list[str]) -> None:
    """Parse the options, search, and write the results."""
    for option in ("--first-stage", "--rerank"):
        after = arguments.index(option) + 1 if option in arguments else len(arguments)
        if arguments[after : after + 1] == ["help"]:
            from qbe.search.stages import FIRST_STAGES, RERANKERS, describe_stages

            print(describe_stages(RERANKERS if option == "--rerank" else FIRST_STAGES))
            return
    run(PARSER.parse_args(arguments))


def run(
    options: argparse.Namespace,
    open_index: Callable[..., Index] | None = None,
    open_reranker: RerankerOpener | None = None,
) -> None:
    """Search as the options say. ``open_index`` opens the index, and ``open_reranker`` a cross-encoder, in
    another place than this process, with the parameters of `qbe.index.several.open_index` and
    `qbe.search.rerankers.open_reranker`.
    """
    from qbe.errors import UsageError
    from qbe.query import PLAIN, parse_wish
    from qbe.search.stages import Fused, LanguageModel, Stages, default_stages

    form, width = checked_form(options)
    check(options, form)
    stages_of(options, Stages(Fused()))  # what is wrong with them is said before an index is opened
    paper_filter = filter_of(options)
    wish = None if options.like is None else parse_wish(options.like, options.unlike or ())

    from functools import partial
    from pathlib import Path

    from qbe.index import jvm, several
    from qbe.runs import read_pools
    from qbe.search.request import SearchRequest
    from qbe.search.session import SearchSession
    from qbe.search.writers import open_writer

    if not options.topics:
        jvm.extra_options.append(jvm.QUICK)
    threads = common.threads(options.threads)
    pools = read_pools(Path(options.pool)) if options.pool else None
    variety, k = PLAIN if wish is None else wish.variety, options.hits
    if k is None and any(":" in part for part in options.like or ()):  # of a mixed list
        k = round(sum(variety.mix.values()))
    with (open_index or several.open_index)(options.index, encoder=options.encoder, threads=threads) as index:
        source = _source(options, index, wish)
        for each in source.notes:
            common.note(PROGRAM, each)
        if absent := [query_id for query_id in source.ids if pools is not None and query_id not in pools]:
            raise UsageError(
                f"expected a pool for each query, found none for {', '.join(absent)}; check --pool"
            )
        stages = stages_of(options, default_stages(index))
        graded_by = ""
        if isinstance(stages.reranker, LanguageModel) and not variety.bounds:  # those are estimated
            graded_by = stages.reranker.model or ""
        tag = options.run_tag or stages.run_tag
        writer = open_writer(form, tag, index.paper, width, explain=options.explain, graded_by=graded_by)
        request = partial(
            SearchRequest,
            k=k or default_hits(form),
            filter=paper_filter,
            labels=options.facets,
            matches=writer.needs_matches,
            explain=options.explain,
            variety=variety,
        )
        chosen = options.rerank is not None
        with SearchSession(index, stages, open_reranker=open_reranker, chosen=chosen) as session:
            write(
                options,
                form,
                width,
                index,
                writer,
                source.ids,
                partial(_results, session, source, pools, request),
            )


def check(options: argparse.Namespace, form: str) -> None:
    """Raise UsageError for options of the command that do not go together; the configuration checks those
    that shape the search. ``form`` is the format of the output.
    """
    from qbe.errors import UsageError

    several = len(options.paper or ()) > 1 or options.not_paper or options.cited
    if options.sentences is not None and (options.topics or several):
        raise UsageError("--sentences picks from one paper; give --paper, --paper-file or --text with it")
    if options.unlike and not options.like:
        raise UsageError("--unlike says what not to have in common; give --like with what is to be")
    if options.not_paper and options.topics:
        raise UsageError("--not-paper goes with papers; topics have a column of aspects for that")
    if options.explain and form not in ("table", "json"):
        raise UsageError(f"--explain goes with --format table or json, found {form}")


def checked_form(options: argparse.Namespace) -> tuple[str, int]:
    """The format of the output, and how many columns a table has; raises UsageError for options of results
    that do not go together with each other or with the query's, OutputError for a file that exists.
    """
    import shutil

    from qbe.errors import UsageError, check_count
    from qbe.util.files import check_output

    form = options.format
    if form is None:
        form = form_of_file(options.output) if options.output else "table" if sys.stdout.isatty() else "trec"
    if options.hits is not None:
        check_count("k", options.hits)
    if options.title is not None and options.text is None:
        raise UsageError("--title goes with --text; a paper file holds its own title")
    text = options.text or ""
    path = text.strip().removeprefix("@")
    is_name = path.lower().endswith((*OTHER_NAMES, *FORM_OF_NAME, ".txt", ".doc", ".odt")) and " " not in path
    if is_name or (text and len(path) < 256 and os.path.isfile(path)):  # noqa: PTH113
        raise UsageError(
            f"expected an abstract as --text, found the name of a file, {text}; give --paper-file {path}"
        )
    if options.run_tag is not None and len(options.run_tag.split()) != 1:
        raise UsageError(f"expected a --run-tag of one word, found {options.run_tag!r}")
    if options.resume and not (options.topics and options.output):
        raise UsageError("--resume is about a run of topics in a file; give --topics and --output with it")
    if options.resume and form in BIBLIOGRAPHIES:
        raise UsageError(
            f"expected --resume with another --format, found {form}, in which a paper stands once, whatever "
            "queries found it; search again"
        )
    if options.output:
        check_output(options.output, options.overwrite)
    return form, min(shutil.get_terminal_size((100, 24)).columns, 120)


def form_of_file(name: str) -> str:
    """The format of a file whose format is not given, by its name; raises UsageError for a name that says
    another format.
    """
    lower = name.lower()
    if lower.endswith(OTHER_NAMES):
        from qbe.errors import UsageError

        raise UsageError(
            f"expected an --output that is named as a TREC run or ends in {', '.join(FORM_OF_NAME)}, found "
            f"{name}; give the --format ({FORMATS.replace('|', ', ')})"
        )
    return next((form for ending, form in FORM_OF_NAME.items() if lower.endswith(ending)), "trec")


def default_hits(form: str, table_hits: int = TABLE_HITS) -> int:
    """The number of hits a query where none is given; ``table_hits`` in formats for people."""
    return RUN_HITS if form in ("trec", "json") else table_hits


def write(
    options: argparse.Namespace,
    form: str,
    width: int,
    index: Index,
    writer: ResultWriter,
    ids: Sequence[str],
    search: Callable[[Sequence[int]], Iterable[Result]],
) -> None:
    """Write results where the options say, as `qbe.search.writers.write_run` does; a run of topics to a file
    so that it can be continued.
    """
    import hashlib
    import json
    from importlib.metadata import version
    from pathlib import Path

    from qbe.search.writers import write_run
    from qbe.util.files import sha256

    inputs = None
    if options.topics and options.output and form not in BIBLIOGRAPHIES:
        given = {name: value for name, value in vars(options).items() if name not in OF_NO_RESULT}
        files = [sha256(each) for each in (options.topics, given.pop("pool", None)) if each]
        described = [version("qbe"), index.manifest.digest, files, given, form, form == "table" and width]
        inputs = hashlib.sha256(json.dumps(described).encode()).hexdigest()
    output = Path(options.output) if options.output else None
    write_run(output, writer, ids, search, inputs, resume=options.resume, overwrite=options.overwrite)


OF_NO_RESULT = frozenset(
    ["index", "topics", "output", "overwrite", "resume", "threads", "address", "replicas", "deadline"]
)
"""Options on which results do not depend, or which files stand for."""


def stages_of(options: argparse.Namespace, default: Stages) -> Stages:
    """The stages that the options state, those of the ``default`` in place of what they leave out."""
    from dataclasses import replace

    from qbe.search.stages import parse_first_stage, parse_reranker

    if options.first_stage is not None:
        default = replace(default, first_stage=parse_first_stage(options.first_stage))
    if options.rerank is not None:
        default = replace(default, reranker=parse_reranker(options.rerank))
    return default


def filter_of(options: argparse.Namespace) -> PaperFilter | None:
    """The filter that the options state, None where they state none; raises UsageError."""
    if all(value is None for value in (options.year, options.category, options.author, options.where)):
        return None
    from qbe.search.filters import PaperFilter, parse_where, parse_years

    years, before = (None, None) if options.year is None else parse_years(options.year)
    return PaperFilter(
        years=years,
        categories=tuple(options.category or ()),
        authors=tuple(options.author or ()),
        where=parse_where(options.where or ()),
        before=before,
    )


def _source(options: argparse.Namespace, index: Index, wish: Wish | None) -> QuerySource:
    """The queries that the options state."""
    from pathlib import Path

    from qbe.query import parse_positions
    from qbe.search.queries import find_papers, from_query, from_topics, query_by
    from qbe.types import Facet

    facet = Facet(options.facet) if options.facet else None
    weights = None if wish is None else wish.weights
    if options.topics:
        predicted = options.facets == "predicted"
        return from_topics(index, Path(options.topics), weights or facet, predicted=predicted)
    positions = parse_positions(options.sentences) if options.sentences is not None else None
    unlike = find_papers(index, options.not_paper or ())
    if options.paper is not None:
        papers = find_papers(index, options.paper)
    elif options.cited is not None:
        papers = [index.paper(paper_id) for paper_id in named_papers(PROGRAM, index, options.cited)]
    else:
        papers = [given_paper(PROGRAM, options)]
    return from_query(query_by(papers, unlike, weights or facet or positions))


def given_paper(program: str, options: argparse.Namespace) -> Paper:
    """The paper from outside that the options bring as a file or as text."""
    from qbe.search.queries import note_on_papers, paper_from_file, pasted_paper

    if options.text is None:
        paper = paper_from_file(options.paper_file)
    else:
        paper = pasted_paper(options.text, options.title or "")
    common.note(program, note_on_papers([paper]))
    return paper


def named_papers(program: str, index: Index, path: str) -> list[str]:
    """The papers of the index that a file names; those that the index lacks are told on standard error."""
    from pathlib import Path

    from qbe.search.queries import papers_of

    with index.reading() as reader:
        named = papers_of(reader, Path(path))
    common.note(program, named.missing_in_words(path))
    return named.paper_ids


def _results(
    session: SearchSession,
    source: QuerySource,
    pools: Pools | None,
    request: partial[SearchRequest],
    places: Sequence[int],
) -> Iterator[Result]:
    """The results of queries, searched some at a time; what users should know is said on standard error."""
    from qbe.search import request as requests
    from qbe.search.filters import describe
    from qbe.search.writers import Result

    def load(some: Sequence[int]) -> list[SearchRequest]:
        of_pools = [None if pools is None else pools[source.ids[place]] for place in some]
        return [request(query, pool=pool) for query, pool in zip(source.load(some), of_pools, strict=True)]

    selected: list[FilterResult] = []
    blocks = [places[first : first + requests.BLOCK] for first in range(0, len(places), requests.BLOCK)]
    if request.keywords["filter"] is not None:  # an invalid one is told before the search starts
        selected = [session.selected(each.query, each.filter) for block in blocks for each in load(block)]
        common.note(PROGRAM, describe(selected, request.keywords["k"] if pools is None else None))
    pairs = _rerank_pairs(session, source, pools, places, selected)
    empty: list[str] = []
    bar = ("reranking", "candidates", pairs) if pairs else ("searching", "queries", len(places))
    with common.Bar(*bar) as advance:
        for block in blocks:
            rankings = session.batch(load(block), advance if pairs else None)
            for place, ranking in zip(block, rankings, strict=True):
                if not ranking.hits:
                    empty.append(source.ids[place])
                yield Result(source.ids[place], ranking.query, ranking.hits)
            if len(source.ids) == 1:
                common.note(PROGRAM, "; ".join(rankings[0].counts))
            if not pairs:
                advance(len(block))
    if empty and pools is not None:
        held = f"{len(empty)} of {len(places)} pools hold no paper that may be found ({empty[0]}, ...)"
        common.note(PROGRAM, held)


def _rerank_pairs(
    session: SearchSession,
    source: QuerySource,
    pools: Pools | None,
    places: Sequence[int],
    selected: Sequence[FilterResult],
) -> int:
    """How many pairs of a query's aspect and a candidate will be reranked, at most; queries that the reranker
    does not take are counted on standard error.
    """
    from functools import partial

    from qbe.search.session import not_reranked

    if session.stages.reranker is not None:
        loads = (partial(lambda place: source.load([place])[0], place) for place in places)
        left = sum(map(session.leaves_out, (source.aspects[place] for place in places), loads))
        if left:
            common.note(PROGRAM, f"{left} of {len(places)} queries: {not_reranked(session.stages)}")
    sizes = [len(session.index if pools is None else pools[source.ids[place]]) for place in places]
    if selected:
        sizes = [min(size, each.papers) for size, each in zip(sizes, selected, strict=True)]
    pairs = zip(places, sizes, strict=True)
    return sum(session.rerank_pairs(source.aspects[place], size) for place, size in pairs)
