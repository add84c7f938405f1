"""Encoding and tagging in a single pass: papers in, labelled papers and their vectors out."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence

from qbe.encode.encoder import Encoder, PaperVectors
from qbe.encode.hooks import Floats
from qbe.errors import ModelError, UsageError
from qbe.parallel import ordered_map
from qbe.tag.tagger import Tagger, labelled
from qbe.types import Paper

LABEL_SOURCES = ("given", "predicted")
"""Which labels are used: those of the corpus, where it has any, or always the tagger's."""


class TaggingEncoder:
    """Encodes papers, and labels the sentences of those that need it.

    The tagger takes the token states of the encoder's pass if it supports that encoder. Otherwise an encoder
    that it supports is opened as a second one, and papers to be tagged pass through both.
    ``tagging_seconds`` is the time spent in the tagger itself, summed over all threads.
    """

    def __init__(self, encoder: Encoder, tagger: Tagger | None, facets: str = "given") -> None:
        """``facets`` is one of LABEL_SOURCES; without a tagger papers stay as they are.

        Raises UsageError for other ``facets``, ModelError when the second encoder cannot be opened.
        """
        if facets not in LABEL_SOURCES:
            raise UsageError(f"expected `facets` {' or '.join(LABEL_SOURCES)}, found {facets!r}")
        self.encoder, self.tagger, self.facets = encoder, tagger, facets
        self._trunk = encoder if tagger is None or tagger.supports(encoder) else open_trunk(tagger)
        self.tagging_seconds = 0.0
        self._clock = threading.Lock()

    def wants(self, paper: Paper) -> bool:
        """Whether a paper needs labels of the tagger."""
        return self.tagger is not None and (self.facets == "predicted" or not paper.labelled)

    def encode(self, papers: Iterable[Paper]) -> Iterator[tuple[Paper, PaperVectors]]:
        """Each paper, labelled where `wants` says so, with its vectors, in order, as a stream."""
        return ordered_map(self.encode_paper, papers, self.encoder.threads)

    def encode_paper(self, paper: Paper) -> tuple[Paper, PaperVectors]:
        """One paper, labelled where `wants` says so, with its vectors."""
        tagger = self.tagger
        if tagger is None or not self.wants(paper):
            return paper, self.encoder.encode_paper(paper)
        timed = _Timed(tagger)
        vectors = self.encoder.encode_paper(paper, timed if self._trunk is self.encoder else None)
        scores = vectors if self._trunk is self.encoder else self._trunk.encode_paper(paper, timed)
        assert scores.hook_values is not None
        started = time.perf_counter()
        tagged = labelled(paper, tagger.probabilities(scores.hook_values))
        with self._clock:
            self.tagging_seconds += timed.seconds + time.perf_counter() - started
        return tagged, vectors


def open_trunk(tagger: Tagger, threads: int = 1) -> Encoder:
    """An encoder that a tagger supports, opened by the name in the tagger's metadata.

    Raises ModelError when the one of that name has other weights.
    """
    trunk = tagger.metadata.trunks[0]
    encoder = Encoder.open(trunk["name"], threads=threads)
    if not tagger.supports(encoder):
        raise ModelError(
            f"expected the encoder {trunk['name']} with weights {trunk['weights_sha256'][:12]} for the "
            f"tagger {tagger.metadata.name}, found {encoder.files.metadata.weights_sha256[:12]}; give "
            "another tagger"
        )
    return encoder


class _Timed:
    """A tagger as a hook that measures its own time."""

    def __init__(self, tagger: Tagger) -> None:
        self.layers, self.width = tagger.layers, tagger.width
        self.seconds = 0.0
        self._tagger = tagger

    def compute(self, states: Sequence[Floats], spans: Sequence[tuple[int, int]]) -> Floats:
        started = time.perf_counter()
        scores = self._tagger.compute(states, spans)
        self.seconds += time.perf_counter() - started
        return scores
