"""A corpus from several sources, each read by the reader for its format."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from qbe.corpus.jsonl import read_records
from qbe.corpus.record import Splitter, parse_paper
from qbe.corpus.streams import display_name, is_folder
from qbe.errors import CorpusError
from qbe.types import Paper

HUGGING_FACE = "hf:"


def read_corpus(sources: Sequence[str], split: Splitter | None = None) -> Iterator[Paper]:
    """Papers of all sources in order, as a stream; only their ids are kept in memory.

    A source is a JSON file (see `qbe.corpus.read_jsonl`), ``-`` for standard input, a Hugging Face
    dataset ``hf:NAME[:CONFIG][:SPLIT]``, or a folder with one (see `qbe.corpus.huggingface`). ``split``
    splits abstracts that are one string.

    Raises CorpusError for anything that the readers refuse, for an id that occurs twice, and where there is
    no paper at all; MissingDependencyError for a dataset without the package ``datasets``.

    >>> from pathlib import Path
    >>> _ = Path("a.jsonl").write_text('{"paper_id": 1, "title": "A", "abstract": ["One."]}')
    >>> _ = Path("b.jsonl").write_text('{"paper_id": 2, "title": "B", "abstract": ["Two."]}')
    >>> [paper.title for paper in read_corpus(["a.jsonl", "b.jsonl"])]
    ['A', 'B']
    """
    seen: dict[str, int] = {}  # id -> the paper's number in the corpus, from 1
    ends: list[int] = []  # the number of the last paper of each source read
    for source in sources:
        for where, paper in _located(source, split):
            number = len(seen) + 1
            first = seen.setdefault(paper.paper_id, number)
            if first != number:
                raise _duplicate(paper.paper_id, where, first, ends, sources)
            yield paper
        ends.append(len(seen))
    if not seen:
        names = ", ".join(map(display_name, sources)) or "no source"
        raise CorpusError(f"expected at least one paper, found none in {names}; check the corpus")


def _located(source: str, split: Splitter | None) -> Iterator[tuple[str, Paper]]:
    if source.startswith(HUGGING_FACE) or is_folder(source):
        from qbe.corpus.huggingface import read_dataset

        return read_dataset(source.removeprefix(HUGGING_FACE), split)
    return ((where, parse_paper(record, where, split)) for where, record in read_records(source))


def _duplicate(
    paper_id: str, where: str, first: int, ends: Sequence[int], sources: Sequence[str]
) -> CorpusError:
    index = bisect_left(ends, first)
    before = ends[index - 1] if index else 0
    return CorpusError(
        f"{where}: expected each paper_id once, found {paper_id!r} again (first as paper {first - before} of "
        f"{display_name(sources[index])}); drop one of them"
    )
