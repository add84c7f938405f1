"""``qbe list`` and ``qbe show``: the papers of an index, as lines and each as a whole."""

from __future__ import annotations

import sys

from qbe.cli import common

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from qbe.index.index import IndexReader
    from qbe.types import Paper

LIST = common.Parser(
    "qbe list",
    "List the papers of an index, one a line: id, year, first author, title. With words those whose title, "
    "authors or ids have all of them.",
    f"""
[WORD...]  a word, perhaps only begun
--index DIR!  built by qbe index
{common.PAPER_FORMATS}# filters: papers that are listed
{common.FILTERS}""",
)
SHOW = common.Parser(
    "qbe show",
    "Show papers of an index: title, authors, year, venue, tags, links, and each sentence of the abstract "
    "with its facet.",
    f"""
ID...  ids or other names (DOI, arXiv id, ...), or words of the title of one paper
--index DIR!  built by qbe index
{common.PAPER_FORMATS}""",
)
WIDEST_ID = 32


def list_main(arguments: list[str]) -> None:
    options = LIST.parse_args(arguments)

    import shutil

    from qbe.cli.search import filter_of
    from qbe.errors import PaperNotFoundError
    from qbe.index.index import open_index
    from qbe.search.filters import FilterCache
    from qbe.search.listing import having, tags_of, texts
    from qbe.search.writers import described, line

    paper_filter = filter_of(options)
    with open_index(options.index, threads=1) as index, index.reading() as reader:
        selection = None if paper_filter is None else FilterCache(reader).of(paper_filter).selection
        passing = reader if selection is None else (reader.papers[row] for row in selection.rows.tolist())
        width = min(max(map(len, reader.papers.ids)), WIDEST_ID)
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        found = False
        for text in texts(
            having(passing, options.word) if options.word else passing,
            options.format,
            lambda paper: line(paper, width)[:columns],
            lambda paper: {"paper_id": paper.paper_id, **described(paper), **tags_of(paper)},
        ):
            sys.stdout.write(text)
            found = True
        if not found:
            raise PaperNotFoundError(
                f"expected papers of {options.index} with all of the words and conditions, found none of its "
                f"{len(reader):,}; give fewer"
            )


def show_main(arguments: list[str]) -> None:
    options = SHOW.parse_args(arguments)

    from qbe.errors import PaperNotFoundError
    from qbe.index.index import open_index
    from qbe.search.listing import tags_of, texts
    from qbe.search.records import paper_record
    from qbe.search.writers import line

    with open_index(options.index, threads=1) as index, index.reading() as reader:
        papers, exact = _named(reader, options.id)
        if not exact:
            width = max(len(paper.paper_id) for paper in papers)
            sys.stdout.writelines(f"{line(paper, width)}\n" for paper in papers)
            raise PaperNotFoundError(
                f"expected words of the title of one paper, found {len(papers):,} papers with them; "
                "give an id, or more words"
            )
        for text in texts(
            papers,
            options.format,
            _text,
            lambda paper: {**paper_record(paper, inside=True), **tags_of(paper)},
        ):
            sys.stdout.write(text)


def _named(reader: IndexReader, words: Sequence[str]) -> tuple[list[Paper], bool]:
    """The papers of these names; where none is an id, the one that they name together. False stands beside
    several of these. Raises PaperNotFoundError where there is none.
    """
    together = " ".join(words)
    ids = [] if any(word in reader for word in words) else reader.names.find(together)
    if ids:
        return [reader.paper(paper_id) for paper_id in ids], len(ids) == 1
    names = words if any(word in reader or reader.names.find(word) for word in words) else [together]
    return list({paper.paper_id: paper for paper in map(reader.find, names)}.values()), True


def _text(paper: Paper) -> str:
    """A paper for a person."""
    import shutil

    from qbe.corpus.bibliography import reference_of
    from qbe.search.explain import label_of
    from qbe.search.listing import tags_of
    from qbe.search.writers import columns
    from qbe.util.text import plain

    reference = reference_of(paper)
    rows = [
        ("title", reference.title or "untitled"),
        ("authors", ", ".join(reference.authors)),
        ("year", reference.year),
        ("venue", reference.venue),
        *((name, ", ".join(values)) for name, values in tags_of(paper).items()),
        ("id", paper.paper_id),
        *((name, address) for name, address in reference.links.items()),
    ]
    rows = [(name, plain(value)) for name, value in rows if value]
    sentences = [
        (label_of(paper, position, None) or ("other" if paper.labelled else "-"), plain(sentence.text))
        for position, sentence in enumerate(paper.sentences)
    ]
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    return "\n".join([*columns(rows, width), "", *columns(sentences, width), ""])
