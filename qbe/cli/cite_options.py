"""The options of ``qbe cite``, and the configuration that they come to."""

from __future__ import annotations

from qbe.cli import common as _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from qbe.cite.config import CiteConfig

PROGRAM = "qbe cite"
OPTIONS = {"k": "--hits", "folder": "--index", "links": "--no-links"}
"""Parameters of the library whose options have other names."""

TABLE_HITS = 20
RUN_HITS = 1000
FORMATS = ("trec", "json", "table", "bibtex", "ris", "csv", "markdown")

ALIASES = {
    "--abstract": "--text",
    "--bib": "--bibtex",
    "--id": "--paper",
    "--k": "--hits",
    "--references": "--cited",
    "--top": "--hits",
    "--year": "--before",
}
"""Names that people try, and the options that do what they mean."""


def parser() -> argparse.ArgumentParser:
    """The command's parser.

    >>> parser().parse_args(["--index", "indexes/sample", "--paper", "s036"]).depth
    1000
    """
    parser = _cli.parser(
        PROGRAM,
        "Recommend papers of an index that a paper, or a draft of one, should cite: candidates by BM25 and "
        "by vectors projected for citation, scored by the citation model; where the index knows who cites "
        "whom, by that as well.",
        ALIASES,
    )
    parser.add_argument(
        "--index",
        required=True,
        nargs="+",
        metavar="DIR",
        help="built by qbe index; several are searched as one",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--paper", metavar="ID", help="a paper of the index")
    source.add_argument(
        "--paper-file",
        metavar="FILE",
        help="a paper with title and abstract: PDF, LaTeX (what it cites counts as --cited, too), JSON (with "
        "the year in metadata), an entry of a bibliography, or text; - is standard input",
    )
    source.add_argument("--text", help="an abstract, as it is")
    source.add_argument("--bibtex", metavar="FILE", help="drafts as BibTeX entries with title and abstract")
    source.add_argument("--topics", metavar="FILE", help="tab-separated: query_id, paper_id")
    parser.add_argument("--title", help="the title that goes with --text")
    given = parser.add_argument_group("papers given, and years")
    given.add_argument(
        "--cited",
        metavar="FILE",
        help="papers that it cites already, which help to find the rest and are not recommended: a "
        "bibliography, or a list of ids, DOIs, arXiv ids or addresses, one a line",
    )
    given.add_argument("--exclude", metavar="FILE", help="papers not to recommend, as in --cited")
    given.add_argument(
        "--before",
        metavar="YEAR",
        help="only papers of this year or earlier; query: not younger than the paper itself",
    )
    given.add_argument(
        "--no-links", action="store_true", help="leave out who cites whom among the papers of the index"
    )
    parser.add_argument(
        "--hits", type=int, metavar="N", help=f"default: {TABLE_HITS} in a table, {RUN_HITS} in a run"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="default: by the name of --output; else a table on a terminal, trec elsewhere",
    )
    parser.add_argument("--output", metavar="FILE", help="default: standard output")
    parser.add_argument("--run-tag", metavar="TAG", help="default: qbe-cite")
    parser.add_argument("--resume", action="store_true", help="with --topics: continue an unfinished run")
    parser.add_argument("--threads", type=int, help="default: all processors this process may use")
    group = parser.add_argument_group("model")
    group.add_argument("--depth", type=int, default=1000, help="candidates (default: %(default)s)")
    group.add_argument("--model", metavar="DIR", help="a citation model of your own, by qbe train citation")
    group.add_argument(
        "--rerank",
        metavar="FOLDER",
        help="a model of qbe train citation-pairs, or another of pairs of texts, that scores the best "
        "candidates again, with parameters as in my-reranker:depth=50,weight=0.5 (its share of the score)",
    )
    group.add_argument("--encoder", help="of an index whose encoder's folder has moved")
    return parser


def config_of(options: argparse.Namespace) -> CiteConfig:
    """The configuration that the options state; raises what `qbe.cite.config.CiteConfig` and
    `qbe.search.stages.parse_reranker` do, and UsageError for a reranker that is no model of pairs.
    """
    from qbe.cite.config import CiteConfig
    from qbe.errors import UsageError
    from qbe.search.filters import PaperFilter, parse_before
    from qbe.search.stages import CrossEncoder, parse_reranker

    expected = "the folder of a model of pairs as `rerank`"
    reranker = None if options.rerank is None else parse_reranker(options.rerank, expected)
    if reranker is not None and not isinstance(reranker, CrossEncoder):
        raise UsageError(f"expected {expected}, found {reranker.name}")
    before = None if options.before is None else parse_before(options.before)
    return CiteConfig(
        depth=options.depth,
        links=not options.no_links,
        model=options.model,
        rerank=reranker,
        filter=None if before is None else PaperFilter(before=before),
    )


def check(options: argparse.Namespace, form: str) -> None:
    """Raise UsageError for options that do not go together; ``form`` is the format of the output."""
    from qbe.cli.search_options import check_results
    from qbe.errors import UsageError

    check_results(options, form)
    several = options.topics or options.bibtex
    for option in ("cited", "exclude"):
        if getattr(options, option) and several:
            raise UsageError(f"--{option} is about one paper; give --paper, --paper-file or --text with it")
