"""The sentence encoder: contextualized sentence vectors from an ONNX model."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from qbe.encode.pooling import WholeVector, pooled, stored
from qbe.encode.reader import Floats, TokenReader
from qbe.encode.tokenizer import PaperTokenizer
from qbe.encode.windows import Window, passes, sentence_room, title_room
from qbe.errors import ModelError, UsageError
from qbe.models.encoder_files import EncoderFiles, resolve_encoder, state_output
from qbe.models.encoder_format import SENTENCES
from qbe.models.registry import DEFAULT_ENCODER
from qbe.models.session import CPU, CUDA, open_session
from qbe.parallel import ordered_map
from qbe.types import Paper

log = logging.getLogger(__name__)


class PaperVectors(NamedTuple):
    """Vectors of one paper, rounded as an index stores them (see `qbe.encode.pooling.stored`).

    ``sentences`` is (sentences, dimension), ``whole`` is (dimension,); both float32. ``readings`` is what a
    reader took from the token states, (sentences, width) float32; None where none looked on.
    """

    sentences: Floats
    whole: Floats
    readings: Floats | None = None


class Encoder:
    """Turns papers into vectors, read as the encoder's convention says (`qbe.models.encoder_format`).

    By default title and abstract pass through the model once, together; a sentence's vector is the mean of
    its tokens' last hidden states, the whole paper's the mean of all tokens', each scaled to unit length
    (the contextual sentences of ASPIRE, Mysore et al., 2022, section 3.1, with mean pooling).

    One paper is one call of a single-threaded session, and ``threads`` papers are under way at a
    time. On a CPU this beats padded batches, and a paper's vectors depend neither on the number of
    threads nor on its neighbours: dynamic quantization scales activations over the whole batch.
    """

    def __init__(self, files: EncoderFiles, threads: int = 1, device: str = CPU) -> None:
        """Load the model and tokenizer, the model on one of `qbe.models.session.DEVICES`.

        Raises ModelError when a file is damaged, MissingDependencyError for a device that cannot be used,
        UsageError for int8 on a GPU, which has no such operations.
        """
        if device == CUDA and files.precision == "int8":
            raise UsageError(
                "--device cuda runs models in fp32, found --precision int8; give --precision fp32"
            )
        files.verify()
        self.files = files
        self.threads = threads
        self._session = open_session(files.model, device=device)
        self.tokenizer = PaperTokenizer(files.tokenizer)

    @classmethod
    def open(cls, name: str = DEFAULT_ENCODER, precision: str = "int8", threads: int = 1) -> Encoder:
        """The encoder of that name, folder or hub name; see ``qbe.models.encoder_files``."""
        return cls(resolve_encoder(name, precision), threads)

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.files.card.dimension

    def encode(self, papers: Iterable[Paper], reader: TokenReader | None = None) -> Iterator[PaperVectors]:
        """Vectors of each paper, in order; a few papers are read ahead, never the whole stream."""
        return ordered_map(lambda paper: self.encode_paper(paper, reader), papers, self.threads)

    def encode_paper(self, paper: Paper, reader: TokenReader | None = None) -> PaperVectors:
        """Vectors of one paper, and what a reader makes of its token states.

        The vectors are the same with and without a reader. Raises ModelError where it wants a layer that
        the model has not.
        """
        convention = self.files.card.convention
        outputs = self._outputs(reader)
        vectors: list[Floats] = []
        readings: list[Floats] = []
        whole = WholeVector(convention, self.dimension)
        for window in self.windows(paper):
            last, *wanted = self._states(window, outputs)
            vectors.extend(pooled(last[begin:end], convention.sentences) for begin, end in window.spans)
            whole.add(last)
            if reader:
                readings.append(reader.read(wanted, window.spans))
        return PaperVectors(
            stored(np.stack(vectors), convention.similarity),
            stored(whole.vector(), convention.similarity),
            np.concatenate(readings) if reader else None,
        )

    def windows(self, paper: Paper) -> Iterator[Window]:
        """The passes through the model that a paper takes; a warning tells what did not fit and was cut."""
        title = self.tokenizer.ids(paper.title)
        sentences = [self.tokenizer.ids(sentence.text) for sentence in paper.sentences]
        limit, layout = self.files.card.max_tokens, self.files.card.convention.layout
        room = sentence_room(title, limit, layout)
        cut = [len(sentence) for sentence in sentences if len(sentence) > room]
        if cut:
            log.warning(
                "paper %s: %d of its sentences longer than the %d tokens that the encoder reads of one, cut "
                "there; the longest has %d",
                *(paper.paper_id, len(cut), room, max(cut)),
            )
        if len(title) > title_room(limit) and layout != SENTENCES:
            log.warning(
                "paper %s: title of %d tokens cut to the %d that the encoder reads",
                *(paper.paper_id, len(title), title_room(limit)),
            )
        return passes(title, sentences, self.tokenizer.special, limit, layout)

    def _outputs(self, reader: TokenReader | None) -> list[str]:
        """Names of the outputs that a pass computes: the last layer's, then the reader's."""
        last = self.files.card.layers
        layers = reader.layers if reader else ()
        unknown = [layer for layer in layers if not 0 <= layer <= last]
        if unknown:
            raise ModelError(
                f"{self.files.model}: expected layers from 0 to {last}, found {unknown[0]}; give an "
                "encoder and a tagger that belong together"
            )
        return [state_output(layer, last) for layer in (last, *layers)]

    def _states(self, window: Window, outputs: list[str]) -> list[Floats]:
        """Token states (tokens, dimension) of one window, one array for each output."""
        ids = np.array([window.ids], dtype=np.int64)
        states = self._session.run(outputs, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
        return [state[0] for state in states]
