"""What the Makefile runs: training of all models in order, published runs and the tables of them."""

import hashlib
import json
import shutil
import sys
from pathlib import Path

import pytest

from qbe.cli.index import main as index_main
from qbe.cli.parser import parser_of
from qbe.cli.search import main as search_main
from qbe.datasets.collections import convert_csfcube
from qbe.search.stages import parse_first_stage, parse_reranker
from scripts import ablations, models, runs

pytestmark = pytest.mark.slow

MANIFEST = json.loads((models.MODELS / "manifest.json").read_text())


def test_models_come_after_those_they_are_trained_from():
    order = models.in_order(MANIFEST["models"], MANIFEST)
    assert sorted(order) == sorted(MANIFEST["models"])
    for place, name in enumerate(order):
        assert set(models.needed_models(name, MANIFEST)) <= set(order[:place])
    assert models.in_order(["grades", "facet-encoder"], MANIFEST) == ["facet-encoder", "grades"]
    assert models.HOURS.keys() == MANIFEST["models"].keys() - {"facet-encoder"}  # its recipe is retired


def test_a_dry_run_prints_the_plan_and_what_is_absent(monkeypatch, capsys):
    monkeypatch.delenv("QBE_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", ["models.py", "--dry-run", "facet-projections"])
    models.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "facet-projections: about 0.5 h; needs facet-encoder, facet-tagger"
    assert "  qbe datasets graded-pairs --source data --output papers" in lines
    absent = "csfcube/abstracts-csfcube-preds.jsonl: expected in data or $QBE_DATA, found in neither"
    assert f"  absent: {absent}" in lines
    assert lines[-1] == "about 0.5 h in all, on two cores without AMX"


def test_a_stale_source_fails(tmp_path, monkeypatch, capsys):
    shutil.copytree(models.ROOT / "data", tmp_path / "data")
    name = "facet-projections"
    places = [tmp_path / "data"]
    assert models.problems(name, MANIFEST, places)[1] == []
    pairs = tmp_path / "data" / "graded-pairs" / "train-2.tsv"
    pairs.write_text(pairs.read_text() + "a\tb\t0\t0\t0\n")
    (line,) = models.problems(name, MANIFEST, places)[1]
    assert line.startswith("graded-pairs/train-2.tsv: expected the digest 0f1b44eb817d, found ")
    assert models.problems(name, MANIFEST, places, ["graded-pairs"])[1] == []
    monkeypatch.setattr(models, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["models.py", "--dry-run", name])
    with pytest.raises(SystemExit, match="expected the sources of the manifest, found others"):
        models.main()
    assert f"  stale: {line}" in capsys.readouterr().out.splitlines()


def test_a_model_that_is_not_the_one_that_ships_is_stale(tmp_path, monkeypatch):
    shutil.copytree(models.MODELS / "facet-encoder", tmp_path / "facet-encoder")
    monkeypatch.setattr(models, "MODELS", tmp_path)
    assert models.problems("citation", MANIFEST, [])[1] == []
    (tmp_path / "facet-encoder" / "encoder.json").write_text("{}")
    (line,) = models.problems("citation", MANIFEST, [])[1]
    assert line == "facet-encoder: expected the digest 40df6613e7dc, found another"


def test_commands_that_have_run_are_left_out(tmp_path):
    commands = ["qbe datasets mini --output one", "qbe datasets mini --output two"]
    models.train("m", commands[:1], tmp_path)
    shutil.rmtree(tmp_path / "one")
    models.train("m", commands, tmp_path)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["done.json", "two"]


ABLATIONS = ablations.read_ablations()
SIZES = [{"seed": seed, "steps": 2, "three": 6} for seed in (0, 1)]


@pytest.mark.parametrize("name", ABLATIONS)
def test_ablations_are_commands_that_qbe_takes(name):
    commands = ablations.commands_of(ABLATIONS, name, None, SIZES)
    assert len(set(commands)) == len(commands) > 4
    for line in commands:
        _, command, *arguments = line.split()
        options = parser_of(command).parse_args(arguments)
        if command == "search":
            parse_first_stage(options.first_stage)
            parse_reranker(options.rerank)


def test_an_ablation_comes_after_another_and_has_the_rows_asked_for():
    lines = ablations.commands_of(ABLATIONS, "csfcube", ["ts+ot"], SIZES[:1])
    assert [line.split()[1] for line in lines[2:4]] == ["train", "index"]
    assert "--aligner all-MiniLM-L6-v2-sentences --steps 2 --seeds 0 --output ts+ot-2-0" in lines[2]


def test_ablations_learn_from_whole_lists(tmp_path):
    ablations.write_pairs(tmp_path / "pairs", 30)
    lines = (tmp_path / "pairs" / "train.tsv").read_text().splitlines()
    assert (len(lines), len({line.split("\t")[0] for line in lines})) == (29, 3)  # two lists of 14, a header
    assert len((tmp_path / "pairs" / "dev-2.tsv").read_text().splitlines()) == 2881


def test_a_table_has_the_means_of_seeds(tmp_path):
    for seed, value in ((0, 0.25), (1, 0.75)):
        folder = tmp_path / f"natural-2-{seed}"
        folder.mkdir()
        training = {"dev": {"reranked": {"f1": value}}, "steps_per_measurement": 5, "curves": {"s": [0.5]}}
        (folder / "reranker.json").write_text(json.dumps({"training": training}))
    (tmp_path / "runs").mkdir()
    row = {"run": "natural-2-0.pairs", "figures": {"MRR": {"all": 0.125}, "P@20": {"all": 1.0}}}
    (tmp_path / "runs" / "natural-2-0.pairs.json").write_text(json.dumps({"rows": [row]}))
    lines = ablations.table(ABLATIONS["pairs"], tmp_path, SIZES).splitlines()
    assert lines[0].startswith("|  | natural | balanced |")
    assert lines[2].startswith("| reranked f1 | 0.500 ± 0.354 |  |")
    assert [line.split(" | ")[1] for line in lines[3:]] == ["0.500 ± 0.000", "0.125"]


DESCRIBED = json.loads((runs.FOLDER / "runs.json").read_text())


def test_published_runs_are_those_of_their_digests_and_commands():
    assert list(DESCRIBED) == [name for name in runs.ROWS if name in DESCRIBED]
    assert {path.name for path in runs.FOLDER.glob("*.gz")} == {f"{name}.trec.gz" for name in DESCRIBED}
    assert sum(path.stat().st_size for path in runs.FOLDER.iterdir()) < 2_000_000
    for name, described in DESCRIBED.items():
        assert hashlib.sha256(runs.read_run(name)).hexdigest() == described["sha256"]
        row = runs.ROWS[name]
        assert described["row"] == row.name
        assert f" --first-stage {row.first_stage} --rerank" in described["commands"][-1]


def test_figures_are_compared_with_those_of_the_page(tmp_path):
    page, names = tmp_path / "page.md", [runs.ROWS[f"csfcube.{name}"].name for name in ("bm25", "dense")]
    page.write_text("".join(f"| {name.removeprefix('qbe ')} {'| 10.00 / 10.00 ' * 4}|\n" for name in names))
    for value, told in ((0.1, "all figures as published."), (0.1025, "1 of 2 rows as published, the others")):
        figures = [
            {measure: dict.fromkeys(runs.SCOPES, each) for measure in runs.MEASURES} for each in (0.1, value)
        ]
        made = [
            {"run": f"mini.{name}", "figures": each}
            for name, each in zip(("bm25", "dense"), figures, strict=True)
        ]
        (tmp_path / "mini.json").write_text(json.dumps({"rows": made}))
        assert runs.compared("mini", tmp_path, page).startswith(f"mini: {told}")


@pytest.fixture(scope="module")
def csfcube(qbe_data, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("csfcube")
    convert_csfcube(qbe_data / "csfcube", folder)
    return folder


def test_a_published_run_is_made_again_byte_for_byte(csfcube, tmp_path):
    """That of BM25, whose scores are the same on any processor; its index needs no vectors."""
    name, index = "csfcube.bm25", tmp_path / "index"
    row = runs.ROWS[name]
    index_main([*runs.index_command(row, index, csfcube)[2:], "--only=bm25"])
    search_main(runs.search_command(row, name, index, csfcube, tmp_path / "run.trec")[2:])
    assert (tmp_path / "run.trec").read_bytes() == runs.read_run(name)


def test_the_tables_are_those_of_the_runs(csfcube):
    rows = runs.table_rows(csfcube)
    for document in runs.DOCUMENTS:
        text = (runs.ROOT / document).read_text()
        assert runs.with_rows(text, rows) == text
    assert all(rows[row.name] in text for name, row in runs.ROWS.items() if name in DESCRIBED)
