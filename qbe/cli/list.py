"""``qbe list``: the papers of an index, all or some."""

from __future__ import annotations

from qbe.cli import common as _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from qbe.index.reader import IndexReader
    from qbe.search.filters import PaperFilter
    from qbe.types import Paper

PROGRAM = "qbe list"
OPTIONS = {"folder": "--index", "years": "--year", "categories": "--category", "authors": "--author"}

WIDEST_ID = 32


def parser() -> argparse.ArgumentParser:
    """The command's parser."""
    parser = _cli.parser(
        PROGRAM,
        "List the papers of an index, one a line: id, year, first author, title. With words those whose "
        "title, authors or ids have all of them.",
        {"--limit": "| head"},
    )
    parser.add_argument("words", nargs="*", metavar="WORD", help="a word, perhaps only begun")
    parser.add_argument("--index", required=True, metavar="DIR", help="built by qbe index")
    _cli.add_paper_formats(parser)
    _cli.add_filters(parser.add_argument_group("filters: papers that are listed"))
    return parser


def main(arguments: list[str]) -> None:
    options = parser().parse_args(arguments)

    import shutil
    import sys

    from qbe.cli.search_options import filter_of
    from qbe.errors import PaperNotFoundError
    from qbe.index.opening import open_index
    from qbe.search.listing import having, tags_of, texts
    from qbe.search.writers import described, line

    paper_filter = filter_of(options)
    with open_index(options.index, threads=1) as index, index.reading() as reader:
        papers = _passing(reader, paper_filter)
        if options.words:
            papers = having(papers, options.words)
        width = min(max(map(len, reader.papers.ids)), WIDEST_ID)
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        none = True
        for text in texts(
            papers,
            options.format,
            lambda paper: line(paper, width)[:columns],
            lambda paper: {"paper_id": paper.paper_id, **described(paper), **tags_of(paper)},
        ):
            sys.stdout.write(text)
            none = False
        if none:
            raise PaperNotFoundError(
                f"expected papers of {options.index} with all of the words and conditions, found none of its "
                f"{len(reader):,}; give fewer"
            )


def _passing(reader: IndexReader, paper_filter: PaperFilter | None) -> Iterable[Paper]:
    """The papers that pass a filter, as a stream."""
    from qbe.search.filters import FilterCache

    selection = None if paper_filter is None else FilterCache(reader).of(paper_filter).selection
    return reader if selection is None else (reader.papers[row] for row in selection.rows.tolist())


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
