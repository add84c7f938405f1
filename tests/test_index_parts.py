"""Parts of an index, built apart and joined: the same index, or a plain refusal."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.builds import Job, build_job, build_part_job, comparable
from support.searching import first_stage

from qbe.corpus.record import dump_record, paper_to_record
from qbe.corpus.rejected import RejectedRecords
from qbe.encode.encoder import Encoder
from qbe.errors import EncoderMismatchError, IndexBuildError, IndexFormatError
from qbe.files import sha256
from qbe.index.__main__ import main
from qbe.index.building import build, shards
from qbe.index.building.parts import BuildShard, Parts, merge_parts
from qbe.index.index import Index
from qbe.index.manifest import seal, unseal
from qbe.index.papers import without_labels
from qbe.query import Query

SHARD_PAPERS = 24
"""Papers a shard: the sample makes five of them and eight papers more."""


@pytest.fixture(autouse=True, scope="module")
def small_shards():
    before, shards.SHARD_PAPERS = shards.SHARD_PAPERS, SHARD_PAPERS
    yield
    shards.SHARD_PAPERS = before


@pytest.fixture(scope="module")
def settings(tmp_path_factory, papers, tiny_encoder, tiny_tagger) -> Job:
    """The sample with the labels of every other shard taken away, so that part 1/2 has all that it keeps."""
    corpus = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    mixed = [without_labels(paper) if row // SHARD_PAPERS % 2 else paper for row, paper in enumerate(papers)]
    corpus.write_bytes(b"".join(dump_record(paper_to_record(paper)) for paper in mixed))
    return Job(corpus=(str(corpus),), bm25=False, encoder=str(tiny_encoder), tagger=str(tiny_tagger))


@pytest.fixture(scope="module")
def whole(tmp_path_factory, settings) -> Path:
    """The index that a build in one go makes."""
    folder = tmp_path_factory.mktemp("whole") / "index"
    build_job(folder, settings)
    return folder


@pytest.fixture(scope="module")
def halves(tmp_path_factory, settings) -> list[Path]:
    folder = tmp_path_factory.mktemp("halves")
    return built(folder, settings, 2)


def built(folder: Path, settings: Job, count: int) -> list[Path]:
    """All parts of a corpus."""
    folders = [folder / f"part{number}" for number in range(1, count + 1)]
    for number, path in enumerate(folders, start=1):
        build_part_job(path, settings, BuildShard(number, count))
    return folders


def changed(part: Path, folder: Path, **values) -> Path:
    """A copy of a part whose card says something else, and says so consistently."""
    copy = Path(shutil.copytree(part, folder / part.name))
    record = unseal((copy / "part.json").read_bytes()) | values
    (copy / "part.json").write_text(seal(record))
    return copy


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json")
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}


@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_merged_parts_are_the_whole(tmp_path, settings, whole, count):
    """To the last byte; the seventh of seven parts is empty."""
    folders = built(tmp_path / "parts", settings, count)
    before = contents(tmp_path / "parts")
    manifest = merge_parts(tmp_path / "index", Parts(folders[::-1]), settings.settings)
    with Index(whole) as index:
        assert comparable(manifest) == comparable(index.manifest)
    assert contents(tmp_path / "index") == contents(whole)
    assert contents(tmp_path / "parts") == before


def test_parts_are_every_nth_shard_tagged_where_labels_lack(halves):
    source = Parts(halves).source
    first, second = (json.loads((part / "part.json").read_text()) for part in halves)
    assert first["counts"]["papers"] == 24 * 3
    assert second["counts"]["papers"] == 24 * 2 + 8
    assert (first["counts"]["predicted"], second["counts"]["predicted"]) == (0, 56)
    assert first["tagger"] is None
    assert second["tagger"]["name"] == "tiny-tagger"
    names = [sorted(path.stem for path in (part / "shards").iterdir()) for part in halves]
    assert [[int(name) for name in part] for part in names] == [[0, 48, 96], [24, 72, 120]]
    papers = source.papers(lambda _: [], RejectedRecords())
    assert [paper.paper_id for paper in papers] == [f"s{n:03}" for n in range(1, 129)]


def test_postings_are_built_when_parts_are_merged(tmp_path, settings, halves, capsys, monkeypatch):
    settings = replace(settings, bm25=True, positions=True)
    digest = build_job(tmp_path / "whole", settings).digest
    monkeypatch.setattr(Encoder, "encode_paper", None)  # nothing is encoded any more
    main(["--merge", *map(str, halves), "--output", str(tmp_path / "index"), "--store=positions"])
    assert "128 papers (72 with facet labels, 56 predicted), 594 sentences" in capsys.readouterr().out
    monkeypatch.undo()
    with Index(tmp_path / "index") as index:
        assert index.manifest.digest == digest
        assert index.manifest.settings == settings.settings.record(settings.corpus)
        assert first_stage(index).search(Query(index.paper("s001")), 5)


def test_the_command_line_builds_a_part(tmp_path, settings, halves, capsys):
    arguments = ["--corpus", *settings.corpus, "--output", str(tmp_path / "part"), "--part", "2/2"]
    arguments += ["--encoder", settings.encoder, "--tagger", settings.tagger, "--threads", "2"]
    main(arguments)
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'part'}: 56 papers (0 with facet labels, 56 ")
    assert contents(tmp_path / "part").keys() == contents(halves[1]).keys()
    with pytest.raises(IndexBuildError, match=r"is a part already; .* replace it with `overwrite`"):
        main(arguments)
    main([*arguments, "--resume"])  # it had ended
    main([*arguments, "--overwrite"])
    merge_parts(tmp_path / "index", Parts([tmp_path / "part", halves[0]]), settings.settings)


def test_an_interrupted_part_goes_on(tmp_path, settings, halves, monkeypatch):
    encoded, encode = [], Encoder.encode_paper

    def interrupted(self, paper, *reader):
        encoded.append(paper)
        if len(encoded) == SHARD_PAPERS + 6:
            raise KeyboardInterrupt
        return encode(self, paper, *reader)

    monkeypatch.setattr(Encoder, "encode_paper", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build_part_job(tmp_path / "part", settings, BuildShard(2, 2))
    assert not (tmp_path / "part").exists()
    with pytest.raises(IndexBuildError, match=r"holds an unfinished build"):
        build_part_job(tmp_path / "part", settings, BuildShard(2, 2))
    with pytest.raises(IndexBuildError, match=r"found other part;"):
        build_part_job(tmp_path / "part", settings, BuildShard(1, 2), resume=True)
    build_part_job(tmp_path / "part", settings, BuildShard(2, 2), resume=True)
    assert len(encoded) == SHARD_PAPERS + 6 + 56 - SHARD_PAPERS  # the finished shard is not encoded again
    assert contents(tmp_path / "part") == contents(halves[1])
    assert [path.name for path in tmp_path.iterdir()] == ["part"]


@pytest.mark.parametrize(
    ("where", "stage"),
    [(shards, "join_shards"), (build, "write_faiss_segment"), (build, "describe_files")],
    ids=["vectors", "FAISS", "files"],
)
def test_an_interrupted_merge_goes_on(tmp_path, settings, whole, halves, monkeypatch, where, stage):
    def interrupted(*given, **named):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(where, stage, interrupted)
        with pytest.raises(KeyboardInterrupt):
            merge_parts(tmp_path / "index", Parts(halves), settings.settings)
    assert not (tmp_path / "index").exists()
    with pytest.raises(IndexBuildError, match=r"holds an unfinished build"):
        merge_parts(tmp_path / "index", Parts(halves), settings.settings)
    merge_parts(tmp_path / "index", Parts(halves[::-1]), settings.settings, resume=True)
    assert contents(tmp_path / "index") == contents(whole)
    again = merge_parts(tmp_path / "index", Parts(halves), settings.settings, resume=True)
    assert again == Index(tmp_path / "index").manifest


def test_parts_must_be_all_and_each_once(halves, tmp_path, settings):
    with pytest.raises(IndexBuildError, match=r"each of 2 parts once, found 2/2 nowhere; check `folders`"):
        Parts(halves[:1])
    with pytest.raises(IndexBuildError, match=r"each of 2 parts once, found 1/2 more than once"):
        Parts([*halves, halves[0]])
    third = tmp_path / "third"
    build_part_job(third, settings, BuildShard(3, 3))
    with pytest.raises(IndexBuildError, match=r"with a count of parts of 2 and .*third with 3; build one"):
        Parts([*halves, third])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"corpus": {"papers": 129, "sha256": "0" * 64}}, r"with a corpus of 128 papers .* with 129 papers"),
        ({"encoder": {"name": "x"}}, "with the encoder .* with {'name': 'x'}"),
        ({"shard_papers": 5}, "with papers a shard of 24 and .* with 5"),
    ],
)
def test_parts_must_be_of_one_build(halves, tmp_path, values, message):
    with pytest.raises(IndexBuildError, match=f"expected parts of one build, found .*{message}"):
        Parts([halves[0], changed(halves[1], tmp_path, **values)])


def test_settings_and_taggers_of_parts_must_agree(halves, tmp_path, settings):
    part = json.loads((halves[1] / "part.json").read_text())
    other = changed(halves[1], tmp_path, settings={**part["settings"], "facets": "predicted"})
    with pytest.raises(IndexBuildError, match=r"with facets given and .* with predicted"):
        Parts([halves[0], other])
    tagger = {"name": "another", "sha256": "1" * 64, "trunk": "2" * 64}
    other = changed(halves[1], tmp_path / "tagged", tagger=tagger)
    with pytest.raises(
        IndexBuildError, match=r"was tagged by another \(111111111111\), found .* as `tagger`"
    ):
        merge_parts(tmp_path / "index", Parts([halves[0], other]), settings.settings)
    assert not (tmp_path / "index").exists()


def test_parts_of_another_encoder_are_refused(halves, tmp_path, settings):
    other = [changed(part, tmp_path, encoder={"name": "x", "weights_sha256": "3" * 64}) for part in halves]
    with pytest.raises(EncoderMismatchError, match=r"encoded by x \(333333333333\), found tiny-bert \("):
        merge_parts(tmp_path / "index", Parts(other), settings.settings)


def test_damaged_parts_are_refused(halves, tmp_path, settings):
    copy = Path(shutil.copytree(halves[1], tmp_path / "copy"))
    shard = copy / "shards" / "0000000072.npy"
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    with pytest.raises(IndexFormatError, match=r"0000000072.npy: expected the SHA.*, found another; build"):
        merge_parts(tmp_path / "index", Parts([halves[0], copy]), settings.settings)
    shard.unlink()
    with pytest.raises(IndexFormatError, match=r"0000000072.npy: .*, found no file; build the part again"):
        merge_parts(tmp_path / "index", Parts([halves[0], copy]), settings.settings)
    card = copy / "part.json"
    card.write_text(card.read_text().replace('"papers": 56', '"papers": 57'))
    with pytest.raises(
        IndexFormatError, match=r"part.json: expected the metadata of a part, found .*another checksum"
    ):
        Parts([halves[0], copy])
    card.write_text('{"format": 9}')
    with pytest.raises(IndexFormatError, match=r"expected the metadata of a part, found .*format 9"):
        Parts([halves[0], copy])
    with pytest.raises(
        IndexFormatError, match=r"expected a part of an index with a part.json, found No such"
    ):
        Parts([tmp_path])


def test_a_part_is_no_index(halves):
    with pytest.raises(IndexFormatError, match=r"found a part of one; join all parts with: .* --merge"):
        Index(halves[0])
