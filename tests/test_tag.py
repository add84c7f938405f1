"""The tagger's files, its labels from token states, and encoding and tagging in a single pass."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.tiny import HIDDEN, layer_states, write_model
from support.tiny_tagger import LAYERS

from qbe.errors import ModelError
from qbe.models.cards import HEAD, TAGGER
from qbe.models.encoder import Encoder
from qbe.models.export.encoder import export_encoder
from qbe.models.tagger import Tagger, TaggingEncoder, marginals, open_trunk
from qbe.types import FacetProbabilities, Paper, Sentence
from qbe.util.files import sha256


@pytest.fixture(scope="module")
def encoder(tiny_encoder) -> Encoder:
    return Encoder.open(str(tiny_encoder), "fp32")


@pytest.fixture(scope="module")
def tagger(tiny_tagger) -> Tagger:
    return Tagger.open(str(tiny_tagger))


@pytest.fixture
def folder(tmp_path, tiny_tagger) -> Path:
    """A copy of the tiny tagger, to be damaged."""
    return Path(shutil.copytree(tiny_tagger, tmp_path / "tagger"))


MANY = tuple(Sentence(f"Sentence number {i} of a long abstract.") for i in range(60))
LONG = Paper("long", "A title " * 5, MANY)


@pytest.fixture(scope="module")
def mixed(papers) -> list[Paper]:
    """Papers of the sample, every second without labels, and one that takes several windows."""
    bare = [
        Paper(each.paper_id, each.title, tuple(Sentence(s.text) for s in each.sentences)) for each in papers
    ]
    return [*((bare if i % 2 else papers)[i] for i in range(20)), LONG]


def change(folder: Path, **fields: object) -> None:
    path = folder / TAGGER.metadata_file
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


ORDER = ["other", "background", "objective", "method", "result"]


@pytest.mark.parametrize(
    "fields", [{"files": {}}, {"labels": ORDER}, {"labels": ["aim"]}, {"colour": "blue"}]
)
def test_a_card_that_does_not_fit_is_refused(folder, fields):
    change(folder, **fields)
    with pytest.raises(ModelError, match="expected"):
        Tagger.open(str(folder))


def test_the_identity_is_name_head_and_trunk(tagger, tiny_tagger, tiny_model):
    digests = {"sha256": sha256(tiny_tagger / HEAD), "trunk": sha256(tiny_model / "model.safetensors")}
    assert tagger.identity == {"name": "tiny-tagger", **digests}
    assert tagger.layers == LAYERS


def head(states, spans) -> np.ndarray:
    """The tiny tagger's network in plain numpy, its only matrix drawn as it was."""
    weights = 10 * np.random.default_rng(0).standard_normal((HIDDEN, 5)).astype(np.float32)
    sums = np.sum(list(states), axis=0)
    pooled = np.array([sums[begin:end].mean(axis=0) for begin, end in spans])
    return (pooled - pooled.mean(axis=0)) @ weights


@pytest.mark.parametrize("number", [0, 20])
def test_labels_follow_from_layers_windows_and_chain(encoder, tagger, mixed, tiny_model, number):
    """From the token ids on everything is computed again, in double precision."""
    paper = mixed[number]
    windows = list(encoder.windows(paper))
    assert len(windows) > (10 if paper is LONG else 1)
    scores = []
    for window in windows:
        states = layer_states(tiny_model, window.ids)
        scores += head([states[layer] for layer in LAYERS], window.spans).tolist()
    card = tagger.metadata
    expected = marginals(*map(np.array, (scores, card.begin, card.end, card.transitions)))
    tagged, _ = TaggingEncoder(encoder, tagger, "predicted").encode_paper(paper)
    probabilities = np.array([sentence.probabilities for sentence in tagged.sentences])
    np.testing.assert_allclose(probabilities, expected, rtol=0, atol=2e-3)
    assert (probabilities.astype(np.float16) == probabilities).all()
    assert tagger.compute([np.zeros((11, HIDDEN), np.float32)] * 2, []).shape == (0, 5)
    facets = [sentence.facet for sentence in tagged.sentences]
    assert facets == [FacetProbabilities(*row).facet for row in probabilities.tolist()]
    assert len(set(facets)) > (2 if paper is LONG else 0)
    assert [each.text for each in tagged.sentences] == [each.text for each in paper.sentences]
    assert tagged == dataclasses.replace(paper, sentences=tagged.sentences, labelled=True)


@pytest.mark.parametrize("facets", ["given", "predicted"])
def test_papers_that_want_it_are_tagged_and_vectors_stay(encoder, tagger, mixed, facets):
    tagging = TaggingEncoder(encoder, tagger, facets)
    for paper, (tagged, vectors) in zip(mixed, list(tagging.encode(iter(mixed))), strict=True):
        plain = encoder.encode_paper(paper)
        assert (vectors.sentences == plain.sentences).all()
        assert (vectors.whole == plain.whole).all()
        assert tagged.labelled
        assert tagged.predicted is tagging.wants(paper) is (facets == "predicted" or not paper.labelled)
        assert tagged.predicted or tagged is paper


def test_without_a_tagger_papers_stay(encoder, mixed):
    tagging = TaggingEncoder(encoder, None, "predicted")
    assert not any(map(tagging.wants, mixed))
    for paper, (same, vectors) in zip(mixed, tagging.encode(mixed), strict=True):
        assert same is paper and vectors.hook_values is None


def test_labels_depend_on_neither_threads_nor_neighbours(encoder, tagger, mixed):
    alone = [TaggingEncoder(encoder, tagger).encode_paper(paper)[0] for paper in mixed]
    threaded = TaggingEncoder(Encoder(encoder.files, threads=3), tagger)
    for step in (1, -1):
        assert [paper for paper, _ in threaded.encode(iter(mixed[::step]))] == alone[::step]


@pytest.fixture(scope="module")
def other(tmp_path_factory, papers) -> Encoder:
    """A second tiny encoder, of other weights."""
    folder = tmp_path_factory.mktemp("other")
    texts = (text for paper in papers for text in (paper.title, paper.abstract))
    write_model(folder / "weights", texts, seed=1)
    export_encoder(folder / "weights", "other", "test", folder / "encoder")
    return Encoder.open(str(folder / "encoder"))


def test_another_encoder_gives_the_vectors_and_the_trunk_the_labels(other, tagger, mixed, tiny_encoder):
    trunk = Encoder.open(str(tiny_encoder))
    assert tagger.supports(trunk)
    assert not tagger.supports(other)
    results = TaggingEncoder(other, tagger).encode(mixed)
    shared = TaggingEncoder(trunk, tagger)
    for paper, (tagged, vectors) in zip(mixed, results, strict=True):
        expected = other.encode_paper(paper)
        assert (vectors.sentences == expected.sentences).all()
        assert (vectors.whole == expected.whole).all()
        assert tagged == shared.encode_paper(paper)[0]
        assert not (vectors.whole == trunk.encode_paper(paper).whole).all()


def test_a_trunk_of_other_weights_is_refused(other, folder, tagger):
    trunk = {"name": str(other.files.folder), "weights_sha256": tagger.identity["trunk"]}
    change(folder, trunk=trunk)
    asked, found = trunk["weights_sha256"][:12], other.files.metadata.weights_sha256[:12]
    told = f"with weights {asked} for the tagger tiny-tagger, found {found}; gi"
    with pytest.raises(ModelError, match=told):
        open_trunk(Tagger.open(str(folder)))
