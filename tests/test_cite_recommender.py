"""Recommendations over a small index: scores worked by hand, what is left out, changes of the index."""

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import support.citing
from support.citing import CITING, NO_YEAR, index_of, mean_max, model_of, papers_that_cite
from support.live import corpus
from support.searching import ids

from qbe import Aspect, CiteConfig, CiteRequest, Index, Paper, Recommender, paper_from_text
from qbe.cite.recommender import write_model
from qbe.cite.scoring import NEAR, NEAREST, Evidence, FeatureSet
from qbe.errors import ModelError, PaperNotFoundError, UsageError
from qbe.index.update import append_papers, delete_papers
from qbe.models.encoding import EncodedAspect
from qbe.search.filters import PaperFilter, year_of
from qbe.search.first_stages import BM25Stage, DenseStage
from qbe.util.work import Workers

QUERY, SEEDS, EXCLUDED = "s031", ("s003", "s020"), ("s012",)
NOT_YOUNGER = PaperFilter(before="query")


@pytest.fixture(scope="module")
def citing(papers) -> list[Paper]:
    return papers_that_cite(papers)


@pytest.fixture(scope="module")
def index(citing_index) -> Index:
    return citing_index


@pytest.fixture(scope="module")
def config(citing_model) -> CiteConfig:
    return CiteConfig(model=str(citing_model))


@pytest.fixture(scope="module")
def opened(index, config):
    kept: dict[str, Recommender] = {}

    def open_once(**parameters: object) -> Recommender:
        key = repr(parameters)
        if key not in kept:
            kept[key] = Recommender.open(index, replace(config, **parameters))
        return kept[key]

    yield open_once
    for recommender in kept.values():
        recommender.close()


def z(values: Mapping[str, float]) -> dict[str, float]:
    numbers = list(values.values())
    mean, deviation = np.mean(numbers), np.std(numbers)
    return {name: (value - mean) / deviation for name, value in values.items()}


def components(index: Index, paper: Paper) -> dict[str, dict[str, float]]:
    """What BM25, the dense stage and late interaction say of each paper of the index, the query's too."""
    names = [each.paper_id for each in index]
    query = EncodedAspect.of(Aspect(paper), index.vectors(paper))
    with Workers() as workers:
        (hits,) = BM25Stage(index.reader, workers, "abstract").batch_search([query], len(names), [names])
        dense = DenseStage(index.reader, workers).scores(query, np.arange(len(names)), None)
    found = {"bm25": {hit.paper_id: hit.score for hit in hits}}
    found |= {name: dict(zip(names, dense[name].tolist(), strict=True)) for name in ("sentences", "whole")}
    found["citation"] = {name: late_interaction(index, paper, name) for name in names}
    return found


def late_interaction(index: Index, paper: Paper, name: str) -> float:
    own, stored = index.vectors(paper), index.vectors(index.paper(name))
    whole = mean_max(own.whole[None], stored.whole[None])
    forward = mean_max(own.sentences, stored.sentences)
    return forward + 2 * whole + 0.5 * mean_max(stored.sentences, own.sentences)


def by_hand(
    index: Index, paper: Paper, known: FeatureSet, left_out: set[str], younger: bool
) -> dict[str, float]:
    """The score of each paper of the index that may be recommended, by the definitions of the features."""
    years = {each.paper_id: year_of(each.metadata) for each in index}
    year = year_of(paper.metadata)
    among = {name for name, its in years.items() if younger or (its is not None and its <= year)}
    scores = {
        name: {each: score for each, score in part.items() if each in among}
        for name, part in components(index, paper).items()
    }
    bm25, citation = z(scores["bm25"]), z(scores["citation"])
    first = {name: (bm25[name] + 2 * citation[name]) / 3 for name in among}
    names = sorted(among - left_out, key=lambda name: (-first[name], name))
    features = {key: z({name: part[name] for name in names}) for key, part in scores.items()}
    ages = {name: math.nan if years[name] is None else min(max(year - years[name], 0), 20) for name in names}
    features["age"] = {name: age / 10 for name, age in ages.items()}
    features["recency"] = {name: -math.log1p(age) for name, age in ages.items()}
    features["new"] = {name: age if math.isnan(age) else float(age <= 1) for name, age in ages.items()}
    cites = {each.paper_id: set(each.metadata.get("cites", ())) for each in index}
    asked = {name for name, its in years.items() if its is not None and its < year} - {paper.paper_id}

    def each(feature: str, value: Callable[[str], float], scale: Callable = dict) -> None:
        features[feature] = scale({name: float(value(name)) for name in names})

    if known.links:
        near, nearest = (weights(first, [i for i in names if i in asked], n) for n in (NEAR, NEAREST))
        each("citations", lambda name: math.log1p(sum(name in cites[other] for other in asked)))
        each("neighbours", lambda name: sum(near[other] for other in near if name in cites[other]) ** 0.5)
        each("cited_neighbours", lambda name: sum(nearest[i] for i in nearest if i in cites[name]) ** 0.5)
    if known.seeds:
        whole = {name: index.vectors(index.paper(name)).whole[None] for name in [*names, *SEEDS]}
        cosines = {name: [mean_max(whole[name], whole[seed]) for seed in SEEDS] for name in names}
        each("seed_mean", lambda name: float(np.mean(cosines[name])), z)
        each("seed_best", lambda name: max(cosines[name]), z)
        seeds = [index.paper(seed) for seed in SEEDS]
        by_seed = {name: sorted(late_interaction(index, seed, name) for seed in seeds) for name in names}
        each("seed_sentences_mean", lambda name: float(np.mean(by_seed[name])), z)
        each("seed_sentences_best", lambda name: by_seed[name][-1], z)
        each("seed_sentences_two", lambda name: float(np.mean(by_seed[name][-2:])), z)
    if known.links and known.seeds:
        citing = {name: {other for other in asked if name in cites[other]} for name in cites}
        inside = {name: (cites[name] & set(cites)) - {name} for name in cites}
        beside = [inside[other] for seed in SEEDS for other in citing[seed]]
        walks = {name: sum((name in cited) / len(cited) for cited in beside) for name in names}

        def cosine(name: str, seed: str) -> float:
            both = citing[name], citing[seed]
            return len(both[0] & both[1]) / math.sqrt(len(both[0]) * len(both[1])) if all(both) else 0.0

        together = {name: [{name, seed} <= cites[i] for i in asked for seed in SEEDS] for name in names}
        each("cocitations", lambda name: math.log1p(sum(together[name])))
        each("cocitation_cosines", lambda name: math.sqrt(sum(cosine(name, seed) for seed in SEEDS)))
        each("seed_walks", lambda name: math.sqrt(walks[name]))
        each("rare_seed_walks", lambda name: math.sqrt(walks[name] / math.sqrt(max(len(citing[name]), 1))))
        each("cited_by_seeds", lambda name: math.sqrt(np.mean([name in cites[seed] for seed in SEEDS])))
        each("citing_seeds", lambda name: math.sqrt(np.mean([seed in cites[name] for seed in SEEDS])))
    head = support.citing.random_heads()[known.key]
    judged = {}
    for name in names:
        row = np.array([features[feature][name] for feature in known.names])
        inputs = [0.0 if math.isnan(each) else each for each in (row - head.mean) / head.scale]
        hidden = np.tanh(np.array(inputs) @ head.hidden + head.bias)
        judged[name] = float(np.dot(inputs, head.direct) + hidden @ head.out)
    return judged


def weights(first: Mapping[str, float], names: Sequence[str], count: int) -> dict[str, float]:
    chosen = names[: count + 1]
    above = {name: first[name] - first[chosen[-1]] for name in chosen}
    total = sum(above.values())
    return {name: each / total for name, each in above.items()} if total else above


@pytest.mark.parametrize("younger", [True, False])
@pytest.mark.parametrize("seeds", [False, True])
@pytest.mark.parametrize("links", [False, True])
def test_scores_are_those_of_the_definitions(opened, index, links, seeds, younger):
    recommender = opened(links=links, filter=None if younger else NOT_YOUNGER)
    cited, excluded = (SEEDS, EXCLUDED) if seeds else ((), ())
    paper = index.paper(QUERY)
    hits = recommender.recommend(paper, 100, cited=cited, exclude=excluded, matches=False)
    expected = by_hand(index, paper, FeatureSet(links, seeds), {QUERY, *cited, *excluded}, younger)
    assert {hit.paper_id: hit.score for hit in hits} == pytest.approx(expected, abs=1e-3)
    assert ids(hits) == sorted(expected, key=lambda name: -expected[name])


@pytest.mark.parametrize("seeds", [(), SEEDS])
def test_links_propose_what_the_first_stage_did_not_find(opened, index, seeds):
    """What the three candidates and the seeds cite; who cites the seeds, and what they cite beside them."""
    paper = index.paper(QUERY)
    first = ids(opened(depth=3, links=False).recommend(paper, 100, cited=seeds))
    assert len(first) == 3
    cites = {each.paper_id: set(each.metadata.get("cites", ())) for each in index}
    asked = {each.paper_id for each in index if (year_of(each.metadata) or 9999) < year_of(paper.metadata)}
    citing = {name for name in asked if cites[name] & set(seeds)}
    proposed = citing.union(*(cites[name] for name in [*(asked & set(first)), *seeds, *citing]))
    found = ids(opened(depth=3).recommend(paper, 100, cited=seeds))
    assert sorted(found) == sorted((proposed | set(first)) - {"absent", QUERY, *seeds})
    assert len(found) > 3


def test_own_paper_what_it_cited_and_what_is_excluded_are_not_recommended(opened, index):
    hits = opened().recommend(index.paper(QUERY), 100, cited=SEEDS, exclude=EXCLUDED)
    assert set(ids(hits)) == {paper.paper_id for paper in index} - {QUERY, *SEEDS, *EXCLUDED}
    draft = replace(index.paper(QUERY), title="Another title")  # is that paper however its text has changed
    assert QUERY not in ids(opened().recommend(draft, 100))
    assert QUERY not in ids(opened().recommend(index.paper(QUERY), 100, cited=(QUERY, *SEEDS, *SEEDS)))


def test_younger_papers_and_those_without_a_year_do_not_pass(opened, index, citing):
    paper = index.paper(QUERY)
    recommender = opened(filter=NOT_YOUNGER)
    hits = recommender.recommend(paper, 100)
    years = [index.paper(hit.paper_id).metadata.get("year") for hit in hits]
    assert max(years) == paper.metadata["year"] == 2007
    assert len(hits) == 8 * 4 - 2
    passing = recommender.selected(paper)
    assert (passing.papers, passing.total, passing.unknown_year) == (31, 48, 1)
    assert opened(filter=PaperFilter(before=1900)).recommend(paper, cited=SEEDS) == []
    proposed = opened(depth=3, filter=PaperFilter(before=2003)).recommend(paper, 100, cited=SEEDS)
    assert len(proposed) > 3  # by links, too
    assert all(int(index.paper(hit.paper_id).metadata["year"]) <= 2003 for hit in proposed)


def test_a_query_without_a_year(opened, index, citing):
    paper = citing[NO_YEAR]
    assert len(opened().recommend(paper, 100)) == 47
    with pytest.raises(UsageError, match="expected a year of the query's paper s011 for `before`"):
        opened(filter=NOT_YOUNGER).recommend(paper)


def test_papers_of_the_future_are_not_asked_whom_they_cite(opened, index):
    oldest = replace(index.paper(QUERY), paper_id="draft", metadata={"year": 2000})
    hits = opened().recommend(oldest, 100, matches=False)
    expected = by_hand(index, oldest, FeatureSet(True, False), set(), True)
    assert {hit.paper_id: hit.score for hit in hits} == pytest.approx(expected, abs=1e-3)
    assert len(opened(depth=3).recommend(oldest, 100)) == 3


@pytest.mark.parametrize(
    "parameters",
    [{}, {"depth": 10}, {"depth": 10, "filter": PaperFilter(before=2008)}, {"filter": NOT_YOUNGER}],
)
def test_many_at_a_time_are_each_as_alone(opened, index, parameters):
    recommender = opened(**parameters)
    draft = paper_from_text("Labels for cities", "Cities have few labels. We ask drivers for them.")
    requests = [
        *(CiteRequest(index.paper(QUERY)), CiteRequest(index.paper("s040"), SEEDS), CiteRequest(draft)),
        CiteRequest(draft, ("s001", "s002", "s003", "s004", "s005", "s006"), EXCLUDED),
    ]
    if parameters == {"filter": NOT_YOUNGER}:  # by the year of each query
        requests = [CiteRequest(index.paper(name)) for name in ("s020", QUERY, "s020")]
    alone = [recommender.recommend(one.paper, 9, cited=one.cited, exclude=one.excluded) for one in requests]
    assert recommender.batch_recommend(requests, 9) == alone
    assert recommender.batch_recommend([], 9) == []


def test_a_filter_of_a_call_gives_what_that_of_a_configuration_gives(opened, index):
    paper = index.paper(QUERY)
    plain, filtered = opened(), opened(filter=NOT_YOUNGER)
    expected = filtered.recommend(paper, 50)
    assert plain.recommend(paper, 50, filter=NOT_YOUNGER) == expected != plain.recommend(paper, 50)
    assert plain.selected(paper, NOT_YOUNGER)[1:] == filtered.selected(paper)[1:] != plain.selected(paper)[1:]
    with pytest.raises(TypeError, match="filter"):
        plain.recommend(paper, filter="2015-")


def test_matches_are_pairs_of_sentences(opened, index):
    paper = index.paper(QUERY)
    (hit,) = opened().recommend(paper, 1)
    best = hit.matches[0]
    own, other = (index.vectors(each).sentences for each in (paper, index.paper(hit.paper_id)))
    assert best.score == pytest.approx(mean_max(own[[best.query_position]], other[[best.position]]), abs=1e-3)
    (bare,) = opened().recommend(paper, 1, matches=False)
    assert (bare.paper_id, bare.score, bare.matches) == (hit.paper_id, hit.score, ())


@pytest.fixture
def live(tmp_path, citing_folder) -> Path:
    return Path(shutil.copytree(citing_folder, tmp_path / "index"))


def test_papers_appended_are_found_after_a_refresh(live, config, tmp_path, papers):
    with Index(live) as index, Recommender.open(index, config) as recommender:
        paper = index.paper(QUERY)
        before = recommender.recommend(paper, 100)
        new = replace(papers[100], metadata={"year": 2006, "cites": ["s003"]})
        append_papers(live, [corpus(tmp_path, "new", [new])])
        assert recommender.recommend(paper, 100) == before
        index.refresh()
        assert set(ids(recommender.recommend(paper, 100))) == {*ids(before), new.paper_id}


def test_a_deleted_paper_cites_nobody(live, config, tmp_path, citing, tiny_encoder):
    gone = [paper.paper_id for paper in citing if "s012" in paper.metadata.get("cites", ())]
    delete_papers(live, gone)
    rest = [paper for paper in citing if paper.paper_id not in gone]
    found = []
    for path in (live, index_of(tmp_path / "rebuilt", rest, tiny_encoder)):
        with Index(path) as index, Recommender.open(index, config) as recommender:
            hits = recommender.recommend(index.paper("s040"), 100, cited=["s012"])
            found.append({hit.paper_id: hit.score for hit in hits})
    # Lucene counts the words of deleted papers until the index is compacted, which moves scores a little.
    assert found[0].keys() == found[1].keys()


def test_an_index_without_links_is_judged_by_texts(tmp_path, config, citing, tiny_encoder, opened, index):
    folder = index_of(tmp_path / "unlinked", support.citing.without_links(citing), tiny_encoder)
    with Index(folder) as other, Recommender.open(other, config) as recommender:
        paper = other.paper(QUERY)
        for cited in ((), SEEDS):
            expected = opened(links=False).recommend(paper, 10, cited=cited)
            assert recommender.recommend(paper, 10, cited=cited) == expected


def test_evidence_is_read_from_metadata(index, citing):
    evidence = Evidence(index.reader)
    np.testing.assert_array_equal(evidence.years, [year_of(paper.metadata) or math.nan for paper in citing])
    named = sum(len(paper.metadata.get("cites", ())) for paper in citing)
    assert evidence.count == named - CITING  # each of which names one that the index lacks
    rows = np.array([0, NO_YEAR, 20])
    np.testing.assert_array_equal(evidence.ages(rows, 2003), [3, math.nan, -2])
    assert np.isnan(evidence.ages(rows, None)).all()
    assert np.flatnonzero(evidence.citing_papers(2001, 2)).tolist() == [0, 1, 3]
    assert np.flatnonzero(~evidence.citing_papers(None, 2)).tolist() == [2]
    assert evidence.citing_papers(None, None).all()


def test_vectors_of_another_encoder_than_the_models(tmp_path, index):
    write_model(tmp_path, model_of({"name": "another", "weights_sha256": "9f86d081"}))
    with pytest.raises(ModelError, match=r"expected vectors of another, .* give it as `model`$"):
        Recommender.open(index, CiteConfig(model=str(tmp_path)))


@pytest.mark.parametrize("name", ["cited", "exclude"])
def test_ids_that_the_index_lacks(opened, index, name):
    with pytest.raises(PaperNotFoundError, match="`cited` and `exclude`, found 'absent'"):
        opened().recommend(index.paper(QUERY), **{name: ["s001", "absent"]})


def test_configurations_refuse_what_is_not_possible():
    with pytest.raises(UsageError, match="expected `query` of abstract, title, keyterms, found 'words'"):
        CiteConfig(query="words")
