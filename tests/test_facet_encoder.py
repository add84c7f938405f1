"""The facet encoder out of trained rerankers: its weights against transformers, the whole of it, refusals."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.tiny_reranker import graded_lists, network, stirred, tokenized, write_lists
from transformers import BertModel

from qbe.errors import ModelError
from qbe.models.encode.encoder import Encoder
from qbe.models.encoder_files import resolve_encoder
from qbe.runs import GradedPair
from qbe.train.artifacts import Folders, RunOptions, Sources
from qbe.train.facet_encoder import make, mean_max_correlations
from qbe.train.reranker.base import interpolated_encoder
from qbe.train.weights import copied, trainable

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


def learned(folder, seed):
    """Weights as a training of that seed might leave them, gates as good as shut."""
    model = stirred(folder)
    random = torch.Generator().manual_seed(seed)
    for name, part in trainable(model).items():
        if name.endswith("gate"):
            part.data = torch.full_like(part, -1e4)
        elif name.startswith("upper."):
            part.data += 0.05 * torch.randn(part.shape, generator=random)
    return model


def test_the_whole_share_reads_as_the_rerankers_trunk_does(tiny_reranker_weights, papers, tmp_path):
    """In transformers, alone, what the trunk makes of a candidate while the joint attention is shut."""
    trained = learned(tiny_reranker_weights, 4)
    shutil.copytree(tiny_reranker_weights, tmp_path, dirs_exist_ok=True)
    base = load_file(tiny_reranker_weights / "model.safetensors")
    mixed = interpolated_encoder(base, copied(trained), 1.0)
    save_file(mixed, tmp_path / "model.safetensors", {"format": "pt"})
    bert = BertModel.from_pretrained(tmp_path, add_pooling_layer=False, attn_implementation="eager").eval()
    some = list(tokenized(tiny_reranker_weights, papers[:4]).values())
    with torch.inference_mode():
        ours = trained.encode_upper(trained.encode_lower(some))
        for paper, states in zip(some, ours, strict=True):
            expected = bert(paper.ids[None]).last_hidden_state[0]
            # The lower layers' states are kept in bfloat16 between the two.
            assert torch.cosine_similarity(states[: len(expected)], expected).min() > 0.999


def test_half_the_share_is_half_way(tiny_reranker_weights):
    base = load_file(tiny_reranker_weights / "model.safetensors")
    weights = copied(learned(tiny_reranker_weights, 5))
    actual = interpolated_encoder(base, weights, 0.5)
    assert actual.keys() == base.keys()
    key = "encoder.layer.2.attention.self.key.weight"  # the last of three layers; two of them learn
    size = len(base[key])
    expected = (base[key] + weights["upper.1.heads_weight"][size : 2 * size]) / 2
    torch.testing.assert_close(actual[key], expected)
    assert torch.equal(actual["encoder.layer.0.output.dense.bias"], base["encoder.layer.0.output.dense.bias"])


def test_rerankers_of_another_encoder_are_refused(tiny_reranker_weights):
    base = load_file(tiny_reranker_weights / "model.safetensors")
    wider = {name: torch.cat([part, part]) for name, part in base.items()}
    with pytest.raises(ModelError, match="expected rerankers trained from this encoder"):
        interpolated_encoder(wider, copied(network(tiny_reranker_weights)), 0.5)


@pytest.fixture(scope="module")
def made(tiny_reranker_weights, sample, tmp_path_factory):
    """The encoder and its folder."""
    work = tmp_path_factory.mktemp("work")
    torch.save({"best": copied(learned(tiny_reranker_weights, 1))}, work / "published.pt")
    (work / "made-from.json").write_text(json.dumps({"data": {"pairs.tsv": "ab12"}}))
    dev = write_lists(work / "dev.tsv", dict(list(graded_lists(8).items())[:3]))
    folders = Folders(tmp_path_factory.mktemp("made") / "facet-encoder", work)
    sources = Sources(dev=(dev,), corpus=sample / "corpus.jsonl")
    return make(sources, folders, RunOptions(threads=2), weights=tiny_reranker_weights), folders.output


def test_the_folder_is_an_encoder_in_int8_alone(made, papers):
    metadata, output = made
    assert sorted(path.name for path in output.iterdir()) == [
        "README.md",
        "encoder.json",
        "model.int8.onnx",
        "tokenizer.json",
    ]
    vectors = Encoder.open(str(output)).encode_paper(papers[0]).sentences
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)
    assert metadata == resolve_encoder(str(output)).metadata
    assert "pairs.tsv (ab12)" in (output / "README.md").read_text()
    with pytest.raises(ModelError, match="in fp32, found it only in int8; give `precision` fp16, or int8"):
        resolve_encoder(str(output), "fp32")


def test_rerankers_that_are_not_there(tmp_path):
    with pytest.raises(ModelError, match=r"published.pt: expected a checkpoint"):
        make(Sources(), Folders(tmp_path / "out", tmp_path), RunOptions())
    assert not (tmp_path / "out").exists()


def test_figures_of_vectors_that_know_the_answer(papers):
    """Candidates whose vectors are the query's turned by an angle that grows as their grades fall."""
    some = {paper.paper_id: paper for paper in papers[:4]}
    vectors = {}
    for place, paper in enumerate(some.values()):
        row = np.array([np.cos(0.3 * place), np.sin(0.3 * place)], np.float32)
        vectors[paper.paper_id] = np.tile(row, (len(paper.sentences), 1))
    query, *others = some
    pairs = [GradedPair(name, (grade, -grade, 1)) for name, grade in zip(others, (3, 2, 1), strict=True)]
    pairs[0] = pairs[0]._replace(grades=(3, -3, 2))
    actual = mean_max_correlations(vectors, some, {query: pairs})
    assert actual == pytest.approx([1, -1, 0.8660254])  # ranks 3 2 1 against 3 1.5 1.5
