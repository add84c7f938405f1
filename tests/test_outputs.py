"""What exists under the name of an output is replaced only by its own kind."""

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest

from qbe import models
from qbe.cli.search import main as search_main
from qbe.cli.tag import main as tag_main
from qbe.errors import OutputError, UsageError
from qbe.models.cards import check_model_folder
from qbe.util.outputs import CITED, REPORT, SEARCH, Result, check_output, with_tag

RUN = "q1 Q0 p7 1 2.5 qbe-dense\nq1 Q0 p8 2 2.25 qbe-dense\n"
PAPER = '{"paper_id": "p7", "title": "On fish", "abstract": "Fish swim."}\n'
LABELLED = '{"paper_id": "p7", "title": "T", "abstract": ["Fish swim."], "pred_labels": ["method_label"]}\n'


REPLACED: list[tuple[Result, str]] = [
    (SEARCH, RUN),
    (with_tag(SEARCH, "mine"), RUN),
    (with_tag(SEARCH, "mine"), "q1\tQ0\tp7\t1\t-2.5e-3\tmine\n"),
    (SEARCH, '{"query_id": "q1", "paper_id": "p7", "facet": null, "hits": []}\n'),
    (SEARCH, "Papers like “On fish”, for its method:\nNo paper was found.\n"),
    (SEARCH, "Papers for “Who uses fish?”: fish\nNo paper was found.\n"),
    (SEARCH, "query_id,rank,paper_id,title,authors,year\n"),
    (SEARCH, "TY  - JOUR\nDP  - qbe\nID  - 7\nER  - \n"),
    (SEARCH, ""),
    (SEARCH, "\n"),
    (REPORT, '{\n "protocol": null,\n "split": null}\n'),
]
KEPT: list[tuple[Result, str]] = [
    (SEARCH, PAPER),
    (SEARCH, "q1 Q0 p7 1 2.5 other\n"),
    (with_tag(SEARCH, "mine"), "q1 Q0 p7 1 2.5 other\n"),
    (SEARCH, "This is a note to self\n"),  # six words
    (SEARCH, "query_id\tpaper_id\tfacet\nq1\tp7\tmethod\n"),
    (SEARCH, "q1 0 p7 1\n"),  # judgements
    (SEARCH, "salmon river 7 1 2.5 kg\n"),  # six fields with numbers where a run has some
    (SEARCH, '{"query_id": "q1", "paper_id": "p7", "grades": {"method": 2}}\n'),  # answers of qbe label
    (SEARCH, '{"query_id": "q1", "text": "no \\"hits\\": [ here"}\n'),
    (SEARCH, "query_id,rank,paper_id,title,my notes\n"),
    (SEARCH, '{\n "papers": 3}\n'),
    (SEARCH, "TY  - JOUR\nTI  - On fish\nDP  - qbe\nER  - \n"),
    (SEARCH, "TY  - JOUR"),
    (SEARCH, "% my references\n@article{fish,\n}\n"),
    (SEARCH, "id,title,abstract\n"),
    (SEARCH, "## Papers\n"),
    (REPORT, RUN),
    (REPORT, '{"protocol": null}'),
]


def test_results_of_the_kind_are_replaced_and_anything_else_is_kept(tmp_path):
    for kind, text in REPLACED:
        (tmp_path / "out").write_text(text)
        check_output(tmp_path / "out", kind)
    for kind, text in KEPT:
        (tmp_path / "out").write_text(text)
        with pytest.raises(OutputError, match=f"or {kind.name} to replace, found another file; choose"):
            check_output(tmp_path / "out", kind)
        assert (tmp_path / "out").read_text() == text


def test_what_is_no_regular_file_passes_but_for_links_and_what_cannot_be_read(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "absent", tmp_path, tmp_path / "pipe", "/dev/null"):
        check_output(path, SEARCH)
    (tmp_path / "papers.jsonl").write_text(PAPER)
    (tmp_path / "link").symlink_to("papers.jsonl")
    with pytest.raises(OutputError, match="found another file"):
        check_output(tmp_path / "link", SEARCH)
    (tmp_path / "run").write_text(RUN)

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(OutputError, match=r"found a file that cannot be read \(Permission denied\); choose"):
        check_output(tmp_path / "run", SEARCH)


@pytest.fixture
def search(tiny_index):
    def run(*arguments: object) -> None:
        options = ["--index", str(tiny_index), "--first-stage", "dense", "--rerank", "none", "--hits", "2"]
        search_main([*options, *map(str, arguments)])

    return run


@pytest.mark.parametrize("source", [["--paper", "s001"], ["--topics", "topics.tsv"]])
def test_a_search_keeps_a_corpus(search, sample, tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    Path("topics.tsv").write_bytes((sample / "topics.tsv").read_bytes())
    Path("papers.jsonl").write_text(PAPER)
    for name in ("papers.jsonl", "topics.tsv"):
        before = Path(name).read_bytes()
        with pytest.raises(OutputError, match="a result of qbe search to replace, found another file"):
            search(*source, "--output", name, "--format", "trec")
        assert Path(name).read_bytes() == before


def test_any_result_of_a_search_is_replaced_by_another(search, tmp_path):
    forms = ["trec", "json", "table", "csv", "markdown", "bibtex", "ris"]
    for first, second in pairwise([*forms, forms[0]]):
        search("--paper", "s001", "--output", tmp_path / "a", "--format", first)
        search("--paper", "s002", "--output", tmp_path / "b", "--format", second)
        search("--paper", "s002", "--output", tmp_path / "a", "--format", second)
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
        (tmp_path / "b").unlink()


@pytest.mark.parametrize("name", ["refs.bib", "refs.md"])
@pytest.mark.parametrize("source", ["--paper", "--topics"])
def test_a_result_that_was_edited_is_kept(search, sample, tmp_path, name, source):
    path, line = tmp_path / name, (source, sample / "topics.tsv" if source == "--topics" else "s001")
    for _ in range(2):  # what was not edited is replaced
        search(*line, "--output", path)
    with pytest.raises(OutputError, match=r"expected .* qbe cite to replace, found a result of qbe search"):
        check_output(path, CITED)
    for edited in (
        path.read_text() + "my note\n",
        "x".join(path.read_text().rsplit("e", 1)),
        "%% qbe search: q1\n",
    ):
        path.write_text(edited)
        with pytest.raises(OutputError, match="found one that was changed after it was written; choose"):
            search(*line, "--output", path)
        assert path.read_text() == edited


def test_the_name_of_another_format_needs_a_format(search, tmp_path):
    message = r"expected an --output that is named as a TREC run or ends in \.json, .* found .*a\.tsv; give"
    with pytest.raises(UsageError, match=message):
        search("--paper", "s001", "--output", tmp_path / "a.tsv")
    assert not any(tmp_path.iterdir())
    search("--paper", "s001", "--output", tmp_path / "a.tsv", "--format", "trec")
    assert (tmp_path / "a.tsv").read_text().startswith("s001 Q0 ")


def test_tagging_keeps_a_corpus_with_and_without_labels(tmp_path, tiny_tagger):
    papers, other = tmp_path / "papers.jsonl", tmp_path / "other.jsonl"
    papers.write_text(PAPER)
    options = ["--input", str(papers), "--tagger", str(tiny_tagger), "--output"]
    for text in (PAPER, LABELLED):
        other.write_text(text)
        with pytest.raises(OutputError, match="one without content to replace, found another file"):
            tag_main([*options, str(other)])
        assert other.read_text() == text
    tag_main([*options, str(tmp_path / "tagged.jsonl")])
    assert json.loads((tmp_path / "tagged.jsonl").read_text())["abstract"] == ["Fish swim."]


def test_tagging_does_not_write_into_its_input(tmp_path, tiny_tagger):
    papers = tmp_path / "papers.jsonl"
    papers.write_text(LABELLED)
    (tmp_path / "same.jsonl").symlink_to("papers.jsonl")
    for output in (papers, tmp_path / "same.jsonl"):
        with pytest.raises(UsageError, match=r"`output` other than the `input`, found .* as both"):
            tag_main(["--input", str(papers), "--output", str(output), "--tagger", str(tiny_tagger)])
    assert papers.read_text() == LABELLED


@pytest.fixture
def evaluation(sample, tmp_path) -> list[str]:
    """Options of an evaluation of two runs of the sample."""
    lines = (sample / "pools.tsv").read_text().splitlines()[1:]
    for name in ("a", "b"):
        ranks = (f"{' Q0 '.join(line.split())} 0 {-n} {name}\n" for n, line in enumerate(lines))
        (tmp_path / f"{name}.trec").write_text("".join(ranks))
    qrels = [str(sample / f"sample.{facet}.qrels") for facet in ("background", "method", "result")]
    runs = ["--run", str(tmp_path / "a.trec"), "--baseline", str(tmp_path / "b.trec")]
    return ["--protocol", "csfcube", "--qrels", *qrels, *runs]


def test_an_evaluation_keeps_a_run_and_replaces_a_report(evaluation, tmp_path, capsys):
    from qbe.cli.evaluate import main

    with pytest.raises(OutputError, match="a report of qbe evaluate to replace, found another file"):
        main([*evaluation, "--output", str(tmp_path / "a.trec")])
    for _ in range(2):
        main([*evaluation, "--output", str(tmp_path / "report.json")])
    assert json.loads((tmp_path / "report.json").read_text())["protocol"] == "csfcube"


def test_a_model_replaces_a_model_and_no_other_folder(tmp_path, tiny_encoder):
    folder = tmp_path / "model"
    check_model_folder(folder)
    (folder / "fp32").mkdir(parents=True)
    check_model_folder(folder)
    for file in tiny_encoder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "README.md").write_text("its card")
    check_model_folder(folder)
    (folder / "fp32" / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"a model to replace, found fp32/notes\.txt in it; choose another"):
        check_model_folder(folder)


def test_every_model_that_ships_may_be_replaced():
    folders = [path for path in Path(models.__path__[0]).iterdir() if (path / "README.md").exists()]
    assert len(folders) > 10
    for folder in folders:
        check_model_folder(folder)
