"""The sentence encoder: contextualized sentence vectors from an ONNX model."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np

from qbe.encode.pooling import Floats, PaperVectors, WholeVector, pooled, stored
from qbe.encode.tokenizer import PaperTokenizer, Window, passes, sentence_room, title_room
from qbe.errors import ModelError, UsageError
from qbe.models.encoder_files import EncoderFiles, resolve_encoder, state_output
from qbe.models.encoder_format import SENTENCES
from qbe.models.registry import DEFAULT_ENCODER
from qbe.models.session import CPU, CUDA, open_session
from qbe.parallel import ordered_map
from qbe.types import Paper

log = logging.getLogger(__name__)

MASK = "attention_mask"
"""An input of encoders up to format 3: which tokens are no padding. There is none: papers pass one by one."""


class Encoder:
    """Turns papers into vectors, according to the encoder format (`qbe.models.encoder_format`).

    By default title and abstract pass through the model once, together; a sentence's vector is the mean of
    its tokens' last hidden states, the whole paper's the mean of all tokens', each scaled to unit length
    (the contextual sentences of ASPIRE, Mysore et al., 2022, section 3.1, with mean pooling).

    One paper is one call of a single-threaded session, and ``threads`` papers are encoded at the same
    time. On a CPU this is faster than padded batches, and a paper's vectors depend neither on the number of
    threads nor on other papers: dynamic quantization scales activations over the whole batch.

    >>> from qbe.text.papers import paper_from_text
    >>> encoder = Encoder.open()
    >>> vectors = encoder.encode_paper(paper_from_text("A title", "One sentence. Another one."))
    >>> vectors.sentences.shape, vectors.whole.shape
    ((2, 384), (384,))
    """

    def __init__(self, files: EncoderFiles, threads: int = 1, device: str = CPU) -> None:
        """Load the model and tokenizer, the model on one of `qbe.models.session.DEVICES`.

        Raises ModelError when a file is damaged, MissingDependencyError for a device that cannot be used,
        UsageError for int8 on a GPU, which ONNX Runtime does not support.
        """
        if device == CUDA and files.precision == "int8":
            raise UsageError(
                "`device` cuda runs models in fp32, found `precision` int8; give `precision` fp32"
            )
        files.verify()
        self.files = files
        self.threads = threads
        self._session = open_session(files.model, device=device)
        self._masked = any(each.name == MASK for each in self._session.get_inputs())
        self.tokenizer = PaperTokenizer(files.tokenizer)

    @classmethod
    def open(cls, name: str = DEFAULT_ENCODER, precision: str = "int8", threads: int = 1) -> Encoder:
        """The encoder of a name, folder or hub name; errors are those of
        `qbe.models.encoder_files.resolve_encoder`.
        """
        return cls(resolve_encoder(name, precision), threads)

    @property
    def dimension(self) -> int:
        """The number of dimensions of a vector."""
        return self.files.metadata.dimension

    def encode(self, papers: Iterable[Paper], hook: TokenStateHook | None = None) -> Iterator[PaperVectors]:
        """Vectors of each paper, in order; a few papers are read ahead, never the whole stream."""
        return ordered_map(lambda paper: self.encode_paper(paper, hook), papers, self.threads)

    def encode_paper(self, paper: Paper, hook: TokenStateHook | None = None) -> PaperVectors:
        """Vectors of one paper, and the values that a hook computes from its token states.

        The vectors are the same with and without a hook. Raises ModelError where the hook wants a layer that
        the model does not have.
        """
        encoder_format = self.files.metadata.encoder_format
        outputs = self._outputs(hook)
        vectors: list[Floats] = []
        hook_values: list[Floats] = []
        whole = WholeVector(encoder_format, self.dimension)
        for window in self.windows(paper):
            last, *hook_states = self._states(window, outputs)
            vectors.extend(pooled(last[begin:end], encoder_format.sentences) for begin, end in window.spans)
            whole.add(last)
            if hook:
                hook_values.append(hook.compute(hook_states, window.spans))
        return PaperVectors(
            stored(np.stack(vectors), encoder_format.similarity),
            stored(whole.vector(), encoder_format.similarity),
            np.concatenate(hook_values) if hook else None,
        )

    def windows(self, paper: Paper) -> Iterator[Window]:
        """The passes of a paper through the model; logs a warning where a text is too long and was cut."""
        title = self.tokenizer.ids(paper.title)
        sentences = [self.tokenizer.ids(sentence.text) for sentence in paper.sentences]
        limit, layout = self.files.metadata.max_tokens, self.files.metadata.encoder_format.layout
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

    def _outputs(self, hook: TokenStateHook | None) -> list[str]:
        """Names of the outputs that a pass computes: the last layer's, then the hook's."""
        last = self.files.metadata.layers
        layers = hook.layers if hook else ()
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
        mask = {MASK: np.ones_like(ids)} if self._masked else {}
        states = self._session.run(outputs, {"input_ids": ids, **mask})
        return [state[0] for state in states]


class TokenStateHook(Protocol):
    """Computes a few numbers for each sentence from token states that the encoder computes anyway.

    An encoder with several threads calls `compute` from several threads at the same time.

    >>> class Lengths:  # the number of tokens of each sentence, from no layer at all
    ...     layers, width = (), 1
    ...     def compute(self, states, spans):
    ...         return np.array([[end - begin] for begin, end in spans], np.float32)
    >>> Lengths().compute([], [(1, 4), (4, 9)]).tolist()
    [[3.0], [5.0]]
    """

    @property
    def layers(self) -> Sequence[int]:
        """The layers whose states the hook receives: 0 the embeddings, n the output of the n-th layer."""

    @property
    def width(self) -> int:
        """The number of values for each sentence."""

    def compute(self, states: Sequence[Floats], spans: Sequence[tuple[int, int]]) -> Floats:
        """Values (spans, width) of one window.

        ``states`` holds one array (tokens, dimension) for each of ``layers``, in their order; a span
        (begin, end) gives the tokens of one sentence. All float32.
        """
