"""``qbe show``: papers of an index, each as a whole."""

from __future__ import annotations

from qbe.cli import common as _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from qbe.index.reader import IndexReader
    from qbe.types import Paper

PROGRAM = "qbe show"
OPTIONS = {"folder": "--index"}


def parser() -> argparse.ArgumentParser:
    """The command's parser."""
    parser = _cli.parser(
        PROGRAM,
        "Show papers of an index: title, authors, year, venue, tags, links, and each sentence of the "
        "abstract with its facet.",
    )
    parser.add_argument(
        "ids",
        nargs="+",
        metavar="ID",
        help="ids or other names (DOI, arXiv id, ...), or words of the title of one paper",
    )
    parser.add_argument("--index", required=True, metavar="DIR", help="built by qbe index")
    _cli.add_paper_formats(parser)
    return parser


def main(arguments: list[str]) -> None:
    options = parser().parse_args(arguments)

    import sys

    from qbe.errors import PaperNotFoundError
    from qbe.index.opening import open_index
    from qbe.search.listing import line, tags_of, texts
    from qbe.search.records import paper_record

    with open_index(options.index, threads=1) as index, index.reading() as reader:
        papers, exact = _named(reader, options.ids)
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
    from qbe.search.present import columns
    from qbe.util.text import plain

    reference, tags = reference_of(paper), tags_of(paper)
    rows = [
        ("title", reference.title or "untitled"),
        ("authors", ", ".join(reference.authors)),
        ("year", reference.year),
        ("venue", reference.venue),
        *((name, ", ".join(values)) for name, values in tags.items()),
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


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
