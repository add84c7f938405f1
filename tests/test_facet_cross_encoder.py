"""The facet cross-encoder: its numbers against PyTorch's, what a query is about, and what it refuses."""

import shutil
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
from qbe.types import Facet, Paper, Sentence

EVERY = {"query_tokens": MAX_TOKENS, "candidate_tokens": MAX_TOKENS}


@pytest.fixture(scope="module")
def exact(tiny_facet_rerankers) -> FacetCrossEncoder:
    return open_reranker(str(tiny_facet_rerankers / "fp32"), precision="fp32", **EVERY)


@pytest.fixture(scope="module")
def rounded(tiny_facet_rerankers) -> FacetCrossEncoder:
    return open_reranker(str(tiny_facet_rerankers), **EVERY)


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


def test_without_a_facet_three_models_are_averaged(exact, papers):
    """With all sentences picked, the same sentences are about every facet."""
    sentences = tuple(Sentence(sentence.text, Facet.METHOD) for sentence in papers[0].sentences)
    query, candidates = replace(papers[0], sentences=sentences), papers[1:4]
    whole = score(exact, Query(query), candidates)
    assert whole == score(exact, Query(query, positions=tuple(range(len(sentences)))), candidates)
    parts = []
    for facet in Facet:
        relabelled = replace(query, sentences=tuple(Sentence(each.text, facet) for each in sentences))
        parts.append(score(exact, Query(relabelled, facet), candidates))
    for judged, *single in zip(whole, *parts, strict=True):
        assert len({one.score for one in single}) == 3
        assert judged.score == pytest.approx(sum(one.score for one in single) / 3)
        assert judged.match == max((one.match for one in single), key=lambda match: match.score)


def test_the_match_is_the_most_similar_pair(exact, papers):
    """A sentence of the query that stands in the candidate as well, and nothing of the rest."""
    query = papers[0]
    odd = Sentence("Odd words.", Facet.RESULT)
    alike = Paper("alike", query.title, (*query.sentences[:3], odd), labelled=True)
    (whole,) = score(exact, Query(query, positions=(2,)), [alike])
    assert (whole.match.query_position, whole.match.position) == (2, 2)


def test_the_order_of_picked_positions_does_not_matter(exact, papers):
    for positions in ((3, 0), (2, 3, 0)):
        one, other = (
            score(exact, Query(papers[0], positions=tuple(chosen)), papers[1:9])
            for chosen in (positions, sorted(positions))
        )
        assert one == other
        assert {judged.match.query_position for judged in one} <= set(positions)


LONG = Paper(
    "long",
    "A long paper",
    tuple(
        Sentence(f"Sentence number {i} is here.", Facet.RESULT if i > 30 else Facet.METHOD) for i in range(40)
    ),
    labelled=True,
)


def test_what_lies_beyond_the_window_is_not_read(tiny_facet_rerankers, papers):
    """Sentences of the query that are cut off count for nothing; where all are, the whole window does."""
    reranker = open_reranker(str(tiny_facet_rerankers), query_tokens=40, candidate_tokens=60)
    tokenizer = PaperTokenizer(tiny_facet_rerankers / TOKENIZER)
    read = len(tokenizer.first_window(LONG, 40).spans)
    assert 2 < read < 10
    candidates = [*papers[:3], LONG]
    in_part, inside = (
        score(reranker, Query(LONG, positions=positions), candidates) for positions in ((1, 35), (1,))
    )
    assert in_part == inside
    outside, window = (
        score(reranker, Query(LONG, positions=positions), candidates)
        for positions in ((35,), tuple(range(read)))
    )
    assert outside == window != inside
    cut = replace(LONG, sentences=tuple(Sentence(each.text, Facet.RESULT) for each in LONG.sentences[:read]))
    assert score(reranker, Query(LONG, Facet.RESULT), candidates) == score(
        reranker, Query(cut, Facet.RESULT), candidates
    )
    for judged in outside:
        assert judged.match.query_position < read


def test_budgets_reach_no_further_than_the_model(tiny_facet_rerankers, exact, papers):
    """A budget beyond what the model reads is that of the model."""
    files = resolve_reranker(str(tiny_facet_rerankers / "fp32"), "fp32")
    roomy = FacetCrossEncoder(files, query_tokens=10_000, candidate_tokens=10_000)
    query = Query(LONG, Facet.METHOD)
    assert score(roomy, query, [LONG, papers[0]]) == score(exact, query, [LONG, papers[0]])


def test_a_candidate_without_the_facet_is_read_as_a_whole(exact, papers):
    method = replace(papers[1], sentences=tuple(Sentence(s.text, Facet.METHOD) for s in papers[1].sentences))
    bare = replace(papers[1], sentences=tuple(Sentence(s.text) for s in papers[1].sentences), labelled=False)
    every = replace(papers[1], sentences=tuple(Sentence(s.text, Facet.RESULT) for s in papers[1].sentences))
    one, two, three = score(exact, Query(papers[0], Facet.RESULT), [method, bare, every])
    assert one == two == three


# What is refused. A model is opened when its facet is first asked for.


def refusal(folder: Path, paper: Paper, facet: Facet | None = Facet.METHOD) -> str:
    with pytest.raises(ModelError) as caught:
        score(open_reranker(str(folder), **EVERY), Query(paper, facet), [paper])
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
    for facet in (Facet.METHOD, None):
        assert message in refusal(exported, papers[0], facet)
    if name != TRUNK:
        assert score(open_reranker(str(exported), **EVERY), Query(papers[0], Facet.RESULT), papers[1:2])


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
    reranker = open_reranker(str(exported), **EVERY)
    for facet in (Facet.METHOD, None):
        with pytest.raises(
            UsageError, match=r"that tiny-facets reranks \(background, result\), found method"
        ):
            score(reranker, Query(papers[0], facet), papers[1:2])
    assert score(reranker, Query(papers[0], Facet.RESULT), papers[1:2])


def test_a_pair_cross_encoder_is_refused(tiny_cross_encoder):
    with pytest.raises(ModelError, match="expected facet rerankers, found a pair cross-encoder"):
        FacetCrossEncoder(resolve_reranker(str(tiny_cross_encoder)))


def test_another_precision_is_refused(tiny_facet_rerankers):
    with pytest.raises(UsageError, match=r"expected precision int8, the only one of .*, found fp32"):
        open_reranker(str(tiny_facet_rerankers), precision="fp32")


@pytest.mark.parametrize("name", ["query_tokens", "candidate_tokens"])
def test_a_budget_without_room_for_a_token_is_refused(tiny_facet_rerankers, papers, name):
    for tokens in (0, 1, 2):
        message = rf"expected `{name}` of at least 3 \(\[CLS\], a token, \[SEP\]\), found {tokens}"
        with pytest.raises(UsageError, match=message):
            open_reranker(str(tiny_facet_rerankers), **{name: tokens})
    least = open_reranker(str(tiny_facet_rerankers), **{name: 3})
    assert len(least._tokenizer.first_window(papers[0], 3).ids) == 3
    assert len(scores(least, Query(papers[0], Facet.METHOD), papers[1:3])) == 2
