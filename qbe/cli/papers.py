"""``qbe list`` and ``qbe show``: the papers of an index, as lines and each as a whole."""

from __future__ import annotations

import sys

from qbe.cli import common

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

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
    from qbe.index.several import open_index
    from qbe.search.filters import FilterCache
    from qbe.search.present import line
    from qbe.search.writers import described

    paper_filter = filter_of(options)
    with open_index(options.index, threads=1) as index, index.reading() as reader:
        selection = None if paper_filter is None else FilterCache(reader).of(paper_filter).selection
        passing = reader if selection is None else (reader.papers[row] for row in selection.rows.tolist())
        width = min(max(map(len, reader.papers.ids)), WIDEST_ID)
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        found = False
        for text in _texts(
            _having(passing, options.word) if options.word else passing,
            options.format,
            lambda paper: line(paper, width)[:columns],
            lambda paper: {"paper_id": paper.paper_id, **described(paper), **_tags_of(paper)},
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
    from qbe.index.several import open_index
    from qbe.search.present import line
    from qbe.search.writers import paper_record

    with open_index(options.index, threads=1) as index, index.reading() as reader:
        papers, exact = _named(reader, options.id)
        if not exact:
            width = max(len(paper.paper_id) for paper in papers)
            sys.stdout.writelines(f"{line(paper, width)}\n" for paper in papers)
            raise PaperNotFoundError(
                f"expected words of the title of one paper, found {len(papers):,} papers with them; "
                "give an id, or more words"
            )
        for text in _texts(
            papers,
            options.format,
            _text,
            lambda paper: {**paper_record(paper, inside=True), **_tags_of(paper)},
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
    from qbe.search.present import columns
    from qbe.util.text import plain

    reference = reference_of(paper)
    rows = [
        ("title", reference.title or "untitled"),
        ("authors", ", ".join(reference.authors)),
        ("year", reference.year),
        ("venue", reference.venue),
        *((name, ", ".join(values)) for name, values in _tags_of(paper).items()),
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


def _having(papers: Iterable[Paper], words: Sequence[str]) -> Iterator[Paper]:
    """Papers whose title, authors or ids have all words, each perhaps only begun, case and accents apart."""
    from qbe.corpus.bibliography import author_names
    from qbe.corpus.identity import MERGED_IDS, normalized_title

    patterns = [f" {normalized_title(word)}" for word in words]
    for paper in papers:
        metadata = paper.metadata
        ids = metadata.get("ids")
        names = [metadata.get("doi"), metadata.get("key"), *(ids.values() if isinstance(ids, dict) else ())]
        names.extend(metadata.get(MERGED_IDS) or ())
        texts = [paper.paper_id, paper.title, *author_names(metadata.get("authors")), *map(str, names)]
        text = " ".join(f" {normalized_title(each)}" for each in texts)
        if all(pattern in text for pattern in patterns):
            yield paper


def _tags_of(paper: Paper) -> dict[str, list[str]]:
    """The tags and collections of a paper in its owner's library."""
    lists = {name: paper.metadata.get(name) for name in ("tags", "collections")}
    return {name: list(map(str, value)) if isinstance(value, list) else [] for name, value in lists.items()}


def _texts(
    papers: Iterable[Paper], form: str, as_text: Callable[[Paper], str], as_record: Callable[[Paper], Any]
) -> Iterator[str]:
    """The text of each paper in a format."""
    import json

    from qbe.corpus.bibliography import entries

    if form == "table":
        yield from (f"{as_text(paper)}\n" for paper in papers)
    elif form == "json":
        yield from (f"{json.dumps(as_record(paper), ensure_ascii=False)}\n" for paper in papers)
    else:
        yield from (f"{entry}\n" for entry in entries(papers, form))
