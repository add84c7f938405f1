"""Indexes on disk: what they hold, how they are built and replaced, and how damage is told."""

import json
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.builds import Job, build_job
from support.damage import full_disk
from support.messages import messages_of
from support.searching import first_stage

from qbe import BuildSettings, CorpusError, IndexFormatError, PaperNotFoundError, Query, Reading, UsageError
from qbe.cli import common as _cli
from qbe.cli.index import build_settings, main, reading
from qbe.cli.parser import parse
from qbe.errors import IndexBuildError, OutputError
from qbe.index import jvm as _jvm
from qbe.index.index import Index
from qbe.index.papers import FACET_CODES
from qbe.index.store import FORMAT_VERSION, FaissParams, current
from qbe.models.cards import ENCODER
from qbe.models.encoder import Encoder
from qbe.models.folders import resolve_encoder
from qbe.util.files import sha256

STORED = {
    "": {},
    "--store positions int8": {"positions": True, "stored": "int8"},
    "--store float16 docvectors positions": {"positions": True, "docvectors": True, "stored": "float16"},
}


def test_options_of_several_parts():
    command = ["--corpus", "a", "--output", "b"]
    for given, settings in STORED.items():
        assert build_settings(parse("index", [*command, *given.split()])) == BuildSettings(**settings)
    options = ["--encoder", ":fp32", "--format", "table:id=key", "--on-error", "skip:0.2"]
    parsed = parse("index", [*command, *options])
    assert build_settings(parsed) == BuildSettings(precision="fp32")
    assert reading(parsed) == Reading("table", {"id": "key"}, on_error="skip", max_rejected=0.2)


@pytest.fixture(scope="module")
def settings(sample, tiny_encoder, tiny_tagger) -> Job:
    return Job(corpus=(str(sample / "corpus.jsonl"),), encoder=str(tiny_encoder), tagger=str(tiny_tagger))


@pytest.fixture
def small(tmp_path, sample, settings) -> Job:
    corpus = tmp_path / "small.jsonl"
    corpus.write_text("".join((sample / "corpus.jsonl").read_text().splitlines(keepends=True)[:12]))
    return replace(settings, corpus=(str(corpus),), bm25=False)


def test_manifest_states_corpus_settings_and_files(tiny_index, settings, tiny_encoder, papers):
    tiny_index = current(tiny_index)
    record = json.loads((tiny_index / "manifest.json").read_text())
    assert record["format_version"] == FORMAT_VERSION
    assert record["settings"]["corpus"] == list(settings.corpus)
    assert "threads" not in record["settings"]
    sentences = sum(len(paper.sentences) for paper in papers)
    counts = {"papers": 128, "labelled": 128, "predicted": 0, "sentences": sentences}
    assert record["corpus"] == {**counts, "sha256": sha256(tiny_index / "papers.jsonl")}
    assert record["tagger"] is None
    lucene, stored = record["lucene"], {"positions": False, "docvectors": False}
    assert lucene.pop("tokens") > 5000
    assert lucene == {"version": _jvm.lucene_version(), "k1": 0.9, "b": 0.4, **stored, "documents": 128}
    weights = json.loads((tiny_encoder / ENCODER.metadata_file).read_text())["weights_sha256"]
    assert record["dense"] == {
        "encoder": {"name": "tiny-bert", "precision": "int8", "weights_sha256": weights},
        "dimension": 16,
        "similarity": "inner product",
        "stored": "float16",
        "ann": asdict(FaissParams()),
    }
    files = [path for path in tiny_index.rglob("*") if path.is_file() and path.name != "manifest.json"]
    assert record["files"].keys() == {path.relative_to(tiny_index).as_posix() for path in files}
    for name, entry in record["files"].items():
        assert entry["bytes"] == (tiny_index / name).stat().st_size
        assert entry["sha256"] == sha256(tiny_index / name)


def test_papers_layout_and_vectors_read_back(tiny_index, papers, tiny_encoder):
    encoder = Encoder(resolve_encoder(str(tiny_encoder)))
    with Index(tiny_index) as index:
        assert len(index) == len(papers)
        assert list(index.papers.read_from(0)) == papers
        assert index.sentence_vectors.dtype == index.reader.whole_vectors.dtype == np.float16
        for row, (paper, vectors) in enumerate(zip(papers, encoder.encode(papers), strict=True)):
            assert index.paper(paper.paper_id) == index.papers[row] == paper
            first, last = index.layout.starts[row : row + 2]
            facets = [FACET_CODES[code] for code in index.layout.facets[first:last]]
            assert facets == [sentence.facet for sentence in paper.sentences]
            assert (index.sentence_vectors[first:last] == vectors.sentences).all()
            assert (index.reader.whole_vectors[row] == vectors.whole).all()
        with pytest.raises(PaperNotFoundError, match=r"one of the 128 papers .* found 's999'"):
            index.paper("s999")


def test_one_side_only(tmp_path, settings):
    assert build_job(tmp_path / "dense", replace(settings, bm25=False)).lucene is None
    assert not (tmp_path / "dense" / "000001" / "lucene").exists()
    bm25 = build_job(tmp_path / "bm25", replace(settings, dense=False, encoder="no such encoder"))
    assert bm25.dense is None
    assert not {"vectors.npy", "whole.npy", "faiss.index"} & bm25.files.keys()
    for side, missing in (("dense", "bm25"), ("bm25", "dense")):
        with Index(tmp_path / side) as index:
            query = Query(index.paper("s001"))
            assert len(first_stage(index, side).search(query, 3)) == 3
            for stage in (missing, "fused"):
                with pytest.raises(IndexFormatError, match="found one built without; build it with both"):
                    first_stage(index, stage).search(query, 3)


def test_positions_and_docvectors_are_stored_on_demand(tmp_path, settings):
    settings = replace(settings, dense=False, positions=True, docvectors=True)
    manifest = build_job(tmp_path / "index", settings)
    assert manifest.lucene["positions"]
    assert manifest.lucene["docvectors"]
    reader = _jvm.open_lucene(tmp_path / "index" / "000001" / "lucene")
    info = _jvm.java_class("org.apache.lucene.index.FieldInfos").getMergedFieldInfos(reader)
    field = info.fieldInfo("contents")
    assert field.hasTermVectors()
    assert "POSITIONS" in field.getIndexOptions().toString()
    reader.close()


def test_an_index_is_replaced_only_when_told(tmp_path, small):
    output = tmp_path / "index"
    first = build_job(output, small)
    for job, resume in ((small, False), (replace(small, precision="fp32"), True)):
        with pytest.raises(IndexBuildError, match=r"is an index already; .* `overwrite`"):
            build_job(output, job, resume=resume)
    assert build_job(output, small, resume=True) == first  # nothing left to do
    second = build_job(output, replace(small, precision="fp32"), overwrite=True)
    assert second.digest != first.digest
    assert Index(output).manifest == second
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "small.jsonl"]


def test_what_is_no_index_is_never_replaced(tmp_path, small):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1").write_text("precious")
    (tmp_path / "file").write_text("precious")
    for name in ("thesis", "file"):
        found = "other files" if name == "thesis" else "a file"
        message = rf"^expected no such path, or an index, at \S+, found {found}; choose another `folder`"
        with pytest.raises(IndexBuildError, match=message):
            build_job(tmp_path / name, small, overwrite=True)
    assert (tmp_path / "thesis" / "chapter1").read_text() == (tmp_path / "file").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "small.jsonl", "thesis"]


def test_an_empty_folder_a_link_and_the_current_folder_can_become_one(tmp_path, small, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    manifest = build_job(tmp_path / "link", small)
    assert (tmp_path / "link").is_symlink()
    assert Index(folder).manifest == manifest
    monkeypatch.chdir(folder)
    assert build_job(Path(), small, overwrite=True) == manifest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "link", "small.jsonl"]


GOOD = '{"paper_id": "1", "title": "T", "abstract": ["One sentence."]}\n'


def test_a_broken_corpus_leaves_nothing_behind(tmp_path, small):
    corpus, message = tmp_path / "corpus.jsonl", r"line 2: expected each paper_id once, found '1' again"
    corpus.write_text(GOOD + GOOD.replace('"T"', '"U"'))
    broken = replace(small, corpus=(str(corpus),))
    before = {"corpus.jsonl", "small.jsonl"}
    for there in (set(), {"index"}):
        old = build_job(tmp_path / "index", small) if there else None
        with pytest.raises(CorpusError, match=message):
            build_job(tmp_path / "index", broken, overwrite=bool(there))
        assert {path.name for path in tmp_path.iterdir()} == before | there
    assert Index(tmp_path / "index").manifest == old


@pytest.mark.parametrize("kilobytes", [4, 80])
def test_a_full_disk_is_told_and_resumed(tmp_path, settings, tiny_index, kilobytes):
    output = tmp_path / "index"
    command = ["--corpus", *settings.corpus, "--output", str(output), "--encoder", settings.encoder]
    with full_disk(kilobytes), pytest.raises(OutputError, match=r"^[^\n]*File too large[^\n]*$"):
        main([*command, "--only=dense"])
    assert not output.exists()
    manifest = build_job(output, replace(settings, bm25=False), resume=True)
    files = Index(tiny_index).manifest.files
    assert manifest.files == {name: files[name] for name in files if not name.startswith("lucene/")}


def test_ids_of_all_kinds_are_found(tmp_path, small):
    ids = ["1", "http://arxiv.org/abs/cs/0101001", "quote\"'\\", "dütür", "数学", "🧬", "a_method", "*:?~^[]"]
    ids.append("x" * 512)
    corpus = tmp_path / "ids.jsonl"
    corpus.write_text("".join(GOOD.replace('"1"', json.dumps(paper_id)) for paper_id in ids))
    build_job(tmp_path / "index", replace(small, corpus=(str(corpus),), bm25=True))
    with Index(tmp_path / "index") as index:
        for stage in ("bm25", "dense", "fused"):
            for pool in (None, ids):
                hits = first_stage(index, stage).search(Query(index.paper("1")), 20, pool)
                assert [hit.paper_id for hit in hits] == sorted(ids[1:])  # all score alike


APART = [
    *("", "--corpus x --threads 0", "--corpus x --device cuda --encoder x:int8"),
    *("--corpus x --format table:id", "--corpus x --on-error skip:some", "--corpus x --on-error stop:0.1"),
    *("--corpus x --on-error skip:5", "--corpus x --only dense --store int8 positions"),
    *("--corpus x --store int8 float16", "--append", "--sync --corpus x --limit 3"),
]


def test_options_that_do_not_go_together(tmp_path, monkeypatch, told):
    monkeypatch.chdir(tmp_path)
    commands = [partial(main, [*options.split(), "--output", "index"]) for options in APART]
    told("index: options", messages_of(commands, UsageError))
    assert not any(tmp_path.iterdir())


def test_columns_are_told_as_the_command_has_them(tmp_path, monkeypatch, capsys, told):
    monkeypatch.chdir(tmp_path)
    Path("c.csv").write_text("name,text\nOn fish,Fish swim.\n")
    messages = []
    for form in ("", "table:tile=name", "table:title=nme"):
        given = ["--corpus", "c.csv", "--output", "x", *(["--format", form] if form else [])]
        with pytest.raises(SystemExit):
            _cli.run("qbe index", main, given)
        messages.append(capsys.readouterr().err.strip())
    told("index: columns", messages)
