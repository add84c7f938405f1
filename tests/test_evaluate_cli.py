"""``qbe evaluate``: files joined, tables, JSON, error lines, exit codes."""

import csv
import json
import re
from pathlib import Path

import pytest
from support.runs import folds_text, run

from qbe.cli import common as _cli
from qbe.cli.evaluate import main
from qbe.errors import UsageError
from qbe.evaluate.measures import DEFAULT_MEASURES
from qbe.evaluate.report import group_runs
from qbe.runs import write_qrels

FACETS = ("background", "method", "result")


@pytest.fixture
def collection(tmp_path, monkeypatch):
    """Three facets of two queries with five judged documents, and two runs; relative file names."""
    monkeypatch.chdir(tmp_path)
    for facet in FACETS:
        queries = [f"1_{facet}", f"2_{facet}"]
        grades = {f"d{i}": 2 if i < 2 else 0 for i in range(5)}
        write_qrels(f"c.{facet}.qrels", dict.fromkeys(queries, grades))
        for name, order in (("good", "01234"), ("bad", "43201")):
            ranking = [f"d{number}" for number in order]
            run(dict.fromkeys(queries, ranking)).write(f"{name}.{facet}.trec")
    Path("folds.json").write_text(folds()["folds.json"])
    return tmp_path


def qrels():
    return ["--qrels", *(f"c.{facet}.qrels" for facet in FACETS)]


def runs(name):
    return [f"{name}.{facet}.trec" for facet in FACETS]


def test_values_of_queries_are_lines_as_of_trec_eval(collection, capsys):
    one = ["--qrels", "c.method.qrels", "--measures", "P@2", "--per-query", "--run"]
    main([*one, "good.method.trec"])
    lines = ["P@2\t1_method\t1.0000", "P@2\t2_method\t1.0000", "P@2\tmethod\t1.0000", "P@2\tall\t1.0000"]
    assert capsys.readouterr().out.splitlines() == lines
    Path("bad.method.trec").write_text("1_method Q0 d4 1 1.0 bad\n")
    main([*one, "good.method.trec", "bad.method.trec"])
    zeros = [f"bad\tP@2\t{number}_method\t0.0000" for number in (1, 2)]
    assert capsys.readouterr().out.splitlines()[4:6] == zeros


def test_protocol_table_has_a_row_a_run(collection, capsys):
    arguments = ["--protocol", "csfcube", *qrels(), "--run", *runs("good"), *runs("bad")]
    main(arguments)
    assert capsys.readouterr().out.splitlines()[2:] == [
        "NDCG%20 / MAP (per cent)       background           method           result       aggregated",
        "good                      100.00 / 100.00  100.00 / 100.00  100.00 / 100.00  100.00 / 100.00",
        "bad                          0.00 / 32.50     0.00 / 32.50     0.00 / 32.50     0.00 / 32.50",
    ]
    for facet in FACETS:
        Path(f"same.{facet}.trec").write_bytes(Path(f"bad.{facet}.trec").read_bytes())
    main([*arguments, *runs("same"), "--baseline", *runs("bad")])
    *_, good, same = capsys.readouterr().out.splitlines()
    assert same.startswith("same: +0.00 NDCG%20 against bad, mean over 6 queries, of which none differ (95 %")
    assert good == (
        "good: +100.00 NDCG%20 against bad, mean over 6 queries, of which 6 differ "
        "(95 % interval +100.00 to +100.00, Holm p 0.2500; +100.00 without 1_background)"
    )
    main([*arguments, "--details"])
    assert capsys.readouterr().out.startswith(
        "CSFCube protocol, test folds; queries: background 2, method 2, result 2, aggregated 6\n\n"
        "NDCG%20 (per cent)  background  method  result  aggregated\n"
        "good                    100.00  100.00  100.00      100.00\n"
        "bad                       0.00    0.00    0.00        0.00\n\n"
        "MAP (per cent)  background  method  result  aggregated\n"
        "good                100.00  100.00  100.00      100.00\n"
        "bad                  32.50   32.50   32.50       32.50\n"
    )


def test_plain_table_and_default_measures(collection, capsys):
    main([*qrels(), "--run", *runs("bad")])
    out = capsys.readouterr().out
    assert "means over queries (relevant: grade 1 or more, or as a measure says); queries: background" in out
    assert [line.split()[0] for line in out.splitlines() if line.endswith("all")] == list(DEFAULT_MEASURES)
    assert out.endswith("RR   background  method  result     all\nbad      0.2500  0.2500  0.2500  0.2500\n")
    main(["--protocol", "csfcube", *qrels(), "--run", "good.method.trec", "--details"])
    printed = capsys.readouterr()
    assert "warning: good: no background query in the run" in printed.err
    assert "good                         -  100.00       -           -" in printed.out


def test_json_report(collection, capsys):
    arguments = ["--protocol", "csfcube", *qrels(), "--run", *runs("bad"), "--details"]
    arguments += ["--published", "--baseline", *runs("good"), "--output", "out/report.json", "--overwrite"]
    main(arguments)
    report = json.loads(Path("out/report.json").read_text())
    assert (report["protocol"], report["split"]) == ("csfcube", "test")
    assert [row["run"] for row in report["rows"]] == ["bad", "good"]
    bad = report["rows"][0]
    assert bad["files"] == runs("bad")
    assert bad["figures"]["MAP"]["aggregated"] == pytest.approx((1 / 4 + 2 / 5) / 2)
    assert bad["fold_figures"]["MAP"]["method"] == pytest.approx([0.325, 0.325])
    assert len(bad["per_query"]["MAP"]) == 6
    comparison = report["comparisons"][3]
    assert (comparison["scope"], comparison["queries"], comparison["difference"]) == ("aggregated", 6, -1.0)
    assert comparison["randomization_p"] == 2 / 2**6
    assert {row["paper"] for row in report["published"]["rows"]} >= {"csfcube", "aspire", "sciface"}
    first = Path("out/report.json").read_bytes()
    main(arguments)
    assert Path("out/report.json").read_bytes() == first
    assert (comparison["wins"], comparison["ties"], comparison["losses"]) == (0, 0, 6)
    assert (comparison["interval"], comparison["without_influential"]) == ([-1.0, -1.0], -1.0)
    out = capsys.readouterr().out
    assert "bad     good     NDCG%20       aggregated  6     -100.00             0.0312" in out
    assert re.search(r"bad +good +NDCG%20 +aggregated +-100.00  -100.00 to -100.00 +0 +0 +6 +-100.00", out)
    assert "Nogueira et al. 2020" in out


def test_published_rows_are_those_of_the_papers(collection, capsys):
    """Cell by cell, as the command prints them, against the papers' tables."""
    main(["--protocol", "csfcube", *qrels(), "--run", *runs("good"), "--published", "--details"])
    tables: dict[str, dict[str, list[str]]] = {}
    printed = capsys.readouterr().out
    assert "\nPublished figures, on CSFCube:\n" in printed
    for line in printed.splitlines():
        cells = re.split("  +", line.strip())
        if cells[0].endswith(" (per cent)"):
            table = tables.setdefault(cells[0].removesuffix(" (per cent)").replace("%", ""), {})
        elif len(cells) == 5:
            table[cells[0].partition(" [")[0]] = cells[1:]
    with (Path(__file__).parent / "data" / "published" / "csfcube.tsv").open() as lines:
        rows = list(csv.DictReader(lines, delimiter="\t"))
    assert len(rows) == 26
    for row in rows:
        for measure in ("NDCG20", "MAP"):
            printed = [row[f"{measure}_{scope}"] or "-" for scope in (*FACETS, "aggregated")]
            assert tables[measure].get(row["system"], ["-"] * 4) == printed
    assert len(tables["NDCG20"]) == len(rows) + 2  # the run, and a model that was released
    for path in filter(Path.is_file, Path().iterdir()):  # papers with other ids than numbers
        path.write_text(re.sub(r"\b(\d_)", r"x\1", path.read_text()))
    main(["--protocol", "csfcube", *qrels(), "--run", *runs("good"), "--published"])
    assert "\nPublished figures, of other collections than these qrels: " in capsys.readouterr().out


def test_runs_are_grouped_by_facet_suffix():
    files = [Path("a/x.method.trec"), Path("a/x.result.trec"), Path("b/x.method.trec"), Path("a/y.trec")]
    assert group_runs(files) == {"a/x": (files[0], files[1]), "b/x": (files[2],), "y": (files[3],)}
    assert list(group_runs([Path("a.trec"), Path("a.txt"), Path("b.method")])) == ["a.trec", "a.txt", "b"]
    compressed = group_runs([Path("a.method.trec.gz"), Path("a.result.trec"), Path("b.c.trec.gz")])
    assert list(compressed) == ["a", "b.c"]
    with pytest.raises(UsageError, match="twice"):
        group_runs([files[0], files[0]])


CSFCUBE = "--protocol csfcube QRELS --run GOOD"


def folds(**changes: object) -> dict[str, str]:
    """The folds, with others of some facets."""
    halves = {facet: ([f"1_{facet}"], [f"2_{facet}"]) for facet in FACETS}
    return {"folds.json": folds_text(halves, **changes)}


def of_one(*queries: str) -> dict[str, list[str]]:
    return {name: list(queries) for name in ("fold1_dev", "fold2_dev", "fold1_test", "fold2_test")}


WRONG: list[tuple[dict[str, str | None], str]] = [
    # what is written to files (None: no such file), the options
    *(({}, "--qrels none.qrels --run GOOD"), ({}, "QRELS --run none.trec")),
    ({"c.method.qrels": "1_method 0 d1\n"}, "QRELS --run GOOD"),
    ({"c.method.qrels": "\n"}, "--qrels c.method.qrels --run x"),
    ({}, "--qrels c.method.qrels c.method.qrels --run GOOD"),
    ({"r.trec": "1_method Q0 d1 1 high r\n"}, "QRELS --run r.trec"),
    ({"r.trec": "9_x Q0 d1 1 2 r\n"}, "QRELS --run r.trec"),
    ({"r.trec": ""}, "QRELS --run r.trec"),
    ({}, "QRELS --run good.method.trec good.method.trec"),
    ({"good.method.run": "1_method Q0 d1 1 2 r\n"}, "QRELS --run good.method.trec good.method.run"),
    *(
        ({}, f"QRELS --run GOOD --measures {name}")
        for name in ("foo", "ndcg@10", "map", "P", "P@0", "AP,P@5", "P@5x")
    ),
    ({}, f"{CSFCUBE} --baseline BAD --worst 0"),
    *(({}, f"{CSFCUBE} --plot {name}") for name in ("./out.json", "gains.pdf")),
    ({}, "QRELS --run good.method.trec --baseline good.result.trec"),
    *(({}, f"{CSFCUBE} --baseline {each} --worst 1") for each in ("GOOD", "GOOD BAD", "c.method.qrels")),
    ({}, "--protocol csfcube QRELS --run good.method.trec --baseline bad.result.trec --worst 1"),
    ({}, f"{CSFCUBE} --baseline BAD --worst 3 --corpus none.jsonl"),
    ({}, f"{CSFCUBE} --worst 3"),
    ({}, "QRELS --run GOOD --published"),
    ({}, f"{CSFCUBE} --published --split dev"),
    *(({"folds.json": text}, CSFCUBE) for text in (None, "{", "[]")),
    *((folds(method=each), CSFCUBE) for each in ([1], {"fold1_dev": ["1_method"]})),
    *((folds(method=of_one(each)), CSFCUBE) for each in ("5_result", "1_method")),
    *(({"c.method.qrels": f"{each}_method 0 d1 1\n"}, CSFCUBE) for each in (9, 1)),
    *(
        ({}, f"--protocol {name} QRELS --run GOOD {more}")
        for more in ("--measures AP", "")
        for name in ("crossed", "exploration")
    ),
    ({"r.trec": "9_x Q0 d1 1 2 r\n"}, "--protocol as-asked QRELS --run r.trec"),
    ({"r.trec": "9_x Q0 d1 1 2 r\n"}, "--protocol citations QRELS --run r.trec"),
]


def test_errors_are_one_line(collection, capsys, told):
    words = {"QRELS": qrels(), "GOOD": runs("good"), "BAD": runs("bad")}
    before = {path: path.read_text() for path in Path().iterdir()}
    messages = []
    for change, arguments in WRONG:
        for name, text in change.items():
            Path(name).unlink() if text is None else Path(name).write_text(text)
        given = [word for part in arguments.split() for word in words.get(part, [part])]
        with pytest.raises(SystemExit) as ended:
            _cli.run("qbe evaluate", main, [*given, "--output", "out.json"])
        printed = capsys.readouterr()
        *warnings, message = printed.err.splitlines()
        assert all(": warning: " in line for line in warnings)
        messages.append(f"{ended.value.code} {message}")
        assert printed.out == ""
        assert not Path("out.json").exists()
        for path in Path().iterdir():
            path.unlink()
        for path, text in before.items():
            path.write_text(text)
    told("evaluate", messages)
