"""Indexes from Python: built of papers, opened, refreshed, updated while searches go on."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from support.builds import interrupt
from support.live import corpus
from support.messages import messages_of

from qbe import BuildSettings, Paper, Sentence, build_index
from qbe.errors import CorpusError, IndexBuildError, UsageError
from qbe.index.index import open_index
from qbe.index.papers import without_labels


@pytest.fixture(scope="module")
def settings(tiny_encoder, tiny_tagger) -> BuildSettings:
    return BuildSettings(bm25=False, encoder=str(tiny_encoder), tagger=str(tiny_tagger))


@pytest.fixture
def index(tmp_path, papers, settings):
    with build_index(tmp_path / "index", papers[:12], settings, threads=1) as opened:
        yield opened


def test_papers_files_and_streams_make_the_same_index(tmp_path, papers, settings):
    path = corpus(tmp_path, "papers", papers[:12])
    corpora = [papers[:12], iter(papers[:12]), path, Path(path), [path], (item for item in [path])]
    digests = set()
    for number, given in enumerate(corpora):
        with build_index(tmp_path / str(number), given, settings) as built:
            digests.add(built.manifest.digest)
            assert built.manifest.settings["corpus"] == (["<papers>"] if number < 2 else [path])
            assert list(built) == papers[:12]
    assert len(digests) == 1


ONE = Paper("1", "T", (Sentence("One."),))
UNFIT = [
    *([], iter([]), [replace(ONE, sentences=())], [replace(ONE, paper_id="a b")], [ONE, ONE]),
    [replace(ONE, metadata={"when": {1, 2}})],
]


def test_papers_that_cannot_be_indexed(tmp_path, settings, told):
    builds = [partial(build_index, tmp_path / "index", papers, settings) for papers in UNFIT]
    told("papers that cannot be indexed", messages_of(builds, (CorpusError, TypeError)))
    assert not any(tmp_path.iterdir())


def test_updates_are_seen_and_others_after_a_refresh(index, papers):
    other = open_index(index.folder, threads=1)
    assert index.append(papers[12:14]).papers == 14
    assert index.delete("s001").papers == 13
    assert ("s013" in index, "s001" in index, len(index)) == (True, False, 13)
    assert (len(other), other.generation) == (12, 1)
    assert other.refresh()
    assert not other.refresh()
    assert (len(other), other.generation) == (13, 3)
    changed = replace(papers[12], title="Another title")
    assert index.append([changed]).kept == ("s013",)
    assert index.append([changed], update=True).replaced == 1
    assert index.sync([*papers[1:12], papers[12]]).papers == len(index) == 12
    assert index.paper("s013") == papers[12]
    other.close()


def test_a_closed_index_says_so(index):
    index.close()
    index.close()
    with pytest.raises(UsageError, match=r"expected an open index of .*, found a closed one; open it again"):
        len(index)


def test_labels_and_vectors_come_out_of_one_pass(index, papers):
    raw = replace(without_labels(papers[3]), paper_id="new")
    labelled, vectors = index.label_and_encode(raw)
    assert labelled == index.label_facets(raw)
    assert labelled.predicted
    expected = index.vectors(raw)
    assert (vectors.sentences == expected.sentences).all()
    assert (vectors.whole == expected.whole).all()
    assert index.label_and_encode(papers[3]) == (papers[3], None)
    reader = index.reader
    assert reader.stored_vectors(raw) is None
    assert (reader.stored_vectors(papers[3]).sentences == index.vectors(papers[3]).sentences).all()
    with pytest.raises(UsageError, match="expected `facets` given or predicted, found 'all'"):
        index.label_facets(raw, "all")


def test_papers_in_memory_are_resumed_only_if_equal(tmp_path, papers, settings, monkeypatch):
    for given, other in ((iter(papers[:6]), iter(papers[:6])), (papers[:6], papers[:7])):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("qbe.index.build.write_faiss", interrupt)
            build_index(tmp_path / "index", given, settings, overwrite=True)
        with pytest.raises(IndexBuildError, match="found other sources"):
            build_index(tmp_path / "index", other, settings, resume=True)
    with build_index(tmp_path / "index", papers[:6], settings, resume=True) as built:
        assert len(built) == 6


def test_an_index_that_is_replaced_keeps_other_files(index, papers, settings):
    (index.folder / "notes.txt").write_text("precious")
    with build_index(index.folder, papers[:5], settings, overwrite=True) as built:
        assert (len(built), built.generation) == (5, 2)
    assert index.refresh()
    assert len(index) == 5
    assert {path.name for path in index.folder.iterdir()} == {"000001", "000002", "CURRENT", "notes.txt"}
