"""Papers as windows of tokens, and windows as sentence vectors, against plain references."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tiny import HIDDEN, MAX_TOKENS, layer_states
from tokenizers import Tokenizer

from qbe.models.encoder import Encoder
from qbe.models.encoding import SpecialTokens, Window, passes
from qbe.models.folders import resolve_encoder
from qbe.types import Paper, Sentence

pytestmark = pytest.mark.slow

CLS, SEP, UNK = SPECIAL = SpecialTokens(2, 3, 1)


def paper(title: str, *sentences: str) -> Paper:
    return Paper("x", title, tuple(map(Sentence, sentences)))


def layout(title: list[int], sentences: list[list[int]], max_tokens: int) -> list[Window]:
    return list(passes(title, sentences, SPECIAL, max_tokens))


TOKENS = st.lists(st.integers(10, 99), max_size=14)


@given(title=TOKENS, sentences=st.lists(TOKENS, min_size=1, max_size=12), max_tokens=st.integers(3, 24))
def test_every_sentence_has_one_span_and_nothing_is_lost(title, sentences, max_tokens):
    laid = layout(title, sentences, max_tokens)
    head = [CLS, *title[: max_tokens // 4]]
    room = max_tokens - len(head) - 1
    spans = [window.ids[begin:end] for window in laid for begin, end in window.spans]
    assert spans == [sentence[:room] or [UNK] for sentence in sentences]
    for window in laid:
        assert len(window.ids) <= max_tokens
        assert window.ids[: len(head)] == head
        assert window.ids[-1] == SEP
        borders = [len(head), *itertools.chain.from_iterable(window.spans), len(window.ids) - 1]
        assert borders[0::2] == borders[1::2]  # each span begins where the one before it ends
    for window, following in itertools.pairwise(laid):
        begin, end = following.spans[0]
        assert len(window.ids) + end - begin > max_tokens  # it would not have fitted


PAPERS = [
    paper("A title", "One short sentence.", "And another, longer one, with words that are cut into pieces."),
    paper("", "No title here."),
    paper("Graphemes", "Ünïcödé, 数学 and 🧬 are [UNK] or pieces.", "🧬🧬", "\u200b", "x" * 300, "The end."),
    paper("A long title " * 30, *(f"Sentence number {i} of a long abstract." for i in range(40))),
]


@pytest.fixture(scope="module", params=["fp32", "int8"])
def encoder(request, tiny_encoder) -> Encoder:
    return Encoder(resolve_encoder(str(tiny_encoder), request.param))


@pytest.fixture(scope="module")
def some(papers) -> list[Paper]:
    return [*PAPERS, *papers[:12]]


def windows_of(paper: Paper, model: Path) -> list[Window]:
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    texts = [paper.title, *(sentence.text for sentence in paper.sentences)]
    title, *sentences = (tokenizer.encode(text, add_special_tokens=False).ids for text in texts)
    return layout(title, sentences, MAX_TOKENS)


def test_vectors_are_means_of_token_states(encoder, some, tiny_model):
    """Equal but for rounding: half precision below 1 has steps of at most 2 ** -11."""
    for item in some:
        means, everything = [], []
        for window in windows_of(item, tiny_model):
            output = layer_states(tiny_model, window.ids)[-1]
            means += [output[begin:end].mean(axis=0) for begin, end in window.spans]
            everything.append(output)
        rows = np.array([*means, np.concatenate(everything).mean(axis=0)])
        expected = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        sentences, whole, _ = encoder.encode_paper(item)
        assert sentences.shape == (len(item.sentences), encoder.dimension) == (len(item.sentences), 16)
        vectors = np.array([*sentences, whole])
        if encoder.files.precision == "fp32":
            np.testing.assert_allclose(vectors, expected, rtol=0, atol=2**-11)
        else:
            assert (vectors * expected).sum(axis=-1).min() > 0.97


class MeanHook:
    """The mean state of each sentence at some layers, concatenated."""

    def __init__(self, *layers: int) -> None:
        self.layers = layers

    def compute(self, states, spans):
        assert all(array.dtype == np.float32 for array in states)
        means = [[array[begin:end].mean(axis=0) for array in states] for begin, end in spans]
        return np.array(means).reshape(len(spans), HIDDEN * len(self.layers))


def test_vectors_depend_on_neither_threads_nor_neighbours_nor_a_hook(encoder, some):
    alone = [encoder.encode_paper(item) for item in some]
    turned = list(encoder.encode(reversed(some)))[::-1]
    hooked = Encoder(encoder.files, threads=3).encode(iter(some), MeanHook(0, 1, 2))
    for vectors, *others in zip(alone, turned, hooked, strict=True):
        for other in others:
            assert (vectors.sentences == other.sentences).all()
            assert (vectors.whole == other.whole).all()
        assert others[1].hook_values.shape == (len(vectors.sentences), 3 * HIDDEN)


def test_what_is_cut_is_told(encoder, caplog):
    encoder.encode_paper(PAPERS[0])
    assert not caplog.messages
    tokens = len(encoder.tokenizer.ids("ab " * 100))
    assert tokens > MAX_TOKENS
    encoder.encode_paper(paper("", "Short.", "ab " * 100))
    encoder.encode_paper(PAPERS[3])
    assert caplog.messages == [
        f"paper x: 1 of its sentences longer than the {MAX_TOKENS - 2} tokens that the encoder reads of one, "
        f"cut there; the longest has {tokens}",
        f"paper x: title of {len(encoder.tokenizer.ids(PAPERS[3].title))} tokens cut to the "
        f"{MAX_TOKENS // 4} that the encoder reads",
    ]
