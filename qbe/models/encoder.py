"""The sentence encoder: contextualized sentence vectors from an ONNX model."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np

from qbe.errors import ModelError
from qbe.models import encoding
from qbe.models.cards import DEFAULT_ENCODER, EncoderFiles, state_output
from qbe.models.encoding import Floats, PaperVectors, Passed, Window, stored
from qbe.models.folders import resolve_encoder
from qbe.models.formats import CLS, L2, SENTENCES
from qbe.models.session import CPU, HALF, check_precision, chosen_device, open_session, usual_precision
from qbe.types import Paper
from qbe.util.work import ordered_map, pause

log = logging.getLogger(__name__)
T = TypeVar("T")

CHUNK = 512  # papers that are sorted by length and then encoded in batches


class Encoder:
    """Turns papers into vectors, according to the encoder format (`qbe.models.formats`).

    By default title and abstract pass through the model once; a sentence's vector is the mean of its tokens'
    last hidden states, the paper's that of all tokens', each scaled to unit length (ASPIRE; Mysore et al.,
    2022, section 3.1). In int8 and fp32 a paper is one call: dynamic quantization scales activations over a
    whole batch, so papers' vectors would depend on each other. In fp16 papers are encoded in batches.

    >>> from qbe.corpus.records import paper_from_text
    >>> encoder = Encoder.open()
    >>> vectors = encoder.encode_paper(paper_from_text("A title", "One sentence. Another one."))
    >>> vectors.sentences.shape, vectors.whole.shape
    ((2, 384), (384,))
    """

    def __init__(
        self,
        files: EncoderFiles,
        threads: int = 1,
        device: str = CPU,
        *,
        batch_tokens: int | None = None,
        half: bool = True,
    ) -> None:
        """Load model and tokenizer; ``batch_tokens`` (with padding) and ``half`` products concern fp16."""
        self.device = chosen_device(device)
        check_precision(files.precision, self.device)
        files.verify()
        self.files, self.threads = files, threads
        self.dimension, self.batched = files.metadata.dimension, files.precision == HALF
        if self.batched:
            from qbe.models.gpu import BatchModel  # the other precisions do without it

            self.batch_model = BatchModel(files, self.device, half=half, tokens=batch_tokens)
        else:
            self._session = open_session(files.model, device=self.device)
        self.tokenizer = encoding.PaperTokenizer(files.tokenizer)

    @classmethod
    def open(
        cls, name: str = DEFAULT_ENCODER, precision: str | None = None, threads: int = 1, device: str = CPU
    ) -> "Encoder":
        """Open an encoder by name, folder or hub name, by default in int8 on the CPU and fp16 on a GPU."""
        device = chosen_device(device)
        return cls(resolve_encoder(name, precision or usual_precision(device)), threads, device)

    def encode(self, papers: Iterable[Paper], hook: Any = None) -> Iterator[PaperVectors]:
        """Encode papers in order; at most 4 * CHUNK papers are read ahead, never the whole stream.

        A ``hook``, such as a tagger, has ``layers`` (0: the embeddings), and ``compute`` makes values (spans,
        width) of their states, a float32 array (tokens, dimension) a layer, and the spans, in several
        threads. In batches its ``head``, the path of a model, is used instead (`qbe.models.gpu.add_tagger`).
        """
        if not self.batched:
            return ordered_map(lambda paper: self.encode_paper(paper, hook), papers, self.threads)
        # While a chunk is on the GPU, another one is tokenized, and a third one taken apart.
        threads = min(self.threads, 3)
        encoded = ordered_map(lambda chunk: self._encode_chunk(chunk, hook), chunks(papers), threads, ahead=1)
        return chain.from_iterable(encoded)

    def encode_paper(self, paper: Paper, hook: Any = None) -> PaperVectors:
        """Encode one paper; raises ModelError where the hook wants a layer that the model lacks."""
        return self._encode_chunk([paper], hook)[0]

    def _encode_chunk(self, papers: Sequence[Paper], hook: Any) -> list[PaperVectors]:
        encoder_format, outputs = self.files.metadata.encoder_format, self._outputs(hook)
        texts = list(chain.from_iterable(map(self._texts, papers)))
        ids = iter(self.tokenizer.batch_ids(texts) if self.batched else map(self.tokenizer.ids, texts))
        windows = [list(self.windows(paper, islice(ids, 1 + len(paper.sentences)))) for paper in papers]
        each_window = chain.from_iterable(windows)
        if self.batched:
            passed = iter(self.batch_model.run(list(each_window), hook, self.tokenizer.pad))
        else:
            passed = (self._pass(window, outputs, hook) for window in each_window)
        first, of_first = encoder_format.sentences == CLS, encoder_format.whole == CLS
        # The first pass has the whole paper.
        in_one = of_first or encoder_format.layout != encoding.TITLE_ABSTRACT
        sums: list[Floats] = []
        counts: list[int] = []
        wholes: list[Any] = []
        hook_values: list[Floats | None] = []
        for passes_of_paper in windows:
            results = list(islice(passed, len(passes_of_paper)))
            for window, result in zip(passes_of_paper, results, strict=True):
                sums.extend(result.sums[:1] if first and window.spans else result.sums[1:])
                counts.extend(1 if first else end - begin for begin, end in window.spans)
            passes = slice(1 if in_one else None)
            wholes.append(np.sum([result.sums[0] for result in results[passes]], axis=0, dtype=np.float64))
            if encoder_format.similarity == L2:
                wholes[-1] /= 1 if of_first else sum(len(window.ids) for window in passes_of_paper[passes])
            scores = [result.scores for result in results if result.scores is not None]
            hook_values.append(np.concatenate(scores) if scores else None)
        means = np.array(sums, np.float32).reshape(-1, self.dimension)
        means /= np.array(counts, np.float32)[:, None]
        ends = np.cumsum([len(paper.sentences) for paper in papers])[:-1]
        sentences = np.split(stored(means, encoder_format.similarity), ends)
        whole = stored(np.array(wholes, np.float32), encoder_format.similarity)
        return [PaperVectors(*vectors) for vectors in zip(sentences, whole, hook_values, strict=True)]

    def _pass(self, window: Window, outputs: Sequence[str], hook: Any) -> Passed:
        pause()
        feed = {"input_ids": np.array([window.ids], dtype=np.int64)}
        last, *hook_states = [states[0] for states in self._session.run(outputs, feed)]
        whole = last[:1] if self.files.metadata.encoder_format.whole == CLS else last
        sums = [last[begin:end].sum(axis=0) for begin, end in window.spans]
        values = hook.compute(hook_states, window.spans) if hook else None
        return Passed([whole.sum(axis=0, dtype=np.float64), *sums], values)

    def windows(self, paper: Paper, ids: Iterable[list[int]] | None = None) -> Iterator[Window]:
        """Arrange a paper, given its texts' ``ids`` or not, in passes; logs a warning where a text is cut."""
        title, *sentences = map(self.tokenizer.ids, self._texts(paper)) if ids is None else ids
        for told in self.cut(paper, (title, *sentences)):
            log.warning("paper %s: %s", paper.paper_id, told)
        limit, layout = self.files.metadata.max_tokens, self.files.metadata.encoder_format.layout
        return encoding.passes(title, sentences, self.tokenizer.special, limit, layout)

    def _texts(self, paper: Paper) -> Iterator[str]:
        alone = self.files.metadata.encoder_format.layout == SENTENCES
        yield paper.title
        for sentence in paper.sentences:
            yield sentence.text if alone else self.tokenizer.space + sentence.text

    def cut(self, paper: Paper, ids: Iterable[list[int]] = ()) -> list[str]:
        """Say what of a paper is not read since it is too long: single sentences, the title."""
        title, *sentences = ids or map(self.tokenizer.ids, self._texts(paper))
        limit, layout = self.files.metadata.max_tokens, self.files.metadata.encoder_format.layout
        room, told = encoding.sentence_room(title, limit, layout), list[str]()
        if cut := [len(sentence) for sentence in sentences if len(sentence) > room]:
            long = f"{len(cut)} of its sentences longer than the {room} tokens that the encoder reads of one"
            told.append(f"{long}, cut there; the longest has {max(cut)}")
        if len(title) > limit // 4 and layout != SENTENCES:
            told.append(f"title of {len(title)} tokens cut to the {limit // 4} that the encoder reads")
        return told

    def _outputs(self, hook: Any) -> list[str]:
        last, layers = self.files.metadata.layers, hook.layers if hook else ()
        unknown = [layer for layer in layers if not 0 <= layer <= last]
        if unknown:
            raise ModelError(
                f"{self.files.model}: expected layers from 0 to {last}, found {unknown[0]}; give an "
                "encoder and a tagger that belong together"
            )
        return [state_output(layer, last) for layer in (last, *layers)]


def chunks(papers: Iterable[T]) -> Iterator[list[T]]:
    """Group a stream into lists of CHUNK items."""
    stream = iter(papers)
    while chunk := list(islice(stream, CHUNK)):
        yield chunk
