"""What goes through an encoder: papers as windows of token ids, and the vectors that come out."""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError
from qbe.models import reading
from qbe.models.formats import COSINE, SENTENCES, TITLE_ABSTRACT, TITLE_SEP_ABSTRACT
from qbe.query import Aspect
from qbe.types import Facet, Paper

# The tokens at the beginning and end of a text and for unknown words, of MPNet, BERT and RoBERTa. MPNet's
# vocabulary has those of the others, too, but it was not trained with them.
SPECIAL_TOKENS = (("<s>", "</s>", "[UNK]"), ("[CLS]", "[SEP]", "[UNK]"), ("<s>", "</s>", "<unk>"))


class Window(NamedTuple):
    """One pass: ``ids`` with [CLS] and [SEP]; ``spans`` (begin, end) of consecutive sentences."""

    ids: list[int]
    spans: list[tuple[int, int]]


class SpecialTokens(NamedTuple):
    """Ids of the tokenizer's special tokens."""

    cls: int
    sep: int
    unk: int


def sentence_room(title: Sequence[int], max_tokens: int, layout: str = TITLE_ABSTRACT) -> int:
    """Return the most tokens of one sentence beside the title: at least 1 in a window of 3 or more."""
    if layout == SENTENCES:
        return max_tokens - 2
    separator = 1 if layout == TITLE_SEP_ABSTRACT else 0
    return max_tokens - min(len(title), max_tokens // 4) - separator - 2


def passes(
    title: Sequence[int],
    sentences: Sequence[Sequence[int]],
    special: SpecialTokens,
    max_tokens: int,
    layout: str = TITLE_ABSTRACT,
) -> Iterator[Window]:
    """Arrange a paper in passes of a layout of `EncoderFormat`, in as few windows as hold all sentences.

    Each window begins with the title, cut to a quarter; a sentence is cut to the rest, one without tokens
    gets [UNK]. ``title-sep-abstract`` fills a window with the beginning of the next sentence, outside spans:
    so the first window equals the input of a model that cuts a paper at its limit. With ``sentences`` the
    first pass, without spans, is the whole paper.

    >>> special = SpecialTokens(cls=101, sep=102, unk=100)
    >>> list(passes([1], [[2, 3], [4, 5]], special, max_tokens=6))
    [Window(ids=[101, 1, 2, 3, 102], spans=[(2, 4)]), Window(ids=[101, 1, 4, 5, 102], spans=[(2, 4)])]
    """
    room = sentence_room(title, max_tokens, layout)
    if layout == SENTENCES:
        yield Window([special.cls, *list(chain(title, *sentences))[:room], special.sep], [])
        for sentence in sentences:
            ids = [special.cls, *sentence[:room], special.sep]
            yield Window(ids, [(0, len(ids))])
        return
    separated = layout == TITLE_SEP_ABSTRACT
    head = [special.cls, *title[: max_tokens // 4], *([special.sep] if separated else [])]
    ids, spans = list(head), list[tuple[int, int]]()
    for sentence in sentences:
        tokens = list(sentence[:room]) or [special.unk]
        if spans and len(ids) + len(tokens) + 1 > max_tokens:
            beginning = tokens[: max_tokens - 1 - len(ids)] if separated else []
            yield Window([*ids, *beginning, special.sep], spans)
            ids, spans = list(head), []
        spans.append((len(ids), len(ids) + len(tokens)))
        ids += tokens
    yield Window([*ids, special.sep], spans)


def pair_input(first: Sequence[int], second: Sequence[int], cls: int, sep: int) -> list[NDArray[np.int64]]:
    """Return two papers as joint grades read them: JOINT_INPUTS, each (1, tokens) int64."""
    ids = [cls, *first, sep, *second, sep]
    sides = [0, *[1] * len(first), 0, *[2] * len(second), 0]
    return [np.array([each], np.int64) for each in (ids, sides)]


def open_tokenizer(path: Path) -> Any:
    """Open a file of the tokenizers package; raises ModelError or MissingDependencyError."""
    with reading(path, "a tokenizer of the tokenizers package", "install or export the model again"):
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(path))


class PaperTokenizer:
    """The tokenizer of a BERT-family model, applied to titles and sentences.

    ``special`` are the ids of its special tokens, ``pad`` is that of padding, 0 where there is none;
    ``space`` comes before a text that follows another, since RoBERTa has other tokens for words behind it,
    and ``between`` are the ids before the second text of a pair: its [SEP] again.
    """

    def __init__(self, path: Path) -> None:
        """Raise ModelError where the file is no BERT tokenizer, MissingDependencyError without tokenizers."""
        self._tokenizer = open_tokenizer(path)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        number: Any = self._tokenizer.token_to_id
        known = [names for names in SPECIAL_TOKENS if all(number(name) is not None for name in names)]
        if not known:
            families = " or ".join(", ".join(names) for names in SPECIAL_TOKENS)
            raise ModelError(
                f"{path}: expected a BERT-family tokenizer with {families}, found not all; give another model"
            )
        is_roberta = known[0] == SPECIAL_TOKENS[2]
        self.special = SpecialTokens(*map(number, known[0]))
        self.space, self.between = (" ", [self.special.sep]) if is_roberta else ("", [])
        padding = ("[PAD]",) if known[0] == SPECIAL_TOKENS[1] else ("<pad>", "[PAD]")
        self.pad = next((number(name) for name in padding if number(name) is not None), 0)

    def ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def batch_ids(self, texts: Sequence[str]) -> list[list[int]]:
        return [each.ids for each in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def first_window(self, paper: Paper, max_tokens: int, layout: str = TITLE_ABSTRACT) -> Window:
        """Return a paper's title and as many sentences as fit into ``max_tokens``, but at least one (cut)."""
        sentences = [self.ids(self.space + sentence.text) for sentence in paper.sentences]
        return next(passes(self.ids(paper.title), sentences, self.special, max_tokens, layout))


Floats = NDArray[np.float32]

GRID = 2.0**16  # vectors that are compared by distance are multiples of 1 / GRID


class PaperVectors(NamedTuple):
    """Float32 vectors of a paper's sentences and of the ``whole``, rounded as an index has them."""

    sentences: Floats
    whole: Floats
    hook_values: Floats | None = None


class Passed(NamedTuple):
    """Sums (1 + sentences, dimension) of a pass's last states, the whole's first; values of a hook."""

    sums: Sequence[Floats]
    scores: Floats | None


_NO_VECTORS: Floats = np.empty(0, np.float32)


class EncodedAspect(NamedTuple):
    """An aspect of a query with its vectors, computed once; without them where no stage needs vectors.

    ``sentence_vectors`` (positions, dimension) are those of its ``positions``, ``background`` (n, dimension),
    of a method or result aspect, those of the paper's other background sentences, ``vectors`` those of all.
    """

    aspect: Aspect
    positions: tuple[int, ...]
    sentence_vectors: Floats = _NO_VECTORS
    whole_vector: Floats = _NO_VECTORS
    background: Floats | None = None
    vectors: PaperVectors | None = None

    @classmethod
    def of(cls, aspect: Aspect, vectors: PaperVectors | None = None) -> "EncodedAspect":
        """Combine an aspect with its paper's ``vectors``; raises as `Aspect.selected_positions` does."""
        positions = aspect.selected_positions()
        if vectors is None:
            return cls(aspect, positions)
        background = None
        if aspect.facet not in (None, Facet.BACKGROUND):
            of_background, _ = aspect.paper.facet_positions(Facet.BACKGROUND)
            rest = [position for position in of_background if position not in positions]
            background = vectors.sentences[rest] if rest else None
        return cls(aspect, positions, vectors.sentences[list(positions)], vectors.whole, background, vectors)


STEP = 16  # rows of batches are padded to a multiple of this, in which matrix units compute


def batches(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Group the positions of passes, the longest first, in batches of at most ``tokens`` or of one pass."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda each: -lengths[each]):
        if batch and (len(batch) + 1) * padded(lengths[batch[0]]) > tokens:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def padded(length: int) -> int:
    return -(-length // STEP) * STEP


def stored(vectors: Floats, similarity: str) -> Floats:
    """Round vectors (..., dimension) to half precision, for cosine at unit length, as float32.

    Vectors that are compared by distance are multiples of 2 ** -16 as well, so that double precision holds
    sums of their products exactly (up to a length of 724), in any order. Raises ModelError beyond half
    precision.

    >>> stored(np.array([[3, 4]], np.float32), "cosine").tolist()
    [[0.60009765625, 0.7998046875]]
    """
    if similarity == COSINE:
        norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
        scaled = vectors / np.maximum(norms, np.finfo(np.float32).tiny)
    else:
        scaled = np.round(vectors.astype(np.float64) * GRID) / GRID
    with np.errstate(over="ignore"):
        rounded: Floats = scaled.astype(np.float16).astype(np.float32)
    if not np.isfinite(rounded).all():
        raise ModelError(
            f"expected vectors of numbers up to {np.finfo(np.float16).max}, as half precision holds them, "
            "found others; give another encoder"
        )
    return rounded
