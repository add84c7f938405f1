"""Parts of an index, built apart and joined: the same index, or a plain refusal."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.builds import Job, build_job, build_part_job, comparable, interrupt
from support.live import corpus, files
from support.messages import messages_of
from support.searching import first_stage

from qbe.cli.index import main
from qbe.corpus.rejected import RejectedRecords
from qbe.errors import IndexBuildError, IndexFormatError
from qbe.index.building import build, shards
from qbe.index.building.parts import BuildShard, Parts, merge_parts
from qbe.index.index import Index
from qbe.index.manifest import seal, unseal
from qbe.index.papers import without_labels
from qbe.models.encoder import Encoder
from qbe.query import Query

pytestmark = pytest.mark.slow

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
    mixed = [without_labels(paper) if row // SHARD_PAPERS % 2 else paper for row, paper in enumerate(papers)]
    source = corpus(tmp_path_factory.mktemp("corpus"), "corpus", mixed)
    return Job(corpus=(source,), bm25=False, encoder=str(tiny_encoder), tagger=str(tiny_tagger))


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


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but the manifest."""
    return {name: content for name, content in files(folder).items() if name != "manifest.json"}


@pytest.mark.parametrize("count", [1, 7])
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
    with monkeypatch.context() as patch:
        patch.setattr(where, stage, interrupt)
        with pytest.raises(KeyboardInterrupt):
            merge_parts(tmp_path / "index", Parts(halves), settings.settings)
    assert not (tmp_path / "index").exists()
    with pytest.raises(IndexBuildError, match=r"holds an unfinished build"):
        merge_parts(tmp_path / "index", Parts(halves), settings.settings)
    merge_parts(tmp_path / "index", Parts(halves[::-1]), settings.settings, resume=True)
    assert contents(tmp_path / "index") == contents(whole)
    again = merge_parts(tmp_path / "index", Parts(halves), settings.settings, resume=True)
    assert again == Index(tmp_path / "index").manifest


def test_parts_must_be_all_of_one_build_and_whole(halves, tmp_path, settings, told):
    first, second = halves
    third = tmp_path / "third"
    build_part_job(third, settings, BuildShard(3, 3))
    part = json.loads((second / "part.json").read_text())
    encoder = {"name": "x", "weights_sha256": "3" * 64}

    def other(folder: str, part: Path = second, **values: object) -> Path:
        return changed(part, tmp_path / folder, **values)

    damaged, absent, card, version = (
        Path(shutil.copytree(second, tmp_path / name)) for name in ("damaged", "absent", "card", "version")
    )
    shard = damaged / "shards" / "0000000072.npy"
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    (absent / "shards" / "0000000072.npy").unlink()
    text = (card / "part.json").read_text()
    (card / "part.json").write_text(text.replace('"papers": 56', '"papers": 57'))
    (version / "part.json").write_text('{"format": 9}')
    joined = [
        [first],
        [first, second, first],
        [first, second, third],
        [first, other("papers", corpus={"papers": 129, "sha256": "0" * 64})],
        [first, other("one encoder", encoder={"name": "x"})],
        [first, other("shards", shard_papers=5)],
        [first, other("facets", settings={**part["settings"], "facets": "predicted"})],
        [first, other("tagger", tagger={"name": "another", "sha256": "1" * 64, "trunk": "2" * 64})],
        [other("first encoder", first, encoder=encoder), other("second encoder", encoder=encoder)],
        *([first, each] for each in (damaged, absent, card, version, tmp_path / "none")),
    ]
    merges = [lambda f=f: merge_parts(tmp_path / "index", Parts(f), settings.settings) for f in joined]
    messages = messages_of(merges, folder=tmp_path)
    told(
        "parts",
        [re.sub(r"\b[0-9a-f]{12,64}\b", "DIGEST", each.replace(f"{first.parent}/", "")) for each in messages],
    )
    assert not (tmp_path / "index").exists()


def test_a_part_is_no_index(halves):
    with pytest.raises(IndexFormatError, match=r"found a part of one; join all parts with: .* --merge"):
        Index(halves[0])
