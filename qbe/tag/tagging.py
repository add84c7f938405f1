"""Encoding and tagging in a single pass: papers in, labelled papers and their vectors out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from qbe.encode.encoder import Encoder, PaperVectors
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
    """

    def __init__(self, encoder: Encoder, tagger: Tagger | None, facets: str = "given") -> None:
        """``facets`` is one of LABEL_SOURCES; without a tagger papers stay as they are.

        Raises UsageError for other ``facets``, ModelError when the second encoder cannot be opened.
        """
        if facets not in LABEL_SOURCES:
            raise UsageError(f"expected `facets` {' or '.join(LABEL_SOURCES)}, found {facets!r}")
        self.encoder, self.tagger, self.facets = encoder, tagger, facets
        self._trunk = encoder if tagger is None or tagger.supports(encoder) else open_trunk(tagger)

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
        own_pass = self._trunk is not self.encoder
        vectors = self.encoder.encode_paper(paper, None if own_pass else tagger)
        scores = self._trunk.encode_paper(paper, tagger) if own_pass else vectors
        assert scores.hook_values is not None
        return labelled(paper, tagger.probabilities(scores.hook_values)), vectors


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
