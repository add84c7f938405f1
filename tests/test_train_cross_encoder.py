"""The pair reranker for citations: candidates, batches, loss, what it writes, recommendations with it."""

import json
import shutil

import numpy as np
import pytest
import torch
from support.citing import CITING, COUNT, cited_by
from support.published import write_mpnet
from support.rerankers import score
from support.searching import ids
from support.tiny_roberta import POSITIONS, write_roberta
from support.trainings import new_folders

from qbe import CiteConfig, CorpusError, CrossEncoder, ModelError, Query, Recommender, UsageError
from qbe.models.encoding import PaperTokenizer
from qbe.models.export.encoder import export_cross_encoder
from qbe.search.rerankers import open_reranker, paper_text
from qbe.train import citation_pairs
from qbe.train.citation_pairs import Candidates, bm25_candidates, chosen_candidates, citation_examples
from qbe.train.cross_encoder import CrossEncoderRecipe
from qbe.train.pair_reader import PairReader, open_pair_reader
from qbe.util.work import Workers

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
TRAINED = "cross_encoder"


def test_candidates_are_the_best_of_bm25_that_are_not_younger(reader):
    cited = {row: np.array(cited_by(row)) for row in (20, 45)}
    with Workers() as workers:
        found = bm25_candidates(reader, workers, cited, 6)
        everything = bm25_candidates(reader, workers, cited, COUNT)
    assert [each.query for each in found] == [20, 45]
    for each, whole in zip(found, everything, strict=True):
        assert each.rows.tolist() == whole.rows[:6].tolist()
        assert each.query not in whole.rows
        assert {row // 4 <= each.query // 4 for row in whole.rows.tolist() if row != 10} == {True}
        assert each.cited.tolist() == cited_by(each.query)


def test_classes():
    best = [Candidates(9, np.array([1, 2, 3, 4, 5]), np.array([2, 5, 7]))]
    (balanced,) = chosen_candidates(best, "balanced", 20)
    assert (sum(balanced.labels), len(balanced.labels)) == (2, 4)
    assert set(balanced.rows.tolist()) <= {1, 2, 3, 4, 5}
    (whole,) = chosen_candidates(best, "all-cited", 20)
    assert whole.rows.tolist() == [1, 2, 3, 4, 5, 7]
    assert whole.labels.tolist() == [False, True, False, False, True, True]
    (more,) = chosen_candidates(best, "random", 20)
    assert more.rows[:6].tolist() == whole.rows.tolist()
    assert len(set(more.rows.tolist()) - {9}) == 11


@pytest.fixture
def reader(citing_index):
    return citing_index.reader


@pytest.fixture
def read(reader):
    def make(
        folder, model: PairReader, texts: str = "facet", sizes: tuple[int, int] = (256, 256)
    ) -> PairReader:
        model.read(PaperTokenizer(folder / "tokenizer.json"), reader, texts, None, *sizes)
        return model

    return make


@pytest.fixture
def examples(read, tiny_model, tmp_path):
    model = read(tiny_model, open_pair_reader(tiny_model, tmp_path, "cpu", 1))

    def make(rows: dict[int, list[int]]):
        found = [Candidates(row, np.array(some), np.array(cited_by(row))) for row, some in rows.items()]
        return model, citation_examples(found, model, 8)

    return make


def test_an_epoch_has_each_pair_once_in_batches_of_like_length(examples):
    model, data = examples({row: list(range(12)) for row in range(30, CITING)})
    epoch = list(data)
    assert sorted(place for batch in epoch for place in batch) == list(range(120))
    lengths = [model.length(each) for each in zip(data.pairs["query"], data.pairs["candidate"], strict=True)]
    spans = [[lengths[place] for place in batch] for batch in epoch]
    within = np.mean([max(span) - min(span) for span in spans])
    assert within < (max(map(max, spans)) - min(map(min, spans))) / 4
    assert list(data) == epoch
    data.set_epoch(1)
    assert list(data) != epoch


def test_candidates_of_one_kind_teach_nothing(examples):
    with pytest.raises(CorpusError, match="candidates of BM25 that are cited and others that are not"):
        examples({30: [29, 15, 10]})


def test_recipes_out_of_range(trained, tmp_path):
    choices = ({"facet": "problem"}, {"loss": "mse"}, {"texts": "title"}, {"texts": "facet"})
    counts = ({"query_tokens": 7}, {"candidates": 0}, {"epochs": 0.0}, {"steps": 0})
    for wrong in ({"classes": "all"}, *counts, *choices):
        with pytest.raises(UsageError, match=f"`{next(iter(wrong))}`"):
            CrossEncoderRecipe(**wrong)
    with pytest.raises(UsageError, match=r"of together at most \d+, which \S+ reads, found 500 and 16$"):
        trained.again(tmp_path, query_tokens=500)
    for wrong in ({"facet": "method"}, {"loss": "margin"}):
        told = "citations have no `facet`, and the `loss` bce; drop what is giv"
        with pytest.raises(UsageError, match=told):
            trained.again(tmp_path, **wrong)


def test_what_is_learned_and_recorded(trained):
    record = json.loads((trained.output / "reranker.json").read_text())
    made = record["training"]
    assert (record["query_tokens"], record["candidate_tokens"], record["labels"]) == (24, 16, 1)
    assert made["pairs"] > made["cited"] > 0
    assert made["dev"]["BM25"]["recall"] == made["dev"]["reranked"]["recall"]


def test_an_interrupted_training_goes_on_from_the_last_measurement(trained, tmp_path, monkeypatch):
    """It is interrupted at the second of two, and ends in the same weights; a cut checkpoint is refused."""
    folders, measured = new_folders(tmp_path), iter(range(9))
    figures = citation_pairs.reranked_figures

    def interrupted(dev, model):
        if next(measured) == 1:
            raise KeyboardInterrupt
        return figures(dev, model)

    monkeypatch.setattr(citation_pairs, "reranked_figures", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trained.training.train(folders)
    monkeypatch.undo()
    (checkpoint,) = (folders.work / "seed-0").glob("checkpoint-*")
    damaged = new_folders(tmp_path / "damaged")
    shutil.copytree(folders.work, damaged.work)
    (damaged.work / "seed-0" / checkpoint.name / "trainer_state.json").write_text("{")
    with pytest.raises(ModelError, match=r"checkpoint-\d+: expected a checkpoint of this training, found"):
        trained.training.train(damaged)
    trained.training.train(folders)
    assert not (folders.work / "seed-0").exists()
    expected = (trained.output / "model.safetensors").read_bytes()
    assert (folders.output / "model.safetensors").read_bytes() == expected


def test_the_export_reads_what_training_read(trained, reader, read, tmp_path):
    """A score of the exported model is that of the trained one, each side cut as in training."""
    model = open_pair_reader(trained.output, tmp_path, "cpu", 1).eval()
    model = read(trained.output, model, sizes=(24, 16))
    expected = model.scores(30, range(4))[:, 0].tolist()
    query, *papers = (reader.papers[row] for row in (30, 0, 1, 2, 3))
    found = score(open_reranker(str(trained.output), precision="fp32"), Query(query), papers)
    assert [each.score for each in found] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("family", "texts"), [("mpnet", "facet"), ("roberta", "abstract"), ("mpnet", "whole")]
)
def test_a_base_of_another_family(reader, papers, read, tmp_path, family, texts):
    """It has other special tokens and no token types; padding changes no score."""
    folder, sizes = tmp_path / family, {"query_tokens": 20, "candidate_tokens": 20}
    if family == "mpnet":
        write_mpnet(folder, papers)
    else:
        write_roberta(folder, [paper_text(paper) for paper in papers])
    model = open_pair_reader(folder, tmp_path / "base", "cpu", 1).eval()
    with torch.no_grad():
        model.transformers_model.classifier.out_proj.weight.mul_(100)
    read(tmp_path / "base", model, texts, (20, 20))
    assert "token_type_ids" not in model.preprocess([(30, 0)])
    model.transformers_model.save_pretrained(tmp_path / "base")
    metadata = export_cross_encoder(tmp_path / "base", "mine", "here", tmp_path / "out", **sizes, texts=texts)
    assert not metadata.token_types
    assert metadata.max_tokens == (64 if family == "mpnet" else POSITIONS)
    alone = [model.scores(30, [row])[0, 0] for row in range(3)]
    assert model.scores(30, range(3))[:, 0].tolist() == pytest.approx(alone, abs=1e-4)
    query, *candidates = (reader.papers[row] for row in (30, 0, 1, 2))
    found = score(open_reranker(str(tmp_path / "out"), precision="fp32"), Query(query), candidates)
    assert [each.score for each in found] == pytest.approx(alone, abs=1e-4)


def test_the_best_recommendations_are_scored_again(trained, citing_index, citing_model):
    paper, model = citing_index.paper("s031"), str(citing_model)
    with Recommender.open(citing_index, CiteConfig(model=model)) as plain:
        before = plain.recommend(paper, 12)
    rerank = CrossEncoder(str(trained.output), depth=5, weight=1.0)
    with Recommender.open(citing_index, CiteConfig(model=model, rerank=rerank)) as recommender:
        after = recommender.recommend(paper, 12)
        assert recommender.recommend(paper, 3) == after[:3]
    best = [citing_index.paper(hit.paper_id) for hit in before[:5]]
    scores = score(open_reranker(str(trained.output)), Query(paper), best)
    order = sorted(zip(before[:5], scores, strict=True), key=lambda pair: (-pair[1].score, pair[0].paper_id))
    assert ids(after) == ids([*(hit for hit, _ in order), *before[5:]])
    assert [hit.score for hit in after] == sorted((hit.score for hit in after), reverse=True)
    assert {hit.paper_id: hit.matches for hit in after} == {hit.paper_id: hit.matches for hit in before}


def test_joint_grades_are_refused(citing_index, citing_model):
    with pytest.raises(UsageError, match="a `rerank` that reads whole abstracts, found joint-grades"):
        Recommender.open(citing_index, CiteConfig(model=str(citing_model), rerank=CrossEncoder()))
