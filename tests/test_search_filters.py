"""Filters: what passes, and that filtered rankings are the exhaustive ones without the papers that do not."""

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.factories import EXACT, FACTORIES, GRAPH, vectors_apart
from support.live import corpus
from support.messages import messages_of
from support.searching import first_stage, ids

from qbe import Aspect, BuildSettings, Facet, Index, Paper, Query, Sentence, UsageError
from qbe.cli import common as _cli
from qbe.cli.search import main
from qbe.index import faiss as faiss_candidates
from qbe.index.build import build
from qbe.index.faiss import CandidateSource, FaissIndex, write_faiss
from qbe.index.papers import Papers, write_papers
from qbe.index.store import Files, resolve
from qbe.index.vectors import Selection
from qbe.models.encoding import EncodedAspect
from qbe.search.filters import FilterCache, PaperFilter, parse_where, parse_years, year_of
from qbe.search.first_stages import BM25Stage, DenseStage, FusedStage
from qbe.util.work import Workers

STAGES = ("bm25", "dense", "fused")
TIES = 2e-4  # Anserini lowers each of several equal scores by a millionth, among those that were found


def metadata_of(number: int) -> dict[str, object]:
    """Of every tenth paper no year is known; names and categories repeat in cycles that do not agree."""
    author = ["Jürgen Müller", "Søren O'Neill", "Ana Müller-Luz", "Li Wei"][number % 4]
    metadata: dict[str, object] = {
        "authors": [author, "Donald E. Knuth"],
        "categories": [["cs.CL"], ["cs.LG", "stat.ML"], ["math.CO"], ["cs"], ["csx.CL"]][number % 5],
        "keys": [number % 3, "x"],
        "other": "x",
    }
    dated = {"year": 2000 + number % 20} if number % 2 else {"date": f"{2000 + number % 20}-05"}
    return metadata | (dated if number % 10 else {})


@pytest.fixture(scope="module")
def catalogue(papers) -> list[Paper]:
    return [replace(paper, metadata=metadata_of(number)) for number, paper in enumerate(papers)]


@pytest.fixture(scope="module")
def plain(tmp_path_factory, catalogue, tiny_encoder) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    build(folder / "index", [corpus(folder, "all", catalogue)], BuildSettings(encoder=str(tiny_encoder)))
    return folder / "index"


@pytest.fixture(scope="module")
def index(plain):
    with Index(plain, threads=2) as opened:
        yield opened


def passing_ids(papers: list[Paper], paper_filter: PaperFilter) -> set[str]:
    kept = [paper for paper in papers if paper_filter.keeps(paper.metadata)]
    if paper_filter.years or paper_filter.before:
        first, last = paper_filter.years or (None, None)
        years = range(first or 1, min(last or 9999, paper_filter.before or 9999) + 1)
        kept = [paper for paper in kept if year_of(paper.metadata) in years]
    return {paper.paper_id for paper in kept}


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("year", {2019: 2019, "2019": 2019, "2019 (in print)": 2019, 987: 987}),
        ("year", dict.fromkeys(("12/05/2019", "in print", 20190, 0), None)),
        ("date", {"2018-03-01": 2018, "20180301": 2018, " 2018/03": 2018}),
        ("date", dict.fromkeys(("12/05/2019", "5 May 2019", "12052019", "20190"), None)),
    ],
)
def test_the_year_of_a_paper(field, values):
    for value, year in values.items():
        assert year_of({field: value}) == year
        if field == "date":  # of which a paper shows the year alone
            shown = Paper("p", "On stone", (), metadata={field: value}).year
            assert shown == (None if year is None else str(year))
    assert (year_of({"year": 2019.0}), year_of({"year": [2019]}), year_of({})) == (2019, None, None)
    assert year_of({"year": 2019, "date": "2018"}) == 2019
    assert year_of({"year": None, "date": "1999"}) == 1999
    for nothing in ({}, {"year": "None"}, {"year": "null"}, {"year": " "}, {"year": None}):
        assert Paper("p", "On stone", (), metadata=nothing).year is None


CATEGORIES = [  # as when a corpus is read, and by prefix
    *(("cs", ["cs.CL"], True), ("cs", ["cs"], True), ("cs", ["csx.CL"], False), ("cs", ["math.cs"], False)),
    *(("cs.*", ["math.CO", "cs.CL"], True), ("cs.CL", ["cs.CL"], True), ("cs.CL", ["cs.CLX"], False)),
    *(("*.CL", ["cs.CL"], True), ("cs.CL", "math.CO cs.CL", True), ("cs", None, False), ("cs", [], False)),
    ("Computer Science", ["Computer Science"], True),
]

KNUTH, BOTH = ["Donald E. Knuth"], ["Ada Lovelace", "Donald E. Knuth"]
PARTS = [{"given": "Donald", "family": "Knuth", "affiliation": "Stanford"}]
AUTHORS = [  # by whole words of one name
    *(("knuth", BOTH, True), ("Donald Knuth", KNUTH, True), ("Knuth, Donald", KNUTH, True)),
    *(("Donald Lovelace", BOTH, False), ("Knut", KNUTH, False), ("knuth", None, False), ("knuth", 3, False)),
    *(("muller", ["Jürgen Müller"], True), ("MÜLLER", ["Jurgen Muller"], True)),
    *(("soren", ["Søren Kierkegaard"], True), ("Łukasz", ["Lukasz Kaiser"], True), ("李", ["李 伟"], True)),
    *(("o'neill", ["Shaun O\u2019Neill"], True), ("oneill", ["Shaun O'Neill"], True)),
    *(("Jean Pierre", ["Jean-Pierre Serre"], True), ("knuth", PARTS, True), ("stanford", PARTS, False)),
    *((name, "Ileana Streinu, Louis Theran", name[0] == "l") for name in ("louis theran", "streinu theran")),
    ("streinu theran", "Ileana Streinu and Louis Theran", False),
    ("ileana streinu", "Streinu, Ileana; Theran, Louis", True),
]

VALUES = [  # as text
    *(("SIGIR", "SIGIR", True), ("SIGIR", "SIGIR 2019", False), ("sigir", "SIGIR", False), ("3", 3, True)),
    *(("3", [1, 3], True), ("3.5", 3.5, True), ("true", True, True), ("True", True, False)),
    *(("1", True, False), ("", "", True), ("x", None, False), ("x", {"x": "x"}, False)),
    ("x", [["x"]], False),
]


def test_categories_authors_and_values_of_a_paper():
    for name, cases in (("categories", CATEGORIES), ("authors", AUTHORS)):
        for wanted, found, passes in cases:
            assert PaperFilter(**{name: (wanted,)}).keeps({name: found}) is passes, (wanted, found)
    for value, stored, passes in VALUES:
        assert PaperFilter(where={"key": value}).keeps({"key": stored}) is passes, (value, stored)
        assert not PaperFilter(where={"key": value}).keeps({"other": stored})


def test_what_a_library_calls_its_papers_is_compared_without_case():
    for key, passes in (("tags", True), ("collections", True), ("venue", False)):
        for found in ("NLP", ["x", "NLP"]):
            kept = [PaperFilter(where={key: name}).keeps({key: found}) for name in ("nlp", "NLP", "nl")]
            assert kept == [passes, True, False]
    assert PaperFilter(where={"tags": "3"}).keeps({"tags": [3]})


def test_a_key_that_no_paper_has_is_named(index):
    with first_stage(index, "bm25") as pipeline:
        for where, told in (({"key": "2"}, "'key'"), ({"keys": "2", "venues": "x"}, "'venues'")):
            with pytest.raises(UsageError, match=rf"no paper of the index has {told}, a key of"):
                pipeline.search(Query(index.paper("s001")), 10, filter=PaperFilter(where=where))
        assert pipeline.search(Query(index.paper("s001")), 10, filter=PaperFilter(where={"keys": "?"})) == []


def test_one_of_the_authors_or_categories_and_all_of_the_values_as_they_were_given():
    paper = {"authors": ["Ada Lovelace"], "categories": ["cs.CL"], "venue": "ACL", "kind": "long"}
    assert PaperFilter(authors=("Knuth", "Ada"), categories=("math", "cs")).keeps(paper)
    assert PaperFilter(where={"venue": "ACL", "kind": "long"}).keeps(paper)
    assert not PaperFilter(where={"venue": "ACL", "kind": "short"}).keeps(paper)
    assert not PaperFilter(authors=("Knuth",), categories=("cs",)).keeps(paper)
    assert PaperFilter().keeps({})
    where = {"venue": "ACL"}
    paper_filter = PaperFilter(where=where, categories=["cs"])
    where["venue"] = "SIGIR"
    assert paper_filter.record() == {"categories": ["cs"], "where": {"venue": "ACL"}}


YEARS = ((2019, 2015), (None, None), (0, 2015), 2015, ("2015", None))
FIELDS = [{"years": years} for years in YEARS] + [{"before": each} for each in (10_000, "now", True)]
FIELDS += [{"authors": ("?!",)}, {"authors": (3,)}, {"categories": (" ",)}, {"categories": "cs.CL"}]
FIELDS += [{"where": [("a", "b")]}, {"where": {"year": 2019}}]
TEXTS = ("", "-", "15a", "2015-2019-2020", "20152019", "2015 2019", "20159")
WRONG = [partial(PaperFilter, **fields) for fields in FIELDS] + [partial(parse_years, text) for text in TEXTS]
WRONG += [partial(parse_where, texts) for texts in (["venue"], ["=SIGIR"], ["a=1", "a=2"])]


def test_impossible_conditions_and_other_types_are_refused(told):
    told("filters", messages_of(WRONG, (UsageError, TypeError)))


TEXT = st.text(max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
TEXT |= st.sampled_from(['"metadata": ', '{"metadata": {}', "metadata", '\\"'])
METADATA = st.dictionaries(TEXT | st.sampled_from(["metadata"]), JSON, max_size=3)


@settings(max_examples=50)
@given(st.lists(st.tuples(TEXT, METADATA, st.booleans()), max_size=7))
def test_metadata_is_read_as_it_was_written(records):
    papers = []
    for number, (text, found, split) in enumerate(records):
        offsets = ((0, len(text)),) if split else None
        papers.append(Paper(str(number), text, (Sentence(text),), metadata=found, offsets=offsets))
    with tempfile.TemporaryDirectory() as folder:
        write_papers(Path(folder), papers)
        headings = list(Papers(Files(Path(folder))).read_headings())
    assert headings == [(paper.paper_id, paper.title, paper.metadata) for paper in papers]


ALL = {"years": (2001, None), "categories": ("cs.*",), "authors": ("O'Neill", "Li"), "where": {"keys": "x"}}
FILTERS = {
    "years": PaperFilter(years=(2005, 2012)),
    "before": PaperFilter(before=2003),
    "one year": PaperFilter(years=(2007, 2007)),
    "from a year": PaperFilter(years=(2010, None)),
    "to a year": PaperFilter(years=(None, 2004)),
    "both conditions": PaperFilter(years=(2005, 2012), before=2008),
    "no year": PaperFilter(years=(2010, None), before=2008),
    "category": PaperFilter(categories=("cs",)),
    "author": PaperFilter(authors=("muller",)),
    "value": PaperFilter(where={"keys": "2"}),
    "all": PaperFilter(**ALL),
    "nothing": PaperFilter(categories=("old",)),
    "everything": PaperFilter(where={"keys": "x"}),
}


@pytest.mark.parametrize("name", FILTERS)
def test_what_passes_in_an_index(index, catalogue, name):
    expected = passing_ids(catalogue, FILTERS[name])
    found = FilterCache(index.reader).of(FILTERS[name])
    assert (found.papers, found.total) == (len(expected), 128)
    assert (found.selection is None) == (name == "everything")
    if found.selection is not None:
        assert {index.papers.ids[row] for row in found.selection.rows} == expected
        assert all(index.papers.find(paper_id) in found.selection.rows for paper_id in expected)
    undated = passing_ids(catalogue, replace(FILTERS[name], years=None, before=None)) - _dated(catalogue)
    assert found.unknown_year == (len(undated) if (FILTERS[name].years or FILTERS[name].before) else 0)


def _dated(papers: list[Paper]) -> set[str]:
    return {paper.paper_id for paper in papers if year_of(paper.metadata)}


def test_metadata_is_read_once_for_all_years_and_once_a_filter(plain, monkeypatch):
    reads = []
    read = Papers.read_metadata
    monkeypatch.setattr(Papers, "read_metadata", lambda store: reads.append(store) or read(store))
    with Index(plain) as opened:
        papers = FilterCache(opened.reader)
        for year in (2003, 2004, 2003, 2005):
            papers.of(PaperFilter(before=year))
        assert len(reads) == 1
        for year in (2003, 2004):
            papers.of(PaperFilter(categories=("cs",), before=year))
        assert len(reads) == 2


def stage_of(name: str, reader, **parameters):
    workers = Workers(2)
    if name == "bm25":
        return BM25Stage(reader, workers)
    if name == "dense":
        return DenseStage(reader, workers)
    weights = dict.fromkeys(("bm25", "sentences", "facet", "whole"), 1.0)
    stages = [BM25Stage(reader, workers), DenseStage(reader, workers)]
    return FusedStage(reader, workers, stages, weights, **parameters)


@pytest.fixture(scope="module")
def stages(index):
    """The reader of the index, its first stages, and some encoded queries."""
    reader = index.reader
    names = [("s005", Facet.METHOD), ("s040", None), ("s081", Facet.RESULT)]
    queries = [Aspect(index.paper(name), facet) for name, facet in names]
    encoded = [EncodedAspect.of(query, index.vectors(query.paper)) for query in queries]
    yield reader, {name: stage_of(name, reader) for name in STAGES}, encoded


def drawn(reader, seed: int, share: float) -> Selection:
    """Papers drawn at random, none that is deleted."""
    rows = [reader.papers.row(paper.paper_id) for paper in reader]
    mask = np.zeros(len(reader.papers.ids), np.bool_)
    mask[rows] = np.random.default_rng(seed).random(len(rows)) < share
    if not mask.any():
        mask[rows[seed % len(rows)]] = True
    return Selection(mask)


@pytest.mark.parametrize("few_sentences", [faiss_candidates.FEW_SENTENCES, 0])
@pytest.mark.parametrize("name", ["bm25", "dense"])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32), share=st.floats(0, 1), k=st.integers(1, 130))
@pytest.mark.slow
def test_a_filtered_ranking_is_the_exhaustive_one_without_the_others(
    stages, name, few_sentences, seed, share, k
):
    reader, opened, encoded = stages
    selection = drawn(reader, seed, share)
    wanted = {reader.papers.ids[row] for row in selection.rows}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faiss_candidates, "FEW_SENTENCES", few_sentences)
        filtered = opened[name].batch_search(encoded, k, [None] * len(encoded), selection)
    whole = opened[name].batch_search(encoded, 10**6, [None] * len(encoded))
    for found, all_hits in zip(filtered, whole, strict=True):
        expected = [hit for hit in all_hits if hit.paper_id in wanted][:k]
        assert ids(found) == ids(expected)
        if name == "dense":
            assert found == expected
            assert len(found) == min(k, len(selection))
        assert [hit.score for hit in found] == pytest.approx([hit.score for hit in expected], abs=TIES)


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32), share=st.floats(0, 1))
def test_fused_scores_are_normalized_over_what_passes(stages, seed, share):
    reader, opened, encoded = stages
    selection = drawn(reader, seed, share)
    pool = [reader.papers.ids[row] for row in selection.rows]
    filtered = opened["fused"].batch_search(encoded, 10**6, [None] * len(encoded), selection)
    pooled = opened["fused"].batch_search(encoded, 10**6, [pool] * len(encoded))
    for found, expected in zip(filtered, pooled, strict=True):
        assert found == sorted(found, key=lambda hit: (-hit.score, hit.paper_id))
        scores = {hit.paper_id: hit.score for hit in found}
        assert scores == pytest.approx({hit.paper_id: hit.score for hit in expected}, abs=1e-3)


def test_shallow_fusion_brings_as_many_as_are_asked_for(stages):
    reader, _, encoded = stages
    selection = drawn(reader, 1, 0.4)
    fused = stage_of("fused", reader, depth=2)
    for found in fused.batch_search(encoded, 20, [None] * len(encoded), selection):
        assert len(found) >= 20
        assert {reader.papers.row(hit.paper_id) for hit in found} <= {*selection.rows.tolist()}


@pytest.fixture(scope="module")
def apart(plain) -> np.ndarray:
    return vectors_apart(plain)


@pytest.fixture(scope="module")
def starts(index) -> np.ndarray:
    return index.layout.starts


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Write vectors; return a function that opens their index with other parameters."""

    def write(vectors, factory: str):
        made, folder = resolve(factory, *vectors.shape), tmp_path_factory.mktemp("faiss")
        write_faiss(folder, vectors, "cosine", made)
        return lambda **options: FaissIndex(Files(folder), 1, replace(made, **options))

    return write


@pytest.fixture(scope="module", params=FACTORIES)
def kind(request, apart, written):
    return request.param, written(apart, request.param)


@pytest.mark.slow
def test_every_kind_brings_enough_papers_that_pass(apart, starts, monkeypatch, kind):
    """Few sentences are looked up, in one list: then more, until there are enough papers. With all lists read
    and all sentences looked up, all that pass are found; the nearest in any case.
    """
    monkeypatch.setattr(faiss_candidates, "FEW_SENTENCES", 0)
    (factory, opened), random = kind, np.random.default_rng(2)
    narrow, all_lists = ({"nprobe": 1}, {"nprobe": 64}) if "IVF" in factory else ({}, {})
    source = CandidateSource(opened(depth=1, **narrow), starts)
    for share in (0.05, 0.2, 0.5, 0.9, 0.99, 1.0):
        selection = Selection(random.random(len(starts) - 1) < share)
        queries = [apart[random.choice(len(apart), 3)].astype(np.float32) for _ in range(4)]
        for k in (1, 5, 25, 60, 200):
            for rows in source.nearest(queries, k, selection):
                assert len(rows) >= min(k, len(selection))
                assert (np.diff(rows) > 0).all()
                assert selection.mask[rows].all()
    source = CandidateSource(opened(**all_lists), starts)
    for _ in range(5):
        selection = Selection(random.random(len(starts) - 1) < 0.5)
        row = int(random.choice(selection.rows))
        (rows,) = source.nearest([apart[starts[row] : starts[row + 1]].astype(np.float32)], 5, selection)
        assert row in rows
        if factory != GRAPH:
            assert (rows == selection.rows).all()


def test_few_papers_are_all_candidates_and_nothing_is_looked_up(apart, starts, written, monkeypatch):
    segment = written(apart, EXACT)(depth=1)
    source, selection = CandidateSource(segment, starts), Selection(np.arange(128) % 3 == 0)
    monkeypatch.setattr(segment, "search", None)
    first, second = source.nearest([apart[:1].astype(np.float32), apart[:2].astype(np.float32)], 1, selection)
    assert first.tolist() == second.tolist() == list(range(0, 128, 3))


@pytest.mark.parametrize("stage", STAGES)
def test_pools_and_queries_of_several_aspects_are_restricted(index, catalogue, stage):
    pool = [f"s{number:03}" for number in range(20, 60)]
    allowed = passing_ids(catalogue, FILTERS["category"])
    pipeline, query = first_stage(index, stage), Query(index.paper("s024"), Facet.METHOD)
    found = pipeline.search(query, 100, pool, filter=FILTERS["category"])
    assert found == pipeline.search(query, 100, [name for name in pool if name in allowed])
    assert {*ids(found)} == ({*pool} & allowed) - {"s024"}
    assert ids(pipeline.explain(query, 100, pool, filter=FILTERS["category"]).hits) == ids(found)
    assert pipeline.search(query, 128, filter=PaperFilter()) == pipeline.search(query, 128)
    unlike = Aspect(index.paper("s002"), Facet.BACKGROUND, weight=-0.5)
    several = Query.of(Aspect(index.paper("s001"), Facet.METHOD), unlike)
    allowed = passing_ids(catalogue, FILTERS["years"]) - {"s001", "s002"}
    names = {*ids(pipeline.search(several, 128, filter=FILTERS["years"]))}
    assert names == allowed if stage != "bm25" else names <= allowed
    for asked, papers in ((query, pool), (query, None), (several, None)):
        assert pipeline.search(asked, 100, papers, filter=FILTERS["nothing"]) == []  # where nothing passes


@pytest.mark.parametrize("stage", STAGES)
def test_before_the_query_is_of_each_query(index, catalogue, stage):
    queries = [Query(index.paper(name)) for name in ("s002", "s009", "s003", "s019", "s014")]
    pipeline, of_query = first_stage(index, stage), PaperFilter(before="query")
    together = pipeline.batch_search(queries, 40, filter=of_query, matches=False)
    for query, found in zip(queries, together, strict=True):
        year = year_of(query.papers[0].metadata)
        assert found == pipeline.search(query, 40, filter=of_query, matches=False)
        assert found == pipeline.search(query, 40, filter=PaperFilter(before=year), matches=False)
        allowed = passing_ids(catalogue, PaperFilter(before=year))
        assert found
        assert {*ids(found)} <= allowed
        assert pipeline.session.selected(query, of_query).papers == len(allowed)


def test_the_latest_of_the_papers_asked_for_sets_the_year_and_none_is_refused(index):
    early, late, latest = (index.paper(name) for name in ("s003", "s006", "s020"))
    assert [year_of(paper.metadata) for paper in (early, late, latest)] == [2002, 2005, 2019]
    query = Query.of(Aspect(early), Aspect(late), Aspect(latest, weight=-1.0))
    assert PaperFilter(before="query").of(query).before == 2005
    paper = index.paper("s011")
    assert year_of(paper.metadata) is None
    pipeline = first_stage(index, "dense")
    message = "expected a year of the query's paper s011 for `before` query, found none; give `before` a year"
    with pytest.raises(UsageError, match=message):
        pipeline.search(Query(paper), filter=PaperFilter(before="query"))
    assert pipeline.search(Query(paper), filter=PaperFilter(before=2003))
    with pytest.raises(TypeError, match=r"a qbe\.PaperFilter as `filter`, found str"):
        pipeline.search(Query(paper), filter="2015-")


def test_pipelines_follow_the_index(tmp_path, catalogue, tiny_encoder):
    folder, recent, query = tmp_path / "index", PaperFilter(years=(2015, None)), Query(catalogue[100])
    build(folder, [corpus(tmp_path, "a", catalogue[:40])], BuildSettings(encoder=str(tiny_encoder)))
    with Index(folder) as opened:
        pipelines = {stage: first_stage(opened, stage) for stage in STAGES}
        for papers in (catalogue[:40], catalogue[:80], [catalogue[0], *catalogue[17:80]]):
            if len(papers) == 80:
                opened.append(corpus(tmp_path, "b", catalogue[40:80]))
            elif len(papers) == 64:
                opened.delete(paper.paper_id for paper in catalogue[1:17])
            expected = passing_ids(papers, recent)
            for stage, pipeline in pipelines.items():
                found = {*ids(pipeline.search(query, 200, filter=recent))}
                assert pipeline.session.selected(query, recent).papers == len(expected)
                assert found == expected if stage != "bm25" else found <= expected


@pytest.fixture
def command(plain, capsys):
    def run(*arguments: object) -> tuple[str, str]:
        main(["--index", str(plain), "--first-stage", "dense", "--rerank", "none", *map(str, arguments)])
        printed = capsys.readouterr()
        return printed.out, printed.err

    return run


def ids_of(run: str, query: str = "") -> set[str]:
    return {line.split()[2] for line in run.splitlines() if line.startswith(query)}


OPTIONS_OF: Mapping[str, PaperFilter] = {
    "--year 2005-2012": PaperFilter(years=(2005, 2012)),
    "--year 2015-": PaperFilter(years=(2015, None)),
    "--year -2004": PaperFilter(years=(None, 2004)),
    "--year 2007": PaperFilter(years=(2007, 2007)),
    "--year query": PaperFilter(before=2005),
    "--year 2002-query": PaperFilter(years=(2002, None), before=2005),
    "--category cs.LG --category math": PaperFilter(categories=("cs.LG", "math")),
    "--author luz --author li_wei": PaperFilter(authors=("luz", "li wei")),
    "--where keys=2 --where other=x --year 2002-": PaperFilter(
        years=(2002, None), where={"keys": "2", "other": "x"}
    ),
}


@pytest.mark.parametrize("name", OPTIONS_OF)
def test_options(command, catalogue, name):
    arguments = [part.replace("_", " ") for part in name.split()]
    found, told = command("--paper", "s006", "--hits", 200, *arguments)
    expected = passing_ids(catalogue, OPTIONS_OF[name])
    assert ids_of(found) == expected - {"s006"}
    assert told.startswith(f"qbe search: {len(expected)} of 128 papers pass the filter, fewer than the 200")


def test_only_what_is_of_use_is_told(command):
    assert command("--paper", "s006", "--hits", 5)[1] == ""
    assert command("--paper", "s006", "--hits", 5, "--category", "cs")[1] == ""
    told = command("--paper", "s006", "--hits", 5, "--year", "2001-")[1]
    assert told == "qbe search: 13 papers have no year and do not pass\n"
    _, told = command("--paper", "s006", "--category", "nothing", "--format", "table")
    assert "no paper of the index passes --category nothing" in told
    told = command("--paper", "s006", "--category", "math", "--author", "Lovelace")[1]
    assert told == "qbe search: no paper of the index passes --author Lovelace\n"


def test_topics_and_pools_are_filtered(command, catalogue, tmp_path):
    topics, pools = tmp_path / "topics.tsv", tmp_path / "pools.tsv"
    topics.write_text("query_id\tpaper_id\nq1\ts003\nq2\ts020\n")
    pool = [paper.paper_id for paper in catalogue[40:80]]
    rows = [f"{query}\t{paper_id}\n" for query in ("q1", "q2") for paper_id in pool]
    pools.write_text("query_id\tpaper_id\n" + "".join(rows))
    allowed = {"q1": passing_ids(catalogue, PaperFilter(before=2002)), "q2": _dated(catalogue)}
    found, told = command("--topics", topics, "--year", "query", "--hits", 100)
    assert ids_of(found, "q1") == allowed["q1"] - {"s003"}
    assert ids_of(found, "q2") < allowed["q2"] - {"s020"}
    assert len(ids_of(found, "q2")) == 100
    assert "of a query, fewer than the 100 hits asked for (so of 1 in 2 queries); 13 papers have no" in told
    found, told = command("--topics", topics, "--year", "query", "--pool", pools)
    assert told == "qbe search: 13 papers have no year and do not pass\n"
    assert all(ids_of(found, query) == allowed[query] & {*pool} for query in allowed)


def test_a_topic_without_a_year_is_told_before_anything_is_searched(plain, capsys, tmp_path):
    (tmp_path / "topics.tsv").write_text("query_id\tpaper_id\nq1\ts003\nq2\ts011\n")
    line = f"--index {plain} --first-stage dense --rerank none --year query".split()
    line += ["--topics", str(tmp_path / "topics.tsv"), "--output", str(tmp_path / "run.trec")]
    with pytest.raises(SystemExit) as ended:
        _cli.run("qbe search", main, line)
    told = capsys.readouterr().err
    assert (ended.value.code, told.count("\n")) == (2, 1)
    assert "the query's paper s011" in told
    assert not (tmp_path / "run.trec").exists()
