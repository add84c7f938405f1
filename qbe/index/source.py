"""What an index is built of: its settings, and its corpus as a stream of papers."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qbe.corpus import paper_to_record, parse_paper, read_corpus
from qbe.corpus.reading import files_of
from qbe.corpus.records import AS_IT_COMES, Reading, RejectedRecords, Splitter
from qbe.errors import CorpusError, UsageError, check_type
from qbe.index.papers import encode_paper
from qbe.index.params import AUTO, STORED
from qbe.models.cards import DEFAULT_ENCODER, DEFAULT_TAGGER
from qbe.models.session import CPU, DEVICES, PRECISIONS, chosen_device, usual_precision
from qbe.models.tagger import LABEL_SOURCES
from qbe.types import Paper

Steps = contextlib.AbstractContextManager[Callable[[int], Any]]


class Progress:
    """An observer of a build's progress, which shows nothing; the command line shows bars.

    The corpus passes through ``papers``; ``steps`` gives a function to call with the number of items just
    finished; ``stage`` begins one without steps.
    """

    def papers(self, papers: Iterable[Paper]) -> Iterator[Paper]:
        return iter(papers)

    def steps(self, name: str, unit: str, total: int) -> Steps:  # noqa: ARG002
        return contextlib.nullcontext(lambda _: None)

    def stage(self, name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """What shapes an index, its corpus apart; a resumed build must have the same settings.

    ``encoder`` and ``tagger`` are names or folders; ``precision`` is the encoder's, which runs on ``device``.
    With ``facets`` "given" an index with vectors holds the labels that the corpus brings, and the
    ``tagger``'s for papers without; with "predicted" the tagger's for all papers. ``positions`` and
    ``docvectors`` store term positions and vectors in Lucene. ``faiss`` says which FAISS index finds
    candidates (a factory string such as ``IVF1024,PQ64x4fs``), ``stored`` how vectors are stored; ``auto``
    goes by the size of the corpus, or by what this machine has. Raises TypeError and UsageError.

    >>> BuildSettings(bm25=False).encoder
    'facet-encoder'
    """

    bm25: bool = True
    dense: bool = True
    encoder: str = DEFAULT_ENCODER
    precision: str = AUTO
    facets: str = "given"
    tagger: str = DEFAULT_TAGGER
    positions: bool = False
    docvectors: bool = False
    faiss: str = AUTO
    stored: str = AUTO
    device: str = CPU

    def __post_init__(self) -> None:
        possible: dict[str, tuple[str, ...]] = {"device": DEVICES, "facets": LABEL_SOURCES}
        possible |= {"precision": (AUTO, *PRECISIONS), "stored": (AUTO, *STORED)}
        for name in ("encoder", "precision", "facets", "tagger", "faiss", "stored", "device"):
            value, some = getattr(self, name), possible.get(name)
            if name == "encoder" and not isinstance(value, str):
                from qbe.index.given import GivenEncoder

                given = value if isinstance(value, GivenEncoder) else GivenEncoder(value)
                object.__setattr__(self, name, given)
            elif not isinstance(value, str):
                raise TypeError(f"expected `{name}` as a str, found {type(value).__name__}")
            if some and value not in some:
                raise UsageError(f"expected `{name}` of {', '.join(some)}, found {value!r}")
        int8 = self.device == AUTO and self.precision == "int8"  # of an index that grows, say
        object.__setattr__(self, "device", CPU if int8 else chosen_device(self.device))
        if self.precision == AUTO:
            object.__setattr__(self, "precision", usual_precision(self.device))
        if not self.bm25 and (self.positions or self.docvectors):
            raise UsageError("`positions` and `docvectors` are of use with `bm25` only; drop them")
        if not (self.bm25 or self.dense):
            raise UsageError("expected `bm25`, `dense` or both, found neither; an index needs one of them")

    def record(self, corpus: Sequence[str]) -> dict[str, Any]:
        """Return the settings, with the names of the corpus's sources, as a manifest holds them."""
        named = dataclasses.replace(self, encoder=str(self.encoder))
        record = {"corpus": list(corpus), **dataclasses.asdict(named)}
        if self.device == CPU:  # as in the indexes of the time before there was a choice
            del record["device"]
        return record

    @classmethod
    def read(cls, record: Mapping[str, Any], **changes: Any) -> BuildSettings:
        """Return the settings of a manifest, with changes."""
        return cls(**{name: value for name, value in record.items() if name != "corpus"} | changes)


@dataclass(frozen=True, slots=True)
class Execution:
    """How a build is carried out, which has no influence on its result."""

    threads: int = 1
    progress: Progress = field(default_factory=Progress)


IN_MEMORY = "<papers>"  # what a manifest calls a corpus of papers that a program handed over


@dataclass(frozen=True, slots=True)
class Source:
    """A stream of ``papers``, ``names`` of sources, ``facts`` that differ with it, an unusual `Reading`."""

    papers: Callable[[Splitter, RejectedRecords], Iterator[Paper]]
    names: tuple[str, ...]
    facts: list[list[Any]]
    reading: Mapping[str, Any] = field(default_factory=dict)


# A path or ``hf:`` name, several of them, papers, or a source as it is.
Corpus = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Iterable[Paper] | Source


def open_corpus(corpus: Corpus, reading: Reading = AS_IT_COMES) -> Source:
    """Return the source of a corpus; a build of a sequence of papers can be resumed, of a stream not."""
    if isinstance(corpus, Source):
        return corpus
    items: Any = [corpus] if isinstance(corpus, str | os.PathLike) else corpus
    is_one = isinstance(items, Mapping | bytes) or not isinstance(items, Iterable)
    if is_one:
        items = [items]
    if not isinstance(items, Sequence):
        stream = iter(items)
        first = list(itertools.islice(stream, 1))
        items = itertools.chain(first, stream)
        if first and isinstance(first[0], str | os.PathLike):
            items = list(items)
    if not is_one and (not isinstance(items, Sequence) or any(isinstance(item, Paper) for item in items)):
        return _in_memory(items)
    expected = "`corpus` as a path (str or os.PathLike), several paths, or an iterable of qbe.Paper"
    for item in items:
        check_type(item, str | os.PathLike, expected, "give one of these")
    names = tuple(os.fspath(item) for item in items)
    facts = list[list[Any]]()
    for file in itertools.chain.from_iterable(map(files_of, names)):
        facts.append([file])
        if Path(file).is_file():
            status = Path(file).stat()
            facts[-1] += [status.st_size, status.st_mtime_ns]
    return Source(
        lambda split, left_out: read_corpus(names, split, reading, left_out), names, facts, reading.record()
    )


def _in_memory(papers: Iterable[Any]) -> Source:
    """Return the source of papers that a program hands over, checked as those of a record are."""

    def checked() -> Iterator[Paper]:
        numbers: dict[str, int] = {}
        for number, paper in enumerate(papers, start=1):
            hint = f"convert records such as number {number} with qbe.corpus.parse_paper"
            check_type(paper, Paper, "`corpus` of qbe.Paper", hint)
            yield parse_paper(paper_to_record(paper), f"paper {number}")
            first = numbers.setdefault(paper.paper_id, number)
            if first != number:
                raise CorpusError(
                    f"paper {number}: expected each paper_id once, found {paper.paper_id!r} again (first as "
                    f"paper {first}); drop one of them"
                )
        if not numbers:
            raise CorpusError("expected at least one paper, found none; check `corpus`")

    fact = uuid.uuid4().hex
    if isinstance(papers, Sequence):
        fact = hashlib.sha256(b"".join(map(encode_paper, checked()))).hexdigest()
    return Source(lambda split, left_out: checked(), (IN_MEMORY,), [[IN_MEMORY, fact]])  # noqa: ARG005
