"""CSFCube's release as corpus, topics, pools, judgements and folds; the download."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.http_files import Server, served
from support.releases import CSFCUBE_FOLDS, CSFCUBE_PAPERS, contents, write_csfcube

from qbe.cli.datasets import main
from qbe.corpus.reading import read_corpus
from qbe.datasets.collections import DIGESTS, convert_csfcube, find_csfcube
from qbe.datasets.registry import write_dataset
from qbe.errors import DatasetError, OutputError
from qbe.types import Facet
from qbe.util.files import sha256


def test_a_small_release_exactly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release, output = write_csfcube(tmp_path / "release"), tmp_path / "new" / "out"
    main(["csfcube", "--source", str(release), "--output", str(output)])
    qrels = {f"csfcube.{facet}.qrels" for facet in Facet}
    assert contents(output).keys() == {"corpus.jsonl", "topics.tsv", "pools.tsv", "folds.json"} | qrels
    assert (output / "topics.tsv").read_text() == (
        "query_id\tpaper_id\tfacet\n2_background\t2\tbackground\n3_method\t3\tmethod\n1_method\t1\tmethod\n"
        "2_result\t2\tresult\n"
    )
    assert (output / "pools.tsv").read_text() == (
        "query_id\tpaper_id\n2_background\t3\n2_background\t1\n3_method\t1\n1_method\t4\n1_method\t3\n2_result\t1\n"
    )
    # Paper 2 stands in its own pool, and is left out of it and of its judgements.
    assert (output / "csfcube.background.qrels").read_text() == "2_background 0 3 0\n2_background 0 1 2\n"
    assert (output / "csfcube.method.qrels").read_text() == "3_method 0 1 1\n1_method 0 4 0\n1_method 0 3 2\n"
    assert (output / "csfcube.result.qrels").read_text() == "2_result 0 1 3\n"
    assert json.loads((output / "folds.json").read_text()) == CSFCUBE_FOLDS
    records = [json.loads(line) for line in (output / "corpus.jsonl").read_text().splitlines()]
    assert records == [{k: v for k, v in p.items() if k != "pred_labels_truncated"} for p in CSFCUBE_PAPERS]
    abstracts = "abstracts-csfcube-preds.jsonl"
    assert list(read_corpus([str(output / "corpus.jsonl")])) == list(read_corpus([str(release / abstracts)]))
    digest = sha256(release / abstracts)
    assert capsys.readouterr().out.splitlines()[:5] == [
        f"csfcube: 4 papers (8 sentences) from {release}",
        "  4 queries (1 background, 2 method, 1 result), 6 judgements",
        "  left out of its own pool: 2_background",
        "  queries without a sentence of their facet: 2_result",
        f"  {abstracts} differs from the release's file, its form was checked (sha256 {digest})",
    ]


# Where the release comes from.


def test_the_folder_that_is_named_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QBE_DATA", str(tmp_path / "data"))
    named, shared = write_csfcube(tmp_path / "named"), write_csfcube(tmp_path / "data" / "csfcube")
    assert find_csfcube(named) == named
    assert find_csfcube(None) == shared


@pytest.fixture
def server(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.delenv("QBE_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with served(write_csfcube(tmp_path / "release")) as running:
        yield running


def test_the_release_is_downloaded_once_and_verified(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    wanted = {name: f"sha256:{sha256(server.folder / name)}" for name in DIGESTS}
    monkeypatch.setattr("qbe.datasets.collections.DIGESTS", wanted)
    monkeypatch.setattr("qbe.datasets.collections.BASE_URL", server.url)
    folder = find_csfcube(None, reported.append)
    assert folder == tmp_path / "cache" / "csfcube"
    assert contents(folder) == contents(server.folder)
    assert reported == [f"downloaded 5 files of {server.url}"]
    assert convert_csfcube(folder, tmp_path / "out")[0].startswith("csfcube: 4 papers")
    find_csfcube(None)
    assert set(server.requests.values()) == {1}
    (folder / "evaluation_splits.json").write_text("damaged")
    find_csfcube(None)
    assert server.requests == Counter({name: 1 + (name == "evaluation_splits.json") for name in DIGESTS})
    assert contents(folder) == contents(server.folder)


# What cannot be had, and the real release.


def test_a_file_as_output_and_an_installation_without_the_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        convert_csfcube(write_csfcube(tmp_path / "release"), tmp_path / "file")
    monkeypatch.setattr("qbe.datasets.arxiv.resources.files", lambda _: tmp_path / "nowhere")
    with pytest.raises(DatasetError, match=r"papers\.jsonl\.xz in the installed package, found none"):
        write_dataset("mini", tmp_path / "out")


def test_the_real_release(qbe_data: Path, tmp_path: Path) -> None:
    summary = convert_csfcube(qbe_data / "csfcube", tmp_path)
    # 6,244 judgements less those of a query paper for itself.
    assert summary[0].startswith("csfcube: 4,205 papers (29,197 sentences)")
    assert summary[1:4] == [
        "  50 queries (16 background, 17 method, 17 result), 6,242 judgements",
        "  left out of its own pool: 8781666_background, 8781666_result",
        "  queries without a sentence of their facet: none",
    ]
    # The copy at hand has the release's judgements; its abstracts may be rebuilt from the annotations.
    assert {line.split()[0] for line in summary[4:]} <= {"abstracts-csfcube-preds.jsonl"}
