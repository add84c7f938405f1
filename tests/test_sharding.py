"""Indexes of shards: they find, store and score what one index of all papers does."""

import dataclasses
import shutil
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qbe.index.building.staging import STATE
from support.builds import Job, build_job, build_part_job, dated_job
from support.searching import first_stage

from qbe.cli.index import main
from qbe.cluster.bm25 import (
    FEWEST_FILLERS,
    CorpusStatistics,
    ShardSearch,
    filler_for,
    idf,
    multiplied,
    statistics_of,
)
from qbe.cluster.shard import MovedOnError, Shard
from qbe.errors import IndexBuildError, UsageError
from qbe.index.building import shards
from qbe.index.building.parts import BuildShard
from qbe.index.building.sharding import LEARNED, IndexShards, PartShards, build_shards
from qbe.index.opening import Index
from qbe.index.snapshot import open_snapshot, read_commit
from qbe.index.text_search import BUILDER_LOCK, LuceneSearch, open_postings
from qbe.index.views import PaperStore
from qbe.query import Query
from qbe.search.filters import PaperFilter
from qbe.types import Facet
from qbe.util.files import sha256

pytestmark = pytest.mark.slow

SHARD_PAPERS = 8
SHARDS = 4
LISTS = "IVF8,PQ4x4fs"


@pytest.fixture(autouse=True, scope="module")
def small_shards():
    before, shards.SHARD_PAPERS = shards.SHARD_PAPERS, SHARD_PAPERS
    yield
    shards.SHARD_PAPERS = before


@pytest.fixture(scope="module")
def job(tmp_path_factory, papers, tiny_encoder) -> Job:
    """The sample, with years of publication."""
    folder = tmp_path_factory.mktemp("corpus")
    return dated_job(folder, papers, tiny_encoder, faiss=LISTS, stored="int8")


@pytest.fixture(scope="module")
def whole(tmp_path_factory, job) -> Path:
    """One index of all papers, whose vectors are found by lists of short codes."""
    folder = tmp_path_factory.mktemp("whole") / "index"
    build_job(folder, job)
    return folder


@pytest.fixture(scope="module")
def parts(tmp_path_factory, job) -> tuple[Path, ...]:
    """Eight parts: two for each shard."""
    folder = tmp_path_factory.mktemp("parts")
    for number in range(1, 2 * SHARDS + 1):
        build_part_job(folder / str(number), job, BuildShard(number, 2 * SHARDS))
    return tuple(sorted(folder.iterdir()))


@pytest.fixture(scope="module")
def split(tmp_path_factory, whole) -> Path:
    folder = tmp_path_factory.mktemp("split") / "index"
    build_shards(folder, IndexShards(whole), SHARDS)
    return folder


@pytest.fixture(scope="module")
def joined(tmp_path_factory, parts, job) -> Path:
    folder = tmp_path_factory.mktemp("joined") / "index"
    build_shards(folder, PartShards(parts, job.settings), SHARDS)
    return folder


@pytest.mark.parametrize(
    ("made", "stage"), [("split", "bm25"), ("split", "dense"), ("split", "fused"), ("joined", "bm25")]
)
def test_shards_find_what_one_index_finds_to_the_last_digit(request, whole, made, stage):
    queries = 0
    with Index(whole) as one, Index(request.getfixturevalue(made)) as several:
        expected, found = first_stage(one, stage), first_stage(several, stage)
        for number in range(0, 128, 32):
            query = Query(one.papers[number], Facet.METHOD)
            for selected in (None, PaperFilter(years=(None, 2010))):
                queries += 1
                hits = found.search(query, 128, filter=selected)
                assert hits
                assert hits == expected.search(query, 128, filter=selected)
        assert queries == 8
        expected.close()
        found.close()


def test_both_ways_make_the_same_vectors_lists_and_papers(whole, split, joined):
    for name in ("vectors.npy", "vectors.scales.npy", "whole.npy", "faiss.index", "papers.jsonl"):
        for number in range(1, SHARDS + 1):
            files = [folder / f"segments/{number:06d}" / name for folder in (split, joined)]
            assert sha256(files[0]) == sha256(files[1]), (name, number)
    with Index(whole) as one, Index(split) as several:
        assert len(several) == len(one)
        assert sorted(several.papers.ids) == sorted(one.papers.ids)
        assert several.manifest.lucene["documents"] == one.manifest.lucene["documents"]
        for number in range(SHARDS):
            ids = several.papers.segments[number].ids
            rows = np.array([one.papers.row(paper_id) for paper_id in ids])
            assert set(rows // SHARD_PAPERS % SHARDS) == {number}


def test_the_digest_does_not_depend_on_how_often_the_build_was_interrupted(tmp_path, whole, split):
    class StoppedError(Exception):
        pass

    def stops_behind_two(function, numbers):
        yield function(numbers[0])
        yield function(numbers[1])
        raise StoppedError

    target = tmp_path / "index"
    with pytest.raises(StoppedError):
        build_shards(target, IndexShards(whole), SHARDS, spread=stops_behind_two)
    assert not target.exists()
    staging = tmp_path / ".index.building"
    assert sorted(path.name for path in (staging / "segments").iterdir()) == ["000001", "000002"]
    before = (staging / LEARNED).stat().st_mtime_ns
    with pytest.raises(IndexBuildError, match="unfinished build"):
        build_shards(target, IndexShards(whole), SHARDS)
    with pytest.raises(IndexBuildError, match="found other shards"):
        build_shards(target, IndexShards(whole), SHARDS + 1, resume=True)
    made = []

    def noted(function, numbers):
        made.append((staging / LEARNED).stat().st_mtime_ns)
        return map(function, numbers)

    manifest = build_shards(target, IndexShards(whole), SHARDS, resume=True, spread=noted)
    assert made == [before]
    with Index(split) as expected:
        assert manifest.digest == expected.manifest.digest
    assert sorted(path.name for path in target.iterdir()) == ["segments", "segments.json"]
    assert not staging.exists()


def test_an_index_of_shards_is_updated_like_any_other(tmp_path, split, papers):
    folder = Path(shutil.copytree(split, tmp_path / "index"))
    with Index(folder) as index:
        index.delete(["s001"])
        new = dataclasses.replace(papers[0], paper_id="new")
        written = index.append([new])
        assert (written.papers, written.segments, written.generation) == (128, SHARDS + 1, SHARDS + 2)
        assert [segment.name for segment in read_commit(folder).segments][-1] == "segments/000006"
        hits = first_stage(index).search(Query(papers[1]), 128)
        assert {"new", "s001"} & {hit.paper_id for hit in hits} == {"new"}
    with pytest.raises(UsageError, match="found one that was updated or has shards"):
        build_shards(tmp_path / "shards", IndexShards(folder), 2)


def test_what_cannot_be_is_said_in_one_line(tmp_path, whole, split, parts, told):
    messages = []
    wrong = (
        ["--merge", whole, "--shards", "1"],
        ["--merge", whole, "--shards", "129"],
        ["--merge", split, "--shards", "2"],
        ["--merge", *parts, "--shards", "3"],
        ["--corpus", "x.jsonl", "--shards", "2"],
    )
    for number, arguments in enumerate(wrong):
        with pytest.raises(UsageError) as raised:
            main([*map(str, arguments), "--output", str(tmp_path / f"{number}")])
        messages.append(str(raised.value).replace(str(split), "SPLIT"))
        assert not (tmp_path / f"{number}").exists()
        assert not (tmp_path / f".{number}.building").exists()
    told("shards", messages)


def test_resuming_what_has_ended_is_done_unless_the_source_changed(tmp_path, whole, split, parts, job):
    index = Path(shutil.copytree(whole, tmp_path / "index"))
    folders = tuple(Path(shutil.copytree(part, tmp_path / f"part-{part.name}")) for part in parts)
    for name, source in (("split", IndexShards(index)), ("joined", PartShards(folders, job.settings))):
        target = tmp_path / name
        built = build_shards(target, source, SHARDS)
        (target / STATE).write_text("{}")  # as a build leaves it that is killed at its end
        assert build_shards(target, source, SHARDS, resume=True) == built
        assert not (target / STATE).exists()
        with pytest.raises(IndexBuildError, match="is an index already"):
            build_shards(target, source, SHARDS)
        with pytest.raises(IndexBuildError, match="is an index already"):
            build_shards(target, source, 2, resume=True)
        if name == "joined":
            other = PartShards(folders, dataclasses.replace(job.settings, positions=True))
            with pytest.raises(IndexBuildError, match="is an index already"):
                build_shards(target, other, SHARDS, resume=True)
        for folder in (index, *folders):
            for file in folder.glob("*.json"):
                file.touch()
        with pytest.raises(IndexBuildError, match="is an index already"):
            build_shards(target, source, SHARDS, resume=True)


def test_bm25_of_shards_is_that_of_one_index_to_the_last_bit(whole, split, papers):
    """Each shard is searched alone, with nothing of the others but three numbers and its terms' counts."""
    snapshot = open_snapshot(split)
    stores = [PaperStore([segment]) for segment in snapshot.segments]
    postings = [
        open_postings([segment], store, segment.manifest.lucene)
        for segment, store in zip(snapshot.segments, stores, strict=True)
    ]
    each = [statistics_of(one) for one in postings]
    corpus = CorpusStatistics(sum(s.documents for s in each), sum(s.tokens for s in each))
    searches = [ShardSearch(one, store.ids, corpus) for one, store in zip(postings, stores, strict=True)]
    with Index(whole) as index, index.reading() as reader:
        assert statistics_of(reader.lucene) == corpus
        one = LuceneSearch(reader.lucene, reader.papers.ids)
        for paper in papers[::32]:
            text = f"{paper.title} {paper.title} {paper.abstract}"
            query = one._generator.buildQuery("contents", one._analyzer, text)
            expected = one.best_unbroken(query, 128)
            counted = [search.terms(text) for search in searches]
            frequencies = {
                word.text: sum(terms[place].documents for terms in counted)
                for place, word in enumerate(counted[0])
            }
            found = {}
            for search, store in zip(searches, stores, strict=True):
                rows, scores = search.best_of_terms(counted[0], frequencies, 128)
                found |= {store.ids[row]: score for row, score in zip(rows, scores, strict=True)}
            ids = [reader.papers.ids[row] for row in expected.rows]
            assert found == dict(zip(ids, expected.scores, strict=True))
    one_by_one(searches[0], frequencies, counted[0])
    for opened in postings:
        opened.close()
    snapshot.close()


def one_by_one(search, frequencies, terms):
    """A shard makes no query while any other search of the process makes one."""
    with ThreadPoolExecutor(1) as pool:
        with BUILDER_LOCK:
            answer = pool.submit(search.best_of_terms, terms, frequencies, 3)
            with pytest.raises(FutureTimeoutError):
                answer.result(0.25)
        assert len(answer.result(30).rows) == 3


@settings(max_examples=50)
@given(st.integers(1, 10**7), st.integers(1, 400), st.integers(1, 10**8), st.integers(1, 400))
def test_a_filler_gives_a_shard_the_average_length_of_the_corpus(documents, length, others, other_length):
    shard = CorpusStatistics(documents, documents * length)
    corpus = CorpusStatistics(documents + others, documents * length + others * other_length)
    if abs(float(shard.average) - float(corpus.average)) > 0.05 * float(corpus.average):
        return  # shards are drawn alike; a filler for others would be as large as they are
    filler = filler_for(shard, corpus)
    filled = CorpusStatistics(shard.documents + filler.documents, shard.tokens + filler.tokens)
    assert filled.average == corpus.average
    assert FEWEST_FILLERS <= filler.documents <= filler.tokens


@settings(max_examples=50)
@given(st.integers(100, 10**6), st.data())
def test_a_term_has_exactly_its_weight_in_the_corpus(documents, data):
    own = data.draw(st.integers(1, documents - FEWEST_FILLERS))
    corpus = data.draw(st.integers(documents, 10**9))
    frequency = data.draw(st.integers(own, corpus))
    times = data.draw(st.integers(1, 9))
    weight = np.float32(np.float32(times) * idf(corpus, frequency))
    raised, boost = multiplied(weight, documents, own)
    assert np.float32(boost * idf(documents, own + raised)) == weight
    assert boost > 0
    assert 0 <= raised < documents - own


def test_a_shard_keeps_two_commits_open_and_refuses_what_is_gone(tmp_path, split):
    folder = Path(shutil.copytree(split, tmp_path / "index"))
    with Shard(folder, 0, SHARDS) as shard, Index(folder) as index:
        papers = [shard.statistics(index.generation).documents]
        for number in range(1, 4):
            index.delete([f"s{number:03d}"])
            papers.append(shard.statistics(index.generation).documents)
        assert papers == [32] * 4  # rows of deleted papers stay
        assert shard.statistics(index.generation - 1).documents == 32
        with pytest.raises(MovedOnError, match=f"expected generation {SHARDS} of .*, found {SHARDS + 3}"):
            shard.statistics(SHARDS)
