"""The facet cross-encoder: its numbers against PyTorch's, what a query is about, and what it refuses."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from support.damage import truncate, vouch
from support.rerankers import score
from support.tiny_reranker import MAX_TOKENS, stirred, tokenized
from transformers import BertModel

from qbe.encode.tokenizer import PaperTokenizer
from qbe.errors import ModelError, UsageError
from qbe.files import sha256
from qbe.models.reranker_files import (
    TOKENIZER,
    TRUNK,
    read_reranker_card,
    resolve_reranker,
    write_reranker_card,
)
from qbe.query import Query
from qbe.rerank.facet_cross_encoder import FacetCrossEncoder
from qbe.rerank.open import open_reranker
from qbe.rerank.reranker import RerankScore
from qbe.types import Facet, Paper, Sentence

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def exact(tiny_facet_rerankers):
    return open_reranker(str(tiny_facet_rerankers / "fp32"), precision="fp32")


@pytest.fixture(scope="module")
def rounded(tiny_facet_rerankers):
    return open_reranker(str(tiny_facet_rerankers))


@pytest.fixture
def exported(tmp_path, tiny_facet_rerankers) -> Path:
    """A copy of the export, to be damaged."""
    return Path(shutil.copytree(tiny_facet_rerankers, tmp_path / "exported"))


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
    one, other = (scores(reranker, query, papers) for reranker in (exact, rounded))
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


def test_it_takes_facets_alone(exact):
    assert not exact.takes_whole_abstracts


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


def refusal(folder: Path, paper: Paper) -> str:
    with pytest.raises(ModelError) as caught:
        score(open_reranker(str(folder)), Query(paper, Facet.METHOD), [paper])
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["method.onnx", TRUNK])
@pytest.mark.parametrize("damage", [truncate, Path.unlink])
def test_damaged_files_are_refused(exported, papers, name, damage):
    damage(exported / name)
    found = "no file" if damage is Path.unlink else sha256(exported / name)
    message = (
        f"{name}: expected SHA-256 {read_reranker_card(exported).files[name]}, found {found}; install qbe"
    )
    assert message in refusal(exported, papers[0])
    if name != TRUNK:
        assert score(open_reranker(str(exported)), Query(papers[0], Facet.RESULT), papers[1:2])


@pytest.mark.parametrize("name", ["method.onnx", TRUNK])
def test_what_is_no_onnx_model_is_refused(exported, papers, name):
    truncate(exported / name)
    vouch(exported, name)
    assert "method.onnx: expected an ONNX model, found: " in refusal(exported, papers[0])


def test_another_onnx_model_is_refused(exported, papers, tiny_encoder):
    shutil.copyfile(tiny_encoder / "model.fp32.onnx", exported / "method.onnx")
    vouch(exported, "method.onnx")
    message = "method.onnx: expected a facet reranker's model, found one that takes input_ids"
    assert message in refusal(exported, papers[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "expected a tokenizer of the tokenizers package, found: "),
        ("{}", "expected a tokenizer of the tokenizers package, found: "),
        ("[CLS]", "expected a BERT-family tokenizer with <s>, </s>, [UNK] or [CLS], [SEP], [UNK], found not"),
    ],
)
def test_another_tokenizer_is_refused(exported, papers, text, message):
    path = exported / TOKENIZER
    before = path.read_text()
    path.unlink()
    if text:
        path.write_text(text if text == "{}" else before.replace("[CLS]", "<s>"))
        vouch(exported, TOKENIZER)
    assert f"tokenizer.json: {message}" in refusal(exported, papers[0])


def test_a_facet_that_the_card_does_not_have_is_refused(exported, papers):
    card = read_reranker_card(exported)
    heads = {facet: weights for facet, weights in card.heads.items() if facet != "method"}
    write_reranker_card(exported, replace(card, heads=heads))
    reranker = open_reranker(str(exported))
    with pytest.raises(UsageError, match=r"that tiny-facets reranks \(background, result\), found method"):
        score(reranker, Query(papers[0], Facet.METHOD), papers[1:2])
    assert score(reranker, Query(papers[0], Facet.RESULT), papers[1:2])


def test_a_pair_cross_encoder_is_refused(tiny_cross_encoder):
    with pytest.raises(ModelError, match="expected facet rerankers, found a pair cross-encoder"):
        FacetCrossEncoder(resolve_reranker(str(tiny_cross_encoder)))


def test_another_precision_is_refused(tiny_facet_rerankers):
    with pytest.raises(UsageError, match=r"expected precision int8, the only one of .*, found fp32"):
        open_reranker(str(tiny_facet_rerankers), precision="fp32")
