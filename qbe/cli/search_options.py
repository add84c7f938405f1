"""The options of ``qbe search``, and the configuration and queries that they come to."""

from __future__ import annotations

from qbe.cli import common as _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from qbe.query import Wish
    from qbe.search.filters import PaperFilter
    from qbe.search.output import Destination
    from qbe.search.stages import Stages

PROGRAM = "qbe search"
OPTIONS = {
    "k": "--hits",
    "folder": "--index",
    "workers": "--threads",
    "years": "--year",
    "categories": "--category",
    "authors": "--author",
    "labels": "--facets",
    "before": "--year",
    "not_paper_ids": "--not-paper",
}
"""Parameters of the library whose options have other names."""

TABLE_HITS = 10
RUN_HITS = 1000

FORMATS = ("trec", "json", "table", "csv", "markdown", "bibtex", "ris")
LONG_FORMATS = ("trec", "json")
"""Formats for programs, which get RUN_HITS where no number is given; others get TABLE_HITS."""

EXPLAINED_FORMATS = ("table", "json")
"""Formats that can hold an explanation."""

BIBLIOGRAPHIES = ("bibtex", "ris")
"""Formats in which each paper stands once, whatever queries found it: their text is made all at once."""

FORM_OF_NAME = {
    ".json": "json",
    ".jsonl": "json",
    ".csv": "csv",
    ".md": "markdown",
    ".bib": "bibtex",
    ".ris": "ris",
}
"""How names of files end, and the formats in which they are written where none is given."""

OTHER_NAMES = (
    *(".docx", ".htm", ".html", ".parquet", ".pdf", ".rst", ".tex", ".tsv", ".xls", ".xlsx", ".xml"),
    *(".yaml", ".yml"),
)
"""How names of files end that are of a format which qbe does not write."""

ALIASES = {
    "--abstract": "--text",
    "--count": "--hits",
    "--id": "--paper",
    "--k": "--hits",
    "--limit": "--hits",
    "--out": "--output",
    "--query": "--text",
    "--top": "--hits",
    "--top-k": "--hits",
}
"""Names that people try, and the options that do what they mean."""

COMMON = (
    *("--index", "--paper", "--text", "--paper-file", "--cited", "--topics", "--facet", "--like"),
    *("--hits", "--format", "--output", "--year", "--category", "--first-stage", "--rerank"),
)
"""The options that ``--help`` shows."""


def parser() -> argparse.ArgumentParser:
    """The command's parser."""
    parser = _cli.parser(
        PROGRAM,
        "Find papers like a paper, for its problem (background), its method or its findings (result), or by "
        "sentences picked by hand, or by its whole abstract.",
        ALIASES,
        COMMON,
    )
    parser.add_argument(
        "--index",
        required=True,
        nargs="+",
        metavar="DIR",
        help="built by qbe index; several are searched as one",
    )
    _queries(parser)
    _results(parser)
    filters = parser.add_argument_group("filters: papers that may be found")
    _cli.add_filters(filters)
    _stages(parser.add_argument_group("stages"))
    return parser


def _queries(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--topics",
        metavar="FILE",
        help="tab-separated with a header: query_id, paper_id (or text and title, of a paper from outside), "
        "facet (none: the whole abstract), aspects (several, with weights, in place of the facet)",
    )
    source.add_argument(
        "--paper", nargs="+", metavar="ID", help="a paper of the index, or several: papers like these"
    )
    source.add_argument(
        "--cited",
        metavar="FILE",
        help="papers like those of the index that a bibliography names (in any format that qbe index reads), "
        "or that a LaTeX source cites, or a list of ids, DOIs, arXiv ids or addresses, one a line",
    )
    source.add_argument(
        "--paper-file",
        metavar="FILE",
        help="a paper with title and abstract: PDF, LaTeX, JSON, BibTeX, RIS, CSV, or text with the title on "
        "the first line; - is standard input",
    )
    source.add_argument("--text", help="an abstract, as it is, or a question")
    parser.add_argument("--title", help="the title that goes with --text")
    parser.add_argument(
        "--not-paper", nargs="+", metavar="ID", help="papers of the index: rank papers similar to these lower"
    )
    aspect = parser.add_mutually_exclusive_group()
    aspect.add_argument(
        "--facet",
        choices=("background", "method", "result"),
        help="facet to match; background includes the problem and the objective, result the findings; with "
        "--topics, of all topics that state no other (default: the topic's own, else the whole abstract)",
    )
    aspect.add_argument("--sentences", metavar="0,3", help="positions of the sentences to match, from 0")
    aspect.add_argument(
        "--like",
        nargs="+",
        metavar="FACET",
        help="facets to have in common: background, method or result, with a weight as in method:0.5, or "
        "with the grade that a paper must have at least or at most, as in 'background>=2' 'method<=1'; or "
        "same-problem-other-method, same-method-other-problem or competitors, short for background --unlike "
        "method, method --unlike background, background method; or several of these, a mixed list, each with "
        "its number of hits as in competitors:5",
    )
    parser.add_argument(
        "--unlike",
        nargs="+",
        metavar="FACET",
        help="with --like: facets not to have in common",
    )
    parser.add_argument(
        "--facets",
        choices=("given", "predicted"),
        default="given",
        help="of the query's sentences: those its paper brings, predicted where it brings none, or always "
        "predicted (default: %(default)s)",
    )


def _results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hits",
        type=int,
        help=f"hits per query (default: {RUN_HITS} in a TREC run and JSON, {TABLE_HITS} in other formats)",
    )
    parser.add_argument(
        "--pool",
        metavar="FILE",
        help="tab-separated file of query_id, paper_id: candidates for each query",
    )
    parser.add_argument("--output", metavar="FILE", help="write there (default: standard output)")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue an interrupted run of --topics to --output; it ends in the same bytes",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="default: by the name of --output (.json, .jsonl, .csv, .md, .bib, .ris), a table on a "
        "terminal, else a TREC run",
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="show each sentence of the query, with facet and probability, all matches, and the scores and "
        "sentences behind each rank (table or json)",
    )
    parser.add_argument(
        "--run-tag",
        help="last column of the TREC run (default: qbe-, the first stage, + and the reranker)",
    )
    parser.add_argument(
        "--threads",
        type=int,
        help="queries and candidates processed at a time, with the same results whatever their number "
        "(default: all processors this process may use)",
    )


def _stages(group: argparse._ArgumentGroup) -> None:
    """Stages; None means that one was not given."""
    group.add_argument(
        "--first-stage",
        metavar="STAGE",
        help="bm25, dense or fused, with parameters as in fused:depth=500,background_penalty=0; help lists "
        "them (default: fused; dense or bm25 where the index has but one of them)",
    )
    group.add_argument(
        "--rerank",
        metavar="STAGE",
        help="none, grades (by stored vectors and words), projections (stored vectors projected for the "
        "facet), cross-encoder, matching, llm, or the folder of a model, with parameters as in "
        "projections:depth=1000; help lists them (default: grades or projections where the index's encoder "
        "has some, else cross-encoder)",
    )
    group.add_argument(
        "--encoder", help="for queries from outside (default: the one the index was built with)"
    )


def form_of_file(name: str) -> str:
    """The format of a file whose format is not given, by its name; raises UsageError for a name that says
    another format.

    >>> form_of_file("runs/a.trec"), form_of_file("runs/a.JSON"), form_of_file("refs.bib")
    ('trec', 'json', 'bibtex')
    """
    lower = name.lower()
    if lower.endswith(OTHER_NAMES):
        from qbe.errors import UsageError

        raise UsageError(
            f"expected an --output that is named as a TREC run or ends in {', '.join(FORM_OF_NAME)}, found "
            f"{name}; give the --format ({', '.join(FORMATS)})"
        )
    return next((form for ending, form in FORM_OF_NAME.items() if lower.endswith(ending)), "trec")


def form_of(options: argparse.Namespace) -> tuple[str, int]:
    """The format of the output, one of FORMATS, and how many columns a table has."""
    import shutil
    import sys

    form = options.format
    if form is None and options.output is not None:
        form = form_of_file(options.output)
    elif form is None:
        form = "table" if sys.stdout.isatty() else "trec"
    return form, min(shutil.get_terminal_size((100, 24)).columns, 120)


def destination_of(
    options: argparse.Namespace, form: str, output: str | None, command: str = PROGRAM
) -> Destination:
    """Where an ``output`` of a command goes; a run of topics in blocks, unless its text is made at once."""
    from pathlib import Path

    from qbe.search.output import Destination

    path = Path(output) if output else None
    in_blocks = bool(options.topics) and form not in BIBLIOGRAPHIES
    return Destination(path, command, form, in_blocks, options.resume)


def default_hits(form: str, table_hits: int = TABLE_HITS) -> int:
    """The number of hits a query where none is given; ``table_hits`` in formats for people.

    >>> default_hits("json"), default_hits("bibtex")
    (1000, 10)
    """
    return RUN_HITS if form in LONG_FORMATS else table_hits


def check(options: argparse.Namespace, form: str) -> None:
    """Raise UsageError for options of the command that do not go together; the configuration checks those
    that shape the search.

    ``form`` is the format of the output, one of FORMATS.
    """
    from qbe.errors import UsageError

    check_results(options, form)
    several = len(options.paper or ()) > 1 or options.not_paper or options.cited
    if options.sentences is not None and (options.topics or several):
        raise UsageError("--sentences picks from one paper; give --paper, --paper-file or --text with it")
    if options.unlike and not options.like:
        raise UsageError("--unlike says what not to have in common; give --like with what is to be")
    if options.not_paper and options.topics:
        raise UsageError("--not-paper goes with papers; topics have a column of aspects for that")
    if options.explain and form not in EXPLAINED_FORMATS:
        if options.format or form != "trec":
            raise UsageError(f"--explain goes with --format table or json, found {form}")
        raise UsageError(
            "--explain has no place in a TREC run, the form without a terminal; add --format table"
        )


def check_results(options: argparse.Namespace, form: str) -> None:
    """Raise UsageError for options of results that do not go together with each other or with the query's."""
    from qbe.errors import UsageError, check_count

    if options.hits is not None:
        check_count("k", options.hits)
    if options.title is not None and options.text is None:
        raise UsageError("--title goes with --text; a paper file holds its own title")
    _check_text(options.text or "")
    if options.run_tag is not None and len(options.run_tag.split()) != 1:
        raise UsageError(f"expected a --run-tag of one word, found {options.run_tag!r}")
    if options.run_tag is not None and form != "trec":
        raise UsageError(f"--run-tag is a column of a TREC run, found {form}; add --format trec, or drop it")
    if options.resume and not (options.topics and options.output):
        raise UsageError("--resume is about a run of topics in a file; give --topics and --output with it")
    if options.resume and form in BIBLIOGRAPHIES:
        raise UsageError(
            f"expected --resume with another --format, found {form}, in which a paper stands once, whatever "
            "queries found it; search again"
        )


def _check_text(text: str) -> None:
    """Raise UsageError for a text that is the name of a file."""
    import os

    path = text.strip().removeprefix("@")
    is_name = path.lower().endswith((*OTHER_NAMES, *FORM_OF_NAME, ".txt", ".doc", ".odt")) and " " not in path
    if is_name or (text and len(path) < 256 and os.path.isfile(path)):  # noqa: PTH113
        from qbe.errors import UsageError

        raise UsageError(
            f"expected an abstract as --text, found the name of a file, {text}; give --paper-file {path}"
        )


def check_labels(options: argparse.Namespace, *, has_facet: bool) -> None:
    """Raise UsageError for options of labels where no query has a facet and none is to be explained."""
    from qbe.errors import UsageError

    if options.facets == "predicted" and not (has_facet or options.explain):
        raise UsageError("--facets predicted is of use only with a facet; add --facet, or drop it")


def stages_of(options: argparse.Namespace, default: Stages) -> Stages:
    """The stages that the options state, those of the ``default`` in place of what they leave out; raises
    what `qbe.search.stages.parse_first_stage` and `parse_reranker` do.

    >>> from qbe.search.stages import Fused, Projections
    >>> options = parser().parse_args(["--index", "indexes/sample", "--paper", "s036", "--rerank", "none"])
    >>> stages_of(options, Fused() >> Projections()).run_tag
    'qbe-fused'
    """
    from dataclasses import replace

    from qbe.search.stages import parse_first_stage, parse_reranker

    if options.first_stage is not None:
        default = replace(default, first_stage=parse_first_stage(options.first_stage))
    if options.rerank is not None:
        default = replace(default, reranker=parse_reranker(options.rerank))
    return default


def wish_of(options: argparse.Namespace) -> Wish | None:
    """What the options say that hits are to be like by facets; None where they do not. Raises UsageError.

    >>> options = parser().parse_args(["--index", "i", "--paper", "s036", "--like", "competitors"])
    >>> wish_of(options).weights
    {<Facet.BACKGROUND: 'background'>: 1.0, <Facet.METHOD: 'method'>: 1.0}
    """
    if options.like is None:
        return None
    from qbe.query import parse_wish

    return parse_wish(options.like, options.unlike or ())


def hits_of(options: argparse.Namespace, form: str, wish: Wish | None) -> int:
    """The number of hits a query: the one given, else that of a mixed list, else `default_hits`.

    >>> options = parser().parse_args(["--index", "i", "--paper", "s036", "--like", "competitors:5"])
    >>> hits_of(options, "table", wish_of(options))
    5
    """
    shares = sum(wish.variety.mix.values()) if wish is not None else 0.0
    mixed = round(shares) if any(":" in part for part in options.like or ()) else 0
    return options.hits or mixed or default_hits(form)


def filter_of(options: argparse.Namespace) -> PaperFilter | None:
    """The filter that the options state, None where they state none; raises UsageError.

    >>> options = parser().parse_args(["--index", "indexes/sample", "--paper", "s036", "--year", "2018-"])
    >>> filter_of(options).years
    (2018, None)
    """
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
