"""The sentence encoder: contextualized sentence vectors from an ONNX model."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.encode.windows import SpecialTokens, Window, windows
from qbe.errors import ModelError
from qbe.models.encoder_files import EncoderFiles, resolve_encoder
from qbe.models.registry import DEFAULT_ENCODER
from qbe.models.session import open_session
from qbe.types import Paper

Vectors = NDArray[np.float32]


class PaperVectors(NamedTuple):
    """L2-normalized vectors of one paper, rounded to half precision as an index stores them.

    ``sentences`` is (sentences, dimension), ``whole`` is (dimension,); both float32.
    """

    sentences: Vectors
    whole: Vectors


class Encoder:
    """Turns papers into vectors.

    Title and abstract pass through the model once, together; a sentence's vector is the mean of its
    tokens' last hidden states, the whole paper's the mean of all tokens', each scaled to unit length
    (the contextual sentences of ASPIRE, Mysore et al., 2022, section 3.1, with mean pooling).

    One paper is one call of a single-threaded session, and ``threads`` papers are under way at a
    time. On a CPU this beats padded batches, and a paper's vectors depend neither on the number of
    threads nor on its neighbours: dynamic quantization scales activations over the whole batch.
    """

    def __init__(self, files: EncoderFiles, threads: int = 1) -> None:
        """Load the model and tokenizer; raises ModelError when a file is damaged."""
        from tokenizers import Tokenizer

        files.verify()
        self.files = files
        self.threads = threads
        self._session = open_session(files.model)
        self._tokenizer = Tokenizer.from_file(str(files.tokenizer))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._special = self._special_tokens()

    @classmethod
    def open(cls, name: str = DEFAULT_ENCODER, precision: str = "int8", threads: int = 1) -> Encoder:
        """The encoder of that name, folder or hub name; see ``qbe.models.encoder_files``."""
        return cls(resolve_encoder(name, precision), threads)

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.files.card.dimension

    def encode(self, papers: Iterable[Paper]) -> Iterator[PaperVectors]:
        """Vectors of each paper, in order; a few papers are read ahead, never the whole stream."""
        if self.threads == 1:
            yield from map(self.encode_paper, papers)
            return
        with ThreadPoolExecutor(self.threads) as pool:
            ahead: deque[Future[PaperVectors]] = deque()
            try:
                for paper in papers:
                    ahead.append(pool.submit(self.encode_paper, paper))
                    if len(ahead) >= 8 * self.threads:
                        yield ahead.popleft().result()
                while ahead:
                    yield ahead.popleft().result()
            finally:
                for future in ahead:
                    future.cancel()

    def encode_paper(self, paper: Paper) -> PaperVectors:
        """Vectors of one paper."""
        title = self._tokens(paper.title)
        sentences = [self._tokens(sentence.text) for sentence in paper.sentences]
        vectors: list[Vectors] = []
        total = np.zeros(self.dimension, np.float64)
        for window in windows(title, sentences, self._special, self.files.card.max_tokens):
            states = self._states(window)
            vectors.extend(states[begin:end].mean(axis=0) for begin, end in window.spans)
            total += states.sum(axis=0, dtype=np.float64)
        return PaperVectors(_unit(np.stack(vectors)), _unit(total.astype(np.float32)))

    def _states(self, window: Window) -> Vectors:
        """Last hidden states (tokens, dimension) of one window."""
        ids = np.array([window.ids], dtype=np.int64)
        states: Vectors = self._session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0][
            0
        ]
        return states

    def _tokens(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def _special_tokens(self) -> SpecialTokens:
        ids = [self._tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]", "[UNK]")]
        known = [identity for identity in ids if identity is not None]
        if len(known) < len(ids):
            raise ModelError(
                f"{self.files.tokenizer}: expected a BERT-family tokenizer with [CLS], [SEP] and [UNK], "
                f"found {len(known)} of them; give another --encoder"
            )
        return SpecialTokens(*known)


def _unit(vectors: Vectors) -> Vectors:
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit = vectors / np.maximum(norms, np.finfo(np.float32).tiny)
    rounded: Vectors = unit.astype(np.float16).astype(np.float32)
    return rounded
