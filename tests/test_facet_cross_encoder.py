"""The facet cross-encoder: its numbers against PyTorch's, what a query is about, and what it refuses."""

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from support.damage import truncate, vouch
from support.messages import messages_of
from support.rerankers import score
from support.tiny_reranker import MAX_TOKENS, stirred, tokenized
from transformers import BertModel

from qbe.encode.tokenizer import PaperTokenizer
from qbe.errors import ModelError
from qbe.models.reranker_files import (
    TOKENIZER,
    TRUNK,
    resolve_reranker,
)
from qbe.query import Query
from qbe.rerank.facet_cross_encoder import FacetCrossEncoder
from qbe.rerank.open import open_reranker
from qbe.rerank.reranker import RerankScore
from qbe.types import Facet, Paper, Sentence

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


@pytest.fixture(scope="module")
def exact(tiny_facet_rerankers):
    return open_reranker(str(tiny_facet_rerankers / "fp32"), precision="fp32")


@pytest.fixture(scope="module")
def rounded(tiny_facet_rerankers):
    return open_reranker(str(tiny_facet_rerankers))


def scores(reranker: FacetCrossEncoder, query: Query, papers: list[Paper]) -> list[float]:
    return [judged.score for judged in score(reranker, query, papers)]


def test_scores_are_those_of_the_network(exact, tiny_reranker_weights, papers):
    network = stirred(tiny_reranker_weights)
    read = list(tokenized(tiny_reranker_weights, papers[:12]).values())
    bert = BertModel.from_pretrained(tiny_reranker_weights, add_pooling_layer=False).eval()
    with torch.inference_mode():
        # The states below are kept in half precision where the network trains.
        below = [
            bert(paper.ids[None], output_hidden_states=True).hidden_states[len(network.lower)][0]
            for paper in read
        ]
        expected = network(read, below).numpy()
    for number, facet in enumerate(Facet):
        found = scores(exact, Query(papers[0], facet), papers[1:12])
        assert np.std(found) > 0.05
        np.testing.assert_allclose(found, expected[:, number], rtol=0, atol=1e-3)


@pytest.mark.parametrize("facet", Facet)
def test_small_numbers_keep_the_order(exact, rounded, papers, facet):
    query = Query(papers[23], facet)
    one, other = (scores(reranker, query, papers[:40]) for reranker in (exact, rounded))
    assert one != other
    assert spearmanr(one, other).statistic > 0.9


def labelled(paper: Paper, positions: Sequence[int]) -> Paper:
    """The paper with the method at these positions alone."""
    sentences = tuple(
        Sentence(each.text, Facet.METHOD if place in positions else Facet.RESULT)
        for place, each in enumerate(paper.sentences)
    )
    return replace(paper, sentences=sentences, labelled=True)


def test_the_match_is_the_most_similar_pair(exact, papers):
    """A sentence of the query that stands in the candidate as well, and nothing of the rest."""
    query = labelled(papers[0], [2])
    odd = Sentence("Odd words.", Facet.RESULT)
    alike = Paper("alike", query.title, (*query.sentences[:3], odd), labelled=True)
    (whole,) = score(exact, Query(query, Facet.METHOD), [alike])
    assert (whole.match.query_position, whole.match.position) == (2, 2)


LONG = Paper(
    "long",
    "A long paper",
    tuple(
        Sentence(f"Sentence number {i} is here.", Facet.RESULT if i > 30 else Facet.METHOD) for i in range(40)
    ),
    labelled=True,
)


def test_what_lies_beyond_the_window_is_not_read(tiny_facet_rerankers, papers):
    """Sentences of the query that are cut off have no part; where all are, the whole window has one."""
    reranker = open_reranker(str(tiny_facet_rerankers))
    tokenizer = PaperTokenizer(tiny_facet_rerankers / TOKENIZER)
    read = len(tokenizer.first_window(LONG, MAX_TOKENS).spans)
    assert 2 < read < 35
    candidates = [*papers[:3], LONG]

    def scored(positions: Sequence[int]) -> list[RerankScore]:
        return score(reranker, Query(labelled(LONG, positions), Facet.METHOD), candidates)

    assert scored([1, 35]) == scored([1])
    assert scored([35]) == scored(range(read)) != scored([1])
    assert all(judged.match.query_position < read for judged in scored([35]))


def test_a_candidate_without_the_facet_is_read_as_a_whole(exact, papers):
    method = replace(papers[1], sentences=tuple(Sentence(s.text, Facet.METHOD) for s in papers[1].sentences))
    bare = replace(papers[1], sentences=tuple(Sentence(s.text) for s in papers[1].sentences), labelled=False)
    every = replace(papers[1], sentences=tuple(Sentence(s.text, Facet.RESULT) for s in papers[1].sentences))
    one, two, three = score(exact, Query(papers[0], Facet.RESULT), [method, bare, every])
    assert one == two == three


# What is refused. A model is opened when its facet is first asked for.


def test_damaged_and_other_files_are_refused(tmp_path, tiny_facet_rerankers, tiny_encoder, papers, told):
    whole = (tiny_facet_rerankers / TOKENIZER).read_text()

    def exchanged(name: str, change: Callable[[Path], object]) -> Callable[[Path], None]:
        """Exchanges a file, with a card that fits the other one."""

        def harm(folder: Path) -> None:
            change(folder / name)
            vouch(folder, name)

        return harm

    def asked(folder: Path, facet: Facet) -> list[RerankScore]:
        return score(open_reranker(str(folder)), Query(papers[0], facet), papers[1:2])

    harms: list[Callable[[Path], object]] = [
        *(lambda folder, name=name: truncate(folder / name) for name in ("method.onnx", TRUNK)),
        *(lambda folder, name=name: (folder / name).unlink() for name in ("method.onnx", TRUNK, TOKENIZER)),
        *(exchanged(name, truncate) for name in ("method.onnx", TRUNK)),
        exchanged("method.onnx", lambda path: shutil.copyfile(tiny_encoder / "model.fp32.onnx", path)),
        exchanged(TOKENIZER, lambda path: path.write_text("{}")),
        exchanged(TOKENIZER, lambda path: path.write_text(whole.replace("[CLS]", "<s>"))),
    ]
    messages = []
    for number, harm in enumerate(harms):
        folder = Path(shutil.copytree(tiny_facet_rerankers, tmp_path / f"{number}"))
        harm(folder)
        messages += messages_of([partial(asked, folder, Facet.METHOD)], ModelError, tmp_path)
        assert number or asked(folder, Facet.RESULT)  # the other facets have models of their own
    said_by_others = r"\b[0-9a-f]{64}\b|(?<=, found: ).*"
    told("facet rerankers", [re.sub(said_by_others, "X", each) for each in messages])


def test_a_pair_cross_encoder_is_refused(tiny_cross_encoder):
    with pytest.raises(ModelError, match="expected facet rerankers, found a pair cross-encoder"):
        FacetCrossEncoder(resolve_reranker(str(tiny_cross_encoder)))
