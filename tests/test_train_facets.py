"""Cross-encoders of facets: losses by hand, what an epoch reads, what is written and how it is read."""

import json
import logging
import math
import shutil

import numpy as np
import pytest
import torch
from support.rerankers import score
from support.trainings import new_folders

from qbe import Aspect, Facet, FileFormatError, Query
from qbe.index.index import Index
from qbe.models.encoding import EncodedAspect, PaperTokenizer
from qbe.models.export import encoder as export
from qbe.models.folders import resolve_reranker
from qbe.runs import GradedPair
from qbe.search.rerankers import candidate_side, open_reranker, query_side
from qbe.train.losses import pair_loss
from qbe.train.pair_reader import by_list, in_triplets, open_pair_reader
from qbe.train.pairs import split_lists
from qbe.train.work import Sources

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
TRAINED = "facet_cross_encoder"


def lost(loss: str, scores: list, truth: list, owners: tuple[float, ...] = (0, 0, 1, 1)) -> float:
    predicted, grades, lists = (torch.tensor(each, dtype=torch.float32) for each in (scores, truth, owners))
    return pair_loss(loss, predicted, lists, grades, margin=0.5, crossed=1.0).item()


def test_losses_worked_by_hand():
    # Two triplets: .5 - (.2 - .1), and .5 - (1 - .9), whose better one is the second; equal grades count not.
    assert lost("margin", [[0.2], [0.1], [0.9], [1.0]], [[3], [1], [0], [2]]) == pytest.approx(0.4)
    three = [[0.0, 0.0, 0.2], [0.0, 0.1, 0.1]]
    assert lost("margin", three, [[1, 2, 3], [1, 0, 1]], (0, 0)) == pytest.approx((0.6 + 0.4) / 2)
    assert lost("bce", [[math.log(3)], [-math.log(3)]], [[1], [0]], (0, 0)) == pytest.approx(-math.log(0.75))
    # A score of 0 is a grade of 1.5; of pairs of different grades only those within a list are ranked.
    graded = lost("grades", [[0.0]] * 4, [[1.5], [1.5], [2.5], [0.5]])
    assert graded == pytest.approx((0 + 0 + 1 + 1) / 4 + math.log(2))


LISTS = [
    [GradedPair("a", (3, 0, 0)), GradedPair("b", (1, 0, 0)), GradedPair("c", (0, 0, 2))],
    [GradedPair("d", (0, 0, 0)), *(GradedPair(f"e{number}", (0.5, 0, 0)) for number in range(5))],
]


def test_an_epoch_keeps_lists_together_and_leaves_out_most_of_what_is_unrelated():
    rngs = map(np.random.default_rng, range(9))
    orders = [[place for batch in by_list(LISTS, 4, 2, rng) for place in batch] for rng in rngs]
    for order in orders:
        assert (len(order), len(set(order))) == (5, 5)
        assert {0, 1, 2} < set(order)
        assert {0, 1, 2} in (set(order[:3]), set(order[2:]))
    assert len({tuple(order) for order in orders}) > 3


def test_pairs_without_a_grade_of_the_facet_are_left_out(tmp_path):
    """As qbe label writes them by the guideline of two facets; a model of all facets needs all grades."""
    file = tmp_path / "pairs.tsv"
    header = "query_id paper_id background method result"
    file.write_text("\n".join([header, "q a 3 1 ", "q b  2 ", "q c 1 0 "]).replace(" ", "\t") + "\n")
    sources = Sources(train=(file,))
    assert [pair.paper_id for pair in split_lists(sources, [1])[0]["q"]] == ["a", "b", "c"]
    assert [pair.paper_id for pair in split_lists(sources, [0])[0]["q"]] == ["a", "c"]
    with pytest.raises(FileFormatError, match="numbers from 0 to 3 as grades"):
        split_lists(sources)


def test_triplets_are_ordered_by_a_grade_of_each_facet_in_turn():
    """By method no grades differ, so that background and result take turns; the second list has one order."""
    batches = in_triplets(LISTS, [0, 1, 2], 5, 4, np.random.default_rng(0))
    assert list(map(len, batches)) == [4, 4, 4, 4]
    triplets = [tuple(batch[place : place + 2]) for batch in batches for place in (0, 2)]
    assert len([each for each in triplets if max(each) < 3]) == 4
    grades = [pair.grades for pairs in LISTS for pair in pairs]
    better = [
        {facet for facet in range(3) if grades[one][facet] > grades[two][facet]} for one, two in triplets
    ]
    assert all(better)
    assert sum(each == {2} for each in better) >= 1
    assert {each for each in triplets if max(each) > 2} <= {(4 + number, 3) for number in range(5)}
    assert in_triplets(LISTS[:1], [1], 4, 3, np.random.default_rng(0)) == []


def test_whole_abstracts_are_read_between_separators(papers, tiny_model):
    tokenizer, paper = PaperTokenizer(tiny_model / "tokenizer.json"), papers[0]
    title, abstract = tokenizer.ids(paper.title), tokenizer.ids(paper.abstract)
    sep = tokenizer.special.sep
    query = EncodedAspect.of(Aspect(paper, Facet.METHOD))
    assert query_side(tokenizer, query, 999, "whole") == [*title, sep, *abstract]
    assert candidate_side(tokenizer, paper, 9, "whole") == [*title, sep, *abstract][:8]
    assert query_side(tokenizer, query, 999, "abstract") == [*title, tokenizer.ids(".")[0], *abstract]
    of_facet = [token for place in query.positions for token in tokenizer.ids(paper.sentences[place].text)]
    assert query_side(tokenizer, query, 999) == [*title, tokenizer.ids(".")[0], *of_facet]


def test_a_model_of_all_facets_scores_each(trained, tmp_path):
    record = json.loads((trained.output / "reranker.json").read_text())
    assert (record["labels"], record["texts"], record["facet"]) == (3, "whole", None)
    assert set(record["parity"]) >= {"fp32", "fp16"}
    labels = json.loads((trained.output / "config.json").read_text())["id2label"]
    assert [*labels.values()] == [*map(str, Facet)]
    model = open_pair_reader(trained.output, tmp_path, "cpu", 3).eval()
    with Index(trained.sources.index) as index:
        reader = index.reader
        model.read(PaperTokenizer(trained.output / "tokenizer.json"), reader, "whole", None, 40, 40)
        query, *candidates = (reader.papers[row] for row in (35, 0, 1, 2))
        expected = model.scores(35, range(3))
    for precision, near in (("fp32", 1e-4), ("fp16", 0.05)):
        reranker = open_reranker(str(trained.output), precision=precision)
        assert not reranker.takes_whole_abstracts
        for facet, column in zip(Facet, expected.T, strict=True):
            found = score(reranker, Query(query, facet), candidates)
            np.testing.assert_allclose([each.score for each in found], column, atol=near)


@pytest.mark.parametrize(("facet", "loss"), [("method", "grades"), ("result", "bce")])
def test_a_model_of_one_facet(trained, tmp_path, facet, loss):
    figures = trained.again(tmp_path, facet=facet, loss=loss, texts=None, evaluations=1)
    record = json.loads((tmp_path / "model" / "reranker.json").read_text())
    assert (record["labels"], record["texts"], record["facet"]) == (1, "facet", facet)
    assert record["training"]["pairs"] == 23
    (figure,) = next(iter(figures.values()))
    assert -1 <= figure <= 1
    curve = record["training"]["curves"]["seed 0"]
    assert max(curve) == pytest.approx(figure, abs=0.1)  # measured in training in bfloat16


def test_weights_are_kept_where_the_exported_model_differs(trained, tmp_path, monkeypatch, caplog):
    """In int8, which is left out; or in fp32, without which there is none at all."""
    monkeypatch.setattr(export, "INT8_MAX_SHARE_OF_SPREAD", 1e-3)
    for name in ("int8", "fp32"):  # trained, but not published
        shutil.copytree(trained.work, tmp_path / name / "work")
    trained.training.train(new_folders(tmp_path / "int8"))
    files = resolve_reranker(str(tmp_path / "int8" / "model"))
    assert (files.precision, "int8" in files.metadata.parity) == ("fp32", False)
    assert "no int8 model: expected one within 0.001 of the scores' standard deviation, found" in caplog.text
    caplog.clear()
    monkeypatch.setattr(export, "FP32_MAX_DIFFERENCE", -1.0)
    trained.training.train(new_folders(tmp_path / "fp32"))
    names = {path.name for path in (tmp_path / "fp32" / "model").iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json", "README.md"}
    (message,) = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert message.startswith("model: the weights are kept, without ONNX models: parity check: expected fp32")
