"""People's judgements outside CSFCube out of their releases; collections of BEIR and ir_datasets."""

import hashlib
import json

import pytest
from support.http_files import served
from support.people import CISI, tiny_irds, write_beir, write_cisi, write_reviewers, write_reviews
from support.releases import contents

from qbe.cli.datasets import main
from qbe.datasets import people
from qbe.datasets.registry import DatasetOptions, write_dataset
from qbe.errors import DatasetError


def test_own_papers_are_a_query_and_scores_are_grades_of_quarters(tmp_path):
    release = DatasetOptions(write_reviewers(tmp_path / "release"))
    lines = write_dataset("reviewers", tmp_path / "out", release)
    assert lines[1] == "  10 samples of the papers of 1 researchers"
    assert (tmp_path / "out" / "topics.tsv").read_text().splitlines()[:3] == [
        "query_id\tpaper_id\taspects",
        "1.7\to1\tabstract abstract@o3",
        "2.7\to1\tabstract abstract@o2",
    ]
    qrels = (tmp_path / "out" / "reviewers.qrels").read_text()
    assert qrels.startswith("1.7 0 s1 20\n1.7 0 s2 9\n2.7 0 s1 20\n")
    assert (tmp_path / "out" / "pools.tsv").read_text().startswith("query_id\tpaper_id\n1.7\ts1\n1.7\ts2\n")


def test_a_review_is_the_pool_of_each_paper_that_it_includes(tmp_path):
    write_dataset("reviews", tmp_path / "out", DatasetOptions(write_reviews(tmp_path / "release")))
    qrels = (tmp_path / "out" / "reviews.qrels").read_text().splitlines()
    adhd = [line for line in qrels if "ADHD" in line]
    assert adhd == ["ADHD-0 0 ADHD-1 1", "ADHD-0 0 ADHD-2 2", "ADHD-2 0 ADHD-0 2", "ADHD-2 0 ADHD-1 1"]
    (line,) = (line for line in qrels if line.startswith("Kitchenham_2010-0"))
    assert line == "Kitchenham_2010-0 0 Kitchenham_2010-2 2"
    assert "ADHD-0\tADHD-1\nADHD-0\tADHD-2\nADHD-2\tADHD-0\n" in (tmp_path / "out" / "pools.tsv").read_text()
    assert '"title": "A third"' in (tmp_path / "out" / "corpus.jsonl").read_text()


def test_headings_label_the_sentences_below_them_and_are_left_out(tmp_path):
    write_dataset("headings", tmp_path / "out", DatasetOptions(write_reviews(tmp_path / "release")))
    first, second = map(json.loads, (tmp_path / "out" / "corpus.jsonl").read_text().splitlines())
    assert [first["paper_id"], second["paper_id"]] == ["Bannach-Brown_2019-0", "Kitchenham_2010-0"]
    assert list(zip(first["pred_labels"], first["abstract"], strict=True))[:5] == [
        ("background_label", "Looms break."),
        ("background_label", "Weavers wait."),
        ("method_label", "We count looms by e.g. hand."),
        ("result_label", "Six broke."),
        ("other_label", "Buy looms."),
    ]


def test_every_other_judged_abstract_of_cisi_is_a_query(tmp_path):
    write_dataset("cisi", tmp_path / "out", DatasetOptions(write_cisi(tmp_path / "release")))
    assert (tmp_path / "out" / "cisi.qrels").read_text() == "q3 0 d1 1\nq5 0 d2 1\n"
    records = map(json.loads, (tmp_path / "out" / "corpus.jsonl").read_text().splitlines())
    texts = {record["paper_id"]: (record["title"], record["abstract"]) for record in records}
    assert texts["d1"] == ("Shelves", "We count shelves.")
    assert texts.keys() == {"d1", "d2", "q3", "q5"}


def test_a_release_is_downloaded_once_and_verified(tmp_path, cache, monkeypatch, capsys):
    monkeypatch.delenv("QBE_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder = write_cisi(tmp_path / "release")

    def git_id(text: str) -> str:
        return hashlib.sha1(b"blob %d\0%s" % (len(text), text.encode()), usedforsecurity=False).hexdigest()

    with served(folder) as server:
        files = {name: git_id(text) for name, text in CISI.items()}
        monkeypatch.setattr(people, "released", lambda _: (server.url, files))
        main(["cisi", "--output", str(tmp_path / "out")])
        assert capsys.readouterr().err == f"downloaded 3 files of {server.url}\n"
        main(["cisi", "--output", str(tmp_path / "out")])
        assert capsys.readouterr().err == ""
        assert set(server.requests.values()) == {1}
        (folder / "CISI.REL").write_text("changed")
        (cache / "cisi" / "CISI.REL").unlink()
        with pytest.raises(DatasetError, match="expected the digest git:"):
            main(["cisi", "--output", str(tmp_path / "out")])


@pytest.mark.parametrize(
    ("name", "papers"), [("reviewers", 1311), ("reviews", 10523), ("cisi", 1473), ("headings", 132)]
)
def test_the_real_judgements(qbe_data, tmp_path, name, papers):
    assert write_dataset(name, tmp_path)[0].startswith(f"{name}: {papers:,} papers")


def test_a_folder_of_beir_has_a_split_in_each_file_of_judgements(tmp_path, capsys):
    main(["beir", "--source", str(write_beir(tmp_path / "release")), "--output", str(tmp_path / "out")])
    names = {"corpus.jsonl", "topics.dev.tsv", "topics.test.tsv", "dev.qrels", "test.qrels"}
    assert contents(tmp_path / "out").keys() == names
    topics = (tmp_path / "out" / "topics.test.tsv").read_text()
    assert topics == "query_id\ttext\nq1\twhat breaks 1?\nq2\twhat breaks 2?\n"
    assert (tmp_path / "out" / "test.qrels").read_text() == "q1 0 d1 2\nq1 0 d2 0\nq2 0 d2 1\n"
    records = map(json.loads, (tmp_path / "out" / "corpus.jsonl").read_text().splitlines())
    assert {each["paper_id"]: each["abstract"] for each in records} == {"d1": "They break.", "d2": "Sheep"}
    dev = "  dev: 1 queries, 3 judgements, 2 of them of papers that the corpus lacks"
    assert capsys.readouterr().out.splitlines()[1:3] == [dev, "  test: 2 queries, 3 judgements"]


def test_any_collection_of_ir_datasets_by_its_name(tmp_path, capsys):
    name = tiny_irds(tmp_path / "release")
    main([f"irds:{name}", "--output", str(tmp_path / "out")])
    assert (tmp_path / "out" / "topics.tsv").read_text() == "query_id\ttext\n1\tlooms\n"
    assert (tmp_path / "out" / f"{name}.qrels").read_text() == "1 0 a 1\n"
    assert capsys.readouterr().out.startswith(f"irds: 2 papers of {name}, by ir_datasets\n")
