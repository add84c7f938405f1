"""``qbe list`` and ``qbe show``: the papers of an index, as lines and each as a whole."""

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import qbe
from qbe.cli.parser import parse
from qbe.corpus.bibliography import author_names, entries, reference_of
from qbe.corpus.identity import MERGED_IDS, normalized_title
from qbe.util.text import plain

WIDEST_ID = 32
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")


def list_main(arguments: list[str]) -> None:
    options = parse("list", arguments)

    from qbe.cli.search import filter_of
    from qbe.search.filters import FilterCache
    from qbe.search.present import line
    from qbe.search.writers import described

    paper_filter = filter_of(options)
    reader = qbe.open_index(options.index, threads=1).reader
    selection = None if paper_filter is None else FilterCache(reader).of(paper_filter).selection
    passing = reader if selection is None else (reader.papers[row] for row in selection.rows.tolist())
    width = min(max(map(len, reader.papers.ids)), WIDEST_ID)
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    written = _write(
        _having(passing, options.word),
        options.format,
        lambda paper: line(paper, width)[:columns],
        lambda paper: {"paper_id": paper.paper_id, **described(paper)},
    )
    if not written:
        raise qbe.PaperNotFoundError(
            f"expected papers of {options.index} with all of the words and conditions, found none of its "
            f"{len(reader):,}; give fewer"
        )


def show_main(arguments: list[str]) -> None:
    options = parse("show", arguments)

    from qbe.search.present import line
    from qbe.search.writers import paper_record

    words = options.id
    reader = qbe.open_index(options.index, threads=1).reader
    # Where none of the words is an id, all of them may be words of one title.
    ids = [] if any(word in reader for word in words) else reader.names.find(" ".join(words))
    if len(ids) > 1:
        width = max(map(len, ids))
        sys.stdout.writelines(f"{line(reader.paper(paper_id), width)}\n" for paper_id in ids)
        raise qbe.PaperNotFoundError(
            f"expected words of the title of one paper, found {len(ids):,} papers with them; give an id, "
            "or more words"
        )
    if not ids:
        known = any(word in reader or reader.names.find(word) for word in words)
        names = words if known else [" ".join(words)]
        ids = [reader.find(name).paper_id for name in names]
    papers = map(reader.paper, dict.fromkeys(ids))
    _write(papers, options.format, _text, lambda paper: paper_record(paper, inside=True))


def _text(paper: "qbe.Paper") -> str:
    from qbe.search.present import columns, label_of

    reference = reference_of(paper)
    rows = [
        ("title", reference.title or "untitled"),
        ("authors", ", ".join(reference.authors)),
        ("year", reference.year),
        ("venue", reference.venue),
        *((name, ", ".join(values)) for name, values in _tags_of(paper).items()),
        ("id", paper.paper_id),
        ("file", reference.file),
        *reference.links.items(),
    ]
    rows = [(name, plain(value)) for name, value in rows if value]
    sentences = [
        (label_of(paper, position, None) or ("other" if paper.labelled else "-"), plain(sentence.text))
        for position, sentence in enumerate(paper.sentences)
    ]
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    return "\n".join([*columns(rows, width), "", *columns(sentences, width), ""])


def _having(papers: "Iterable[qbe.Paper]", words: Sequence[str]) -> "Iterator[qbe.Paper]":
    """Papers whose title, authors or ids have all words, each perhaps only begun, case and accents apart."""
    folded = [normalized_title(word) or word for word in words]  # ??? is in no title
    # Chinese, Japanese and Thai have no blanks between words.
    patterns = [each if _UNSPACED.search(each) else f" {each}" for each in folded]
    for paper in papers:
        metadata = paper.metadata
        ids = metadata.get("ids")
        names = [metadata.get("doi"), metadata.get("key"), *(ids.values() if isinstance(ids, dict) else ())]
        names.extend(metadata.get(MERGED_IDS) or ())
        texts = [paper.paper_id, paper.title, *author_names(metadata.get("authors")), *map(str, names)]
        text = " ".join(f" {normalized_title(each)}" for each in texts) if words else ""
        if all(pattern in text for pattern in patterns):
            yield paper


def _tags_of(paper: "qbe.Paper") -> dict[str, list[str]]:
    lists = {name: paper.metadata.get(name) for name in ("tags", "collections")}
    return {name: list(map(str, value)) if isinstance(value, list) else [] for name, value in lists.items()}


def _write(
    papers: "Iterable[qbe.Paper]",
    form: str,
    as_text: "Callable[[qbe.Paper], str]",
    as_record: "Callable[[qbe.Paper], Any]",
) -> bool:
    texts: Iterable[str]
    if form == "table":
        texts = map(as_text, papers)
    elif form == "json":
        records = ({**as_record(paper), **_tags_of(paper)} for paper in papers)
        texts = (json.dumps(record, ensure_ascii=False) for record in records)
    else:
        texts = entries(papers, form)
    found = False
    for text in texts:
        found = True
        sys.stdout.write(f"{text}\n")
    return found
