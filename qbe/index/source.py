"""What an index is built of: settings, a corpus as a stream of papers, an encoder that users bring."""

import contextlib
import dataclasses
import hashlib
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from qbe.corpus.records import AS_IT_COMES, Reading, RejectedRecords, Splitter, paper_to_record, parse_paper
from qbe.errors import CorpusError, EncoderMismatchError, ModelError, UsageError, check_type
from qbe.index.papers import encode_paper
from qbe.index.store import AUTO, STORED, Manifest
from qbe.models.cards import DEFAULT_ENCODER, DEFAULT_TAGGER
from qbe.models.encoder import chunks
from qbe.models.encoding import Floats, PaperVectors, stored
from qbe.models.folders import resolve_encoder
from qbe.models.formats import COSINE, SENTENCES, EncoderFormat
from qbe.models.session import CPU, DEVICES, PRECISIONS, chosen_device, usual_precision
from qbe.models.tagger import LABEL_SOURCES
from qbe.types import Paper

PROBE, PROBED, CLOSE = "Graph networks for traffic forecasting.", 8, 0.02  # the first numbers of its vector


class GivenEncoder:
    """Encodes by a model of the user's, in the place of a `qbe.models.encoder.Encoder`.

    ``given`` has ``encode`` or is called with a list of texts, a sentence each or a title and abstract, and
    returns vectors (texts, dimension). Or it holds the vectors of each paper to be indexed, in their order or
    by id: one, or one for each sentence; then only papers of the index can be searched with.
    """

    batched, device, threads = True, CPU, 1

    def __init__(self, given: Any) -> None:
        self._encode = getattr(given, "encode", given if callable(given) else None)
        self._vectors: Any = None if self._encode else given
        name, probe = type(given).__name__, []
        if self._vectors is None:
            vector = self._encoded([PROBE])[0]
            self.dimension, probe = len(vector), [round(float(each), 4) for each in vector[:PROBED]]
        elif hasattr(given, "__getitem__") and len(given):
            first = next(iter(given.values())) if isinstance(given, Mapping) else given[0]
            self.dimension, name = int(np.shape(first)[-1]), "given vectors"
        else:
            raise TypeError(f"expected `encoder` as a name, an object with encode, or vectors, found {name}")
        encoder_format = EncoderFormat(layout=SENTENCES)
        metadata = SimpleNamespace(encoder_format=encoder_format, adapter=None, weights_sha256="", name=name)
        identity = {"name": name, "precision": "fp32", "weights_sha256": "", "probe": probe}
        self.files = SimpleNamespace(metadata=metadata, identity=identity, precision="fp32")

    def __str__(self) -> str:
        return str(self.files.metadata.name)

    def check(self, folder: object, built: dict[str, Any]) -> None:
        """Raise EncoderMismatchError unless an index was built with vectors of this encoder."""
        theirs, own = (np.array(each.get("probe", [np.nan])) for each in (built, self.files.identity))
        if theirs.shape != own.shape or not np.allclose(theirs, own, atol=CLOSE):
            raise EncoderMismatchError(
                f"{folder} was built with the encoder {built['name']}, found {self} with other vectors; give "
                "the encoder it was built with as `encoder`, or build the index again"
            )

    def encode(self, papers: Iterable[Paper], _: Any = None) -> Iterator[PaperVectors]:
        """Encode papers in order."""
        if self._vectors is None:
            for chunk in chunks(papers):
                texts = [[f"{p.title}. {p.abstract}", *(s.text for s in p.sentences)] for p in chunk]
                vectors = iter(self._encoded(list(chain.from_iterable(texts))))
                for some in texts:
                    whole, *each = (next(vectors) for _ in some)
                    yield PaperVectors(np.stack(each), whole)
            return
        for number, paper in enumerate(papers):
            every, none = self._vectors, np.zeros((0, 1))
            given = every.get(paper.paper_id, none) if isinstance(every, Mapping) else every[number]
            rows = np.atleast_2d(given)
            if len(rows) not in (1, len(paper.sentences)):
                raise UsageError(
                    "expected as `encoder` a vector of each paper, or of each of its sentences, found "
                    f"{len(rows)} for the {len(paper.sentences)} sentences of {paper.paper_id}"
                )
            sentences = stored(np.broadcast_to(rows, (len(paper.sentences), rows.shape[1])), COSINE)
            yield PaperVectors(sentences, stored(rows.mean(axis=0), COSINE))

    def check_count(self, papers: int) -> None:
        """Raise UsageError where there are not as many vectors as papers to be encoded."""
        given = self._vectors
        if given is not None and not isinstance(given, Mapping) and papers != len(given):
            raise UsageError(f"expected vectors of {papers} papers as `encoder`, found {len(given)}")

    def encode_paper(self, paper: Paper, _: Any = None) -> PaperVectors:
        if self._vectors is not None:
            raise UsageError("an index of given vectors is searched with its own papers, found another one")
        return next(self.encode([paper]))

    def cut(self, _: Paper) -> list[str]:
        return []  # what a model of the user's reads is not known

    def _encoded(self, texts: list[str]) -> Floats:
        vectors = np.asarray(self._encode(texts) if self._encode else None, np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise ModelError(
                f"expected vectors ({len(texts)}, dimension) of the `encoder`, found {vectors.shape}"
            )
        return stored(vectors, COSINE)


def matching_encoder(folder: Path, manifest: Manifest, name: Any) -> Any:
    """Return the encoder of an index, now at ``name``: files or GivenEncoder; raise EncoderMismatchError."""
    assert manifest.dense is not None
    built = manifest.dense["encoder"]
    if name is not None and not isinstance(name, str):
        name.check(folder, built)
        return name
    if "probe" in built:
        raise EncoderMismatchError(
            f"{folder} was built with the encoder {built['name']} of a program; give it as `encoder`"
        )
    files = resolve_encoder(name or manifest.settings["encoder"], built["precision"])
    ways = []  # in which the encoder of the index, and this one, read papers
    for identity in (built, files.identity):
        stated = {**(identity.get("convention") or {}), "adapter": identity.get("adapter")}
        words = [f"{key} {value}" for key, value in stated.items() if value is not None]
        ways.append(", ".join(words) or "the default encoder")
    weights, found, text = built["weights_sha256"], files.metadata, ""
    if found.weights_sha256 != weights:
        text = f"({weights[:12]}), found {found.name} ({found.weights_sha256[:12]})"
    elif ways[0] != ways[1]:
        text = f"read as {ways[0]}, found it read as {ways[1]}"
    if text:
        raise EncoderMismatchError(
            f"{folder} was built with the encoder {built['name']} {text}; give the encoder it was built with "
            "as `encoder`, or build the index again"
        )
    return files


Steps = contextlib.AbstractContextManager[Callable[[int], Any]]


def no_progress(name: str, unit: str = "", total: int | None = None) -> Steps:  # noqa: ARG001
    """Show nothing of a stage of a build; the function is called with how many were just finished."""
    return contextlib.nullcontext(lambda _: None)


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
    def read(cls, record: Mapping[str, Any], **changes: Any) -> "BuildSettings":
        """Return the settings of a manifest, with changes."""
        return cls(**{name: value for name, value in record.items() if name != "corpus"} | changes)


@dataclass(frozen=True, slots=True)
class Execution:
    """How a build is carried out, which has no influence on its result."""

    threads: int = 1
    progress: Callable[..., Steps] = no_progress  # called as `no_progress` is


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
    is_one = isinstance(corpus, str | bytes | os.PathLike | Mapping) or not isinstance(corpus, Iterable)
    items: Any = [corpus] if is_one else corpus
    if not isinstance(items, Sequence):
        stream = iter(items)
        first = list(islice(stream, 1))
        items = chain(first, stream)
        if first and isinstance(first[0], str | os.PathLike):
            items = list(items)
    if not is_one and (not isinstance(items, Sequence) or any(isinstance(item, Paper) for item in items)):
        return _in_memory(items)
    expected = "`corpus` as a path (str or os.PathLike), several paths, or an iterable of qbe.Paper"
    for item in items:
        check_type(item, str | os.PathLike, expected, "give one of these")
    from qbe.corpus.reading import files_of, read_corpus  # with lxml, which searches do not need

    names = tuple(os.fspath(item) for item in items)
    facts = list[list[Any]]()
    for file in chain.from_iterable(map(files_of, names)):
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
