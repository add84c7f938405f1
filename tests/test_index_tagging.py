"""Facets of an index: given ones kept, missing ones predicted in the pass that makes the vectors."""

import json
from dataclasses import replace
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builds import Job, build_job, interrupt
from support.live import corpus
from support.tiny_tagger import write_tagger

from qbe.errors import IndexBuildError, ModelError, UsageError
from qbe.index.index import Index
from qbe.index.papers import FACET_CODES, PaperLayout, Papers, facet_mask, without_labels
from qbe.index.store import Files, current
from qbe.models.cards import HEAD
from qbe.models.encoder import Encoder
from qbe.models.tagger import LABEL_SOURCES, Tagger, TaggingEncoder
from qbe.types import Facet, FacetProbabilities, Paper, Sentence


@pytest.fixture(scope="module")
def mixed(papers) -> list[Paper]:
    return [without_labels(paper) if i % 3 == 0 else paper for i, paper in enumerate(papers[:40])]


@pytest.fixture(scope="module")
def settings(tmp_path_factory, mixed, tiny_encoder, tiny_tagger) -> Job:
    source = corpus(tmp_path_factory.mktemp("corpus"), "mixed", mixed)
    return Job(corpus=(source,), bm25=False, encoder=str(tiny_encoder), tagger=str(tiny_tagger))


@pytest.fixture(scope="module")
def folders(tmp_path_factory, settings) -> dict[str, Path]:
    made = tmp_path_factory.mktemp("indexes")
    for facets in LABEL_SOURCES:
        build_job(made / facets, replace(settings, facets=facets))
    return {facets: made / facets for facets in LABEL_SOURCES}


def rounded(paper: Paper) -> Paper:
    """The paper with probabilities in half precision, as an index stores them."""
    sentences = []
    for sentence in paper.sentences:
        shares = np.array(sentence.probabilities, dtype=np.float16).tolist()
        sentences.append(sentence._replace(probabilities=FacetProbabilities(*shares)))
    return replace(paper, sentences=tuple(sentences))


@pytest.mark.parametrize("facets", LABEL_SOURCES)
def test_papers_come_back_as_the_tagger_labels_them(folders, mixed, tiny_encoder, tiny_tagger, facets):
    tagging = TaggingEncoder(Encoder.open(str(tiny_encoder)), Tagger.open(str(tiny_tagger)), facets)
    expected = [
        paper if paper.labelled and facets == "given" else rounded(tagging.encode_paper(paper)[0])
        for paper in mixed
    ]
    with Index(folders[facets]) as index:
        assert list(index.papers.read_from(0)) == expected
        assert list(index.papers.read_from(7)) == expected[7:]
        assert [index.papers[row] for row in range(len(index))] == expected
        labels = [sentence.facet for paper in expected for sentence in paper.sentences]
        assert [FACET_CODES[code] for code in index.layout.facets] == labels
        rows = [s.probabilities or (0,) * 5 for paper in expected for s in paper.sentences]
        assert index.layout.probabilities.dtype == np.float16
        assert (index.layout.probabilities == np.array(rows, np.float16)).all()


def test_the_store_of_records_holds_what_the_corpus_brought(folders, mixed):
    assert list(Papers(Files(current(folders["given"])), predictions=False).read_from(0)) == mixed
    unlabelled = [without_labels(paper) for paper in mixed]
    assert list(Papers(Files(current(folders["predicted"])), predictions=False).read_from(0)) == unlabelled


def test_the_manifest_tells_what_was_predicted(folders, mixed, tiny_tagger):
    identity = Tagger.open(str(tiny_tagger)).identity
    for facets, predicted in (("given", 14), ("predicted", 40)):
        with Index(folders[facets]) as index:
            corpus, tagger, settings = index.manifest.corpus, index.manifest.tagger, index.manifest.settings
            tagged = [paper for paper in index if paper.predicted]
        assert (corpus["papers"], corpus["labelled"], corpus["predicted"]) == (40, 40 - predicted, predicted)
        assert len(tagged) == predicted
        guesses = sum(paper.facet_positions(facet)[1] for paper in tagged for facet in Facet)
        assert guesses > 0  # else the best guesses below would not be tested
        assert tagger == identity
        assert (settings["facets"], settings["tagger"]) == (facets, str(tiny_tagger))


def test_tagging_changes_no_vector(folders):
    with Index(folders["given"]) as given_labels, Index(folders["predicted"]) as predicted:
        for name in ("vectors.npy", "whole.npy", "faiss.index", "sentences.npy"):
            assert given_labels.manifest.files[name] == predicted.manifest.files[name]


PROBABILITIES = st.lists(st.sampled_from([0.0, 0.125, 0.25, 0.5]), min_size=5, max_size=5).filter(any)
SENTENCE = PROBABILITIES.map(lambda shares: FacetProbabilities(*shares))
SENTENCES = st.one_of(
    st.lists(SENTENCE.map(lambda shares: Sentence("x", shares.facet, shares)), min_size=1, max_size=5),
    st.lists(st.sampled_from(FACET_CODES).map(lambda facet: Sentence("x", facet)), min_size=1, max_size=5),
)


@hypothesis.settings(max_examples=40)
@given(st.lists(SENTENCES, min_size=1, max_size=6))
def test_masks_and_counts_agree_with_papers_ties_included(papers):
    papers = [Paper(str(i), "", tuple(sentences), True) for i, sentences in enumerate(papers)]
    sentences = [sentence for paper in papers for sentence in paper.sentences]
    layout = PaperLayout(
        np.cumsum([0, *(len(paper.sentences) for paper in papers)]),
        np.array([FACET_CODES.index(sentence.facet) for sentence in sentences], np.uint8),
        np.array([sentence.probabilities or (0,) * 5 for sentence in sentences], np.float16),
    )
    for facet in Facet:
        assert np.flatnonzero(facet_mask(layout, facet)).tolist() == [
            start + position
            for start, paper in zip(layout.starts[:-1], papers, strict=True)
            for position in paper.facet_positions(facet)[0]
        ]


def test_without_papers_to_tag_no_tagger_is_opened(tmp_path, sample, settings):
    source = (str(sample / "corpus.jsonl"),)
    labelled = build_job(tmp_path / "all", replace(settings, corpus=source, tagger="no such tagger"))
    postings = replace(settings, bm25=True, dense=False, facets="predicted", tagger="no such tagger")
    for manifest, count in ((labelled, 128), (build_job(tmp_path / "bm25", postings), 26)):
        assert manifest.tagger is None
        assert "facet_probabilities.npy" not in manifest.files
        assert (manifest.corpus["labelled"], manifest.corpus["predicted"]) == (count, 0)
        assert manifest.settings["tagger"] == "no such tagger"
    with Index(tmp_path / "all") as index:
        assert index.layout.probabilities is None
        method = [each.facet is Facet.METHOD for paper in index for each in paper.sentences]
        assert index.facet_mask(Facet.METHOD).tolist() == method


def test_a_tagger_that_cannot_be_had_is_told_before_anything_is_built(tmp_path, settings):
    with pytest.raises(ModelError, match="expected a tagger known by name"):
        build_job(tmp_path / "index", replace(settings, tagger="no such tagger"))
    with pytest.raises(UsageError, match="expected `facets` of given, predicted, found 'guessed'"):
        build_job(tmp_path / "index", replace(settings, facets="guessed"))
    assert not any(tmp_path.iterdir())


def test_a_tagger_exchanged_since_the_build_began_is_refused(tmp_path, settings, tiny_encoder, monkeypatch):
    tagger, output = tmp_path / "tagger", tmp_path / "index"
    write_tagger(tagger, tiny_encoder)
    job = replace(settings, tagger=str(tagger))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("qbe.index.build.write_faiss", interrupt)
        build_job(output, job)
    before = (tagger / HEAD).read_bytes()
    write_tagger(tagger, tiny_encoder, seed=1)
    assert (tagger / HEAD).read_bytes() != before
    with pytest.raises(IndexBuildError, match=r"expected the tagger tiny-tagger .* put that one back"):
        build_job(output, job, resume=True)
    built = build_job(output, job, overwrite=True)
    assert built.tagger["sha256"] == Tagger.open(str(tagger)).identity["sha256"]


def test_headings_of_a_structured_abstract_label_its_sentences(tmp_path, tiny_encoder, tiny_tagger):
    text = "AIM: To count cod. METHODS: We cast a net. RESULTS: Two cod. CONCLUSIONS: They are few."
    record = {"paper_id": "cod", "title": "Cod", "abstract": f"Fish swim. {text}"}
    (tmp_path / "cod.jsonl").write_text(json.dumps(record))
    job = Job(corpus=(str(tmp_path / "cod.jsonl"),), encoder=str(tiny_encoder), tagger=str(tiny_tagger))
    for name, settings in (("vectors", {"bm25": False}), ("postings", {"dense": False})):
        build_job(tmp_path / name, replace(job, **settings))
        with Index(tmp_path / name, tagger=str(tiny_tagger)) as index:
            labels = [each.label for each in index.label_facets(index.paper("cod")).sentences]
        assert labels[1:] == ["aim", "method", "result", "other"]
