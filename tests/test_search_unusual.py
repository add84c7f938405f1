"""Searching papers without labels or abstract, in other languages, of one sentence: works, or says why."""

import json

import pytest

from qbe import BuildSettings, Facet, Fused, Pipeline, Query, Reading, build_index
from qbe.search.present import looks_english, to_table

PAPERS = {
    "chinese": {"title": "河流中的鱼", "abstract": "鱼在河里游泳。我们数鱼。结果是很多。"},
    "french": {"title": "Le saumon", "abstract": "Les saumons remontent. Nous les comptons par caméra."},
    "one sentence": {"title": "A note", "abstract": "We count fish by camera"},
    "no abstract": {"title": "Counting salmon by camera"},
    "english": {"title": "Counting fish", "abstract": "Fish are hard to count. We count them by camera."},
}


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory, tiny_encoder, tiny_tagger):
    folder = tmp_path_factory.mktemp("unusual")
    corpus = folder / "papers.jsonl"
    records = ({"paper_id": name.replace(" ", "-"), **paper} for name, paper in PAPERS.items())
    corpus.write_text("\n".join(map(json.dumps, records)))
    settings = BuildSettings(encoder=str(tiny_encoder), tagger=str(tiny_tagger))
    reading = Reading(keep_without_abstract=True)
    with (
        build_index(folder / "index", str(corpus), settings, reading=reading) as index,
        Pipeline(index, Fused()) as pipeline,
    ):
        yield pipeline


@pytest.mark.parametrize("name", PAPERS)
def test_every_other_paper_is_ranked_and_a_table_says_that_the_models_read_english(pipeline, name):
    paper = pipeline.index.paper(name.replace(" ", "-"))
    for facet in (*Facet, None):
        found = {hit.paper_id for hit in pipeline.search(Query(paper, facet), 10)}
        assert found == {each.replace(" ", "-") for each in PAPERS} - {paper.paper_id}
    query = Query.by_facets(paper, {Facet.METHOD: 1, Facet.RESULT: 1})
    text = " ".join(to_table(pipeline.index.paper, query, pipeline.search(query, 3), 100).split())
    assert ("does not look like English, which the models read" in text) == (name in ("chinese", "french"))


@pytest.mark.parametrize(
    ("text", "is_english"),
    [
        ("Wir zählen die Fische in dem See, und das Netz ist von Hand gemacht.", False),
        ("Contamos los peces del lago con una red que hicimos para ellos.", False),
        ("Мы считаем рыб.", False),
        ("🐟🐟 1", False),
        ("Graph neural networks, contrastive learning, molecular property prediction", True),
        ("We study $\\alpha$-divergences à la Rényi and Poincaré inequalities; der Waals forces.", True),
        ("El Niño and La Niña are oscillations of the Pacific that affect climate.", True),
        ("BERT", True),
    ],
)
def test_languages_are_told_by_letters_and_frequent_words(text, is_english):
    assert looks_english(text) is is_english
