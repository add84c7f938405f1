"""The facet tagger: labels sentences in context (Cohan et al., 2019) from the token states of the encoder."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import repeat, tee
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from qbe.corpus.json_formats import read_records
from qbe.corpus.records import dump_record, paper_to_record, parse_paper
from qbe.corpus.sentences import split_sentences
from qbe.errors import ModelError, UsageError
from qbe.models.cards import DEFAULT_TAGGER, HEAD, Doubles, TaggerFiles
from qbe.models.encoder import Encoder, chunks
from qbe.models.encoding import Floats, PaperVectors
from qbe.models.folders import resolve_tagger
from qbe.models.formats import TITLE_ABSTRACT
from qbe.models.session import CPU, open_session
from qbe.types import FacetProbabilities, Paper, Sentence
from qbe.util.work import ordered_map

Record = dict[str, Any]

LABEL_SOURCES = ("given", "predicted")  # the corpus's labels, where it has any, or always the tagger's


def marginals(scores: Doubles, begin: Doubles, end: Doubles, transitions: Doubles) -> Doubles:
    """Return the probability of each label of each sentence, (..., sentences, labels).

    In a linear-chain conditional random field (Lafferty et al., 2001) a label sequence's weight is the
    exponential of its ``scores`` (..., sentences, labels), ``transitions`` (row to column), ``begin`` and
    ``end``. Computed by the scaled forward-backward algorithm (Rabiner, 1989, section V.A).

    >>> scores = np.array([[2.0, 0.0], [0.0, 0.0]])  # two sentences, two labels
    >>> staying = np.array([[1.0, 0.0], [0.0, 1.0]])  # equal labels in a row score more
    >>> marginals(scores, np.zeros(2), np.zeros(2), staying).round(2).tolist()
    [[0.88, 0.12], [0.68, 0.32]]
    """
    local = np.exp(scores - scores.max(axis=-1, keepdims=True))
    step = np.exp(transitions - transitions.max())
    forward, backward = np.empty_like(local), np.empty_like(local)
    state = np.exp(begin - begin.max()) * local[..., 0, :]
    forward[..., 0, :] = state = state / state.sum(axis=-1, keepdims=True)
    for i in range(1, local.shape[-2]):
        state = (state @ step) * local[..., i, :]
        state /= state.sum(axis=-1, keepdims=True)
        forward[..., i, :] = state
    state = np.exp(end - end.max())
    backward[..., -1, :] = state = state / state.sum()
    for i in range(local.shape[-2] - 1, 0, -1):
        state = (state * local[..., i, :]) @ step.T
        state /= state.sum(axis=-1, keepdims=True)
        backward[..., i - 1, :] = state
    both = forward * backward
    result: Doubles = both / both.sum(axis=-1, keepdims=True)
    return result


class Tagger:
    """Labels sentences from an encoder's token states, as a hook of `qbe.models.encoder.Encoder.encode`."""

    def __init__(self, files: TaggerFiles) -> None:
        """Load the network; raises ModelError when a file is damaged or the tagger has other labels."""
        files.verify()
        self.metadata = metadata = files.metadata
        if tuple(metadata.labels) != FacetProbabilities._fields:
            raise ModelError(
                f"{files.folder}: expected a tagger of the labels {', '.join(FacetProbabilities._fields)}, "
                f"found {', '.join(metadata.labels)}; give another `tagger`"
            )
        self.layers, self.head = tuple(metadata.layers), files.folder / HEAD
        self._session = open_session(self.head)
        self._chain = [np.array(each) for each in (metadata.begin, metadata.end, metadata.transitions)]

    @classmethod
    def open(cls, name: str = DEFAULT_TAGGER) -> "Tagger":
        return cls(resolve_tagger(name))

    @property
    def identity(self) -> dict[str, str]:
        head = next(iter(self.metadata.files.values()))
        return {"name": self.metadata.name, "sha256": head, "trunk": self.metadata.trunk["weights_sha256"]}

    def supports(self, encoder: Encoder) -> bool:
        """Return True if the tagger knows the encoder's weights, and sentences are encoded in context."""
        metadata = encoder.files.metadata
        known = {trunk["weights_sha256"] for trunk in (*self.metadata.also_reads, self.metadata.trunk)}
        in_context = metadata.encoder_format.layout == TITLE_ABSTRACT and metadata.adapter is None
        return in_context and metadata.weights_sha256 in known

    def compute(self, states: Sequence[Floats], spans: Sequence[tuple[int, int]]) -> Floats:
        """Compute the label scores (sentences, labels) of a window from its states."""
        if not spans:
            return np.zeros((0, len(FacetProbabilities._fields)), np.float32)
        feed = {"states": np.stack(states), "spans": span_mask(spans, len(states[0]))}
        scores: Floats = self._session.run(None, feed)[0][0]
        return scores

    def probabilities(self, scores: Sequence[Floats]) -> list[list[FacetProbabilities]]:
        """Turn papers' scores (sentences, labels) into probabilities, rounded as an index stores them."""
        alike: dict[int, list[int]] = {}
        for place, each in enumerate(scores):
            alike.setdefault(len(each), []).append(place)
        probabilities: list[list[FacetProbabilities]] = [[] for _ in scores]
        for places in alike.values():
            stacked = np.stack([scores[place] for place in places]).astype(np.float64)
            shares = marginals(stacked, *self._chain).astype(np.float16)
            for place, rows in zip(places, shares.tolist(), strict=True):
                probabilities[place] = [FacetProbabilities(*row) for row in rows]
        return probabilities


def span_mask(spans: Sequence[tuple[int, int]], tokens: int) -> NDArray[np.bool_]:
    """Mark which tokens belong to which sentence (1, sentences, tokens), an input of the tagger's network."""
    mask = np.zeros((1, len(spans), tokens), np.bool_)
    for i, (begin, end) in enumerate(spans):
        mask[0, i, begin:end] = True
    return mask


class TaggingEncoder:
    """Encodes papers and labels sentences, in a second pass where the tagger does not support the encoder."""

    def __init__(self, encoder: Encoder, tagger: Tagger | None, facets: str = "given") -> None:
        """Raise UsageError for other ``facets`` than LABEL_SOURCES, ModelError without a second encoder."""
        if facets not in LABEL_SOURCES:
            raise UsageError(f"expected `facets` {' or '.join(LABEL_SOURCES)}, found {facets!r}")
        self.encoder, self.tagger, self.facets = encoder, tagger, facets
        self._trunk: Encoder | None = None
        if tagger is not None and not tagger.supports(encoder):
            self._trunk = open_trunk(tagger, encoder.threads, encoder.device)
        self._hook = None if self._trunk else tagger

    def wants(self, paper: Paper) -> bool:
        return self.tagger is not None and (self.facets == "predicted" or not paper.labelled)

    def encode(self, papers: Iterable[Paper]) -> Iterator[tuple[Paper, PaperVectors]]:
        """Stream papers with their vectors, in order, labelled where `wants` says so."""
        if not self.encoder.batched:
            yield from ordered_map(self.encode_paper, papers, self.encoder.threads)
            return
        # all papers of a batch get scores, some of them labels
        stream, encoded, scored = tee(papers, 3)
        scores = self._trunk.encode(scored, self.tagger) if self._trunk else repeat(None)
        for chunk in chunks(zip(stream, self.encoder.encode(encoded, self._hook), scores, strict=False)):
            yield from self._labelled(chunk)

    def encode_paper(self, paper: Paper) -> tuple[Paper, PaperVectors]:
        wanted = self.wants(paper)
        vectors = self.encoder.encode_paper(paper, self._hook if wanted else None)
        scores = self._trunk.encode_paper(paper, self.tagger) if self._trunk and wanted else None
        return next(self._labelled([(paper, vectors, scores)]))

    def _labelled(self, encoded: Sequence[Any]) -> Iterator[tuple[Paper, PaperVectors]]:
        scored = [own or vectors for paper, vectors, own in encoded if self.wants(paper)]
        labels = iter(self.tagger.probabilities([each.hook_values for each in scored]) if self.tagger else ())
        for paper, vectors, _ in encoded:
            if not self.wants(paper):
                yield paper, vectors
                continue
            sentences = tuple(  # but for those below the headings of a structured abstract
                each if 1 in (each.probabilities or ()) else Sentence(each.text, shares.facet, shares)
                for each, shares in zip(paper.sentences, next(labels), strict=True)
            )
            yield replace(paper, sentences=sentences, labelled=True), vectors


def open_trunk(tagger: Tagger, threads: int = 1, device: str = CPU) -> Encoder:
    """Open an encoder that a tagger supports, by name; raises ModelError when it has other weights."""
    trunk = (*tagger.metadata.also_reads, tagger.metadata.trunk)[0]
    encoder = Encoder.open(trunk["name"], threads=threads, device=device)
    if not tagger.supports(encoder):
        raise ModelError(
            f"expected the encoder {trunk['name']} with weights {trunk['weights_sha256'][:12]} for the "
            f"tagger {tagger.metadata.name}, found {encoder.files.metadata.weights_sha256[:12]}; give "
            "another tagger"
        )
    return encoder


_WRITTEN = ("abstract", "pred_labels", "sentence_offsets")  # fields that tagging adds or replaces


def tag_stream(
    source: str,
    stream: IO[bytes],
    tagging: TaggingEncoder,
    advance: Callable[[int], object],
    *,
    probabilities: bool,
) -> None:
    """Tag a file of papers into an open stream, with ``abstract`` as sentences and ``pred_labels``.

    Other fields, lists of sentences, and labelled records (unless all are predicted) stay. ``probabilities``
    adds ``pred_probabilities``, five numbers a sentence in the order of the labels.
    """

    def tag(item: tuple[Record, Paper]) -> Record:
        record, paper = item
        if not tagging.wants(paper):
            return record
        tagged = tagging.encode_paper(paper)[0]
        fields = paper_to_record(tagged)
        record = {**record, **{name: fields[name] for name in _WRITTEN if name in fields}}
        record.pop("pred_probabilities", None)  # of labels that are replaced
        if probabilities:
            rows = (sentence.probabilities or () for sentence in tagged.sentences)
            record["pred_probabilities"] = [[round(share, 4) for share in row] for row in rows]
        return record

    records = read_records(source)
    papers = ((record, parse_paper(record, where, split_sentences)) for where, record in records)
    for record in ordered_map(tag, papers, tagging.encoder.threads):
        stream.write(dump_record(record))
        advance(1)
