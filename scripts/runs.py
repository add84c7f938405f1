"""Makes the runs of the tables of CSFCube again: ``runs/published/``, and the rows of README and docs.

    python -m scripts.runs            # all runs (half an hour to an hour on two cores), then the tables
    python -m scripts.runs NAME ...   # some of them
    python -m scripts.runs --tables   # the tables alone, out of the runs that are there
    python -m scripts.runs --compare mini csfcube  # what `make reproduce` made, with docs/reproduce.md

``runs/published/NAME.trec.gz`` is a run of CSFCube's 50 queries over their pools;
``runs/published/runs.json`` has its row's name, the commands that made it, its digest (SHA-256 of the run
before compression), the digest of the index, and the processor: scores of models differ in their
last digits between processors, those of BM25 do not. CSFCube is read from $QBE_DATA/csfcube, or downloaded.
"""

import argparse
import gzip
import hashlib
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "runs" / "published"
DOCUMENTS = ("README.md", "docs/reproduce.md")
SCOPES = ("background", "method", "result", "aggregated")
MEASURES = ("NDCG%20", "MAP")


class Row(NamedTuple):
    """A row of the tables: its name there, the encoder of the index, first stage and reranker."""

    name: str
    encoder: str
    first_stage: str
    rerank: str = "none"


SMALL, LARGE, BIG = "facet-encoder", "facet-encoder-large", "qbe large encoder"
PLAIN = "fused:background_penalty=0"
ROWS: Mapping[str, Row] = {
    "csfcube.bm25": Row("qbe bm25", SMALL, "bm25"),
    "csfcube.dense": Row("qbe dense", SMALL, "dense"),
    "csfcube.fused-without-penalty": Row(f"qbe {PLAIN}", SMALL, PLAIN),
    "csfcube.fused+projections": Row("qbe fused, projections", SMALL, "fused", "projections"),
    "csfcube.fused+grades": Row("qbe fused, grades", SMALL, "fused", "grades"),
    "csfcube.fused+joint": Row(
        "qbe fused, grades, joint grades (default)", SMALL, "fused", "grades:joint=20"
    ),
    "csfcube-large.dense": Row(f"{BIG}, dense", LARGE, "dense"),
    "csfcube-large.fused-without-penalty": Row(f"{BIG}, {PLAIN}", LARGE, PLAIN),
    "csfcube-large.fused+projections": Row(f"{BIG}, fused, projections", LARGE, "fused", "projections"),
    "csfcube-large.fused+grades": Row(f"{BIG}, fused, grades", LARGE, "fused", "grades"),
}


def index_command(row: Row, index: Path, qrels: Path) -> list[str]:
    """The command that builds the index of a row."""
    encoder = ["--encoder", row.encoder] if row.encoder != SMALL else []
    return ["qbe", "index", "--corpus", f"{qrels}/corpus.jsonl", *encoder, "--output", str(index)]


def search_command(row: Row, tag: str, index: Path, qrels: Path, output: Path) -> list[str]:
    """The command that makes the run of a row."""
    source = ["--index", str(index), "--topics", f"{qrels}/topics.tsv", "--pool", f"{qrels}/pools.tsv"]
    stages = ["--first-stage", row.first_stage, "--rerank", row.rerank]
    return ["qbe", "search", *source, *stages, "--run-tag", tag, "--output", str(output)]


def make(names: Iterable[str]) -> None:
    """Make runs, compressed, and what is said of them in runs.json."""
    from benchmarks.common import processor
    from qbe.index.store import read_manifest

    qrels, made = Path("qrels"), Path("runs/published/runs.json")
    described = json.loads(made.read_text(encoding="utf-8")) if made.exists() else {}
    convert = ["qbe", "datasets", "csfcube", "--output", str(qrels)]
    run(convert)
    built = set[Path]()
    for name in names:
        row = ROWS[name]
        index, output = Path("indexes", name.partition(".")[0]), Path("runs", f"{name}.trec")
        build = index_command(row, index, qrels)
        if index not in built:  # an index of before may be of another encoder
            run([*build, "--overwrite"])
            built.add(index)
        search = search_command(row, name, index, qrels, output)
        run([*search, "--overwrite"])
        content = output.read_bytes()
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / f"{name}.trec.gz").write_bytes(gzip.compress(content, 9, mtime=0))
        described[name] = {
            "row": row.name,
            "commands": [shlex.join(command) for command in (convert, build, search)],
            "sha256": hashlib.sha256(content).hexdigest(),
            "index": read_manifest(index).digest,
            "processor": processor().partition(" with ")[0],
        }
        ordered = {name: described[name] for name in ROWS if name in described}
        made.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


def run(command: list[str]) -> None:
    print("$", shlex.join(command), flush=True)
    subprocess.run([sys.executable, "-m", *command], check=True)


def read_run(name: str) -> bytes:
    """The run of a name, as it was written."""
    return gzip.decompress((FOLDER / f"{name}.trec.gz").read_bytes())


def table_rows(qrels: Path) -> dict[str, str]:
    """The rows of the tables by their first cell: NDCG%20 / MAP of each facet, from runs, or as published."""
    from tempfile import TemporaryDirectory

    from qbe.evaluate.report import Scoring, build_report, published_under

    figures: dict[str, Mapping[str, Mapping[str, float | None]]] = {}
    files = [qrels / f"csfcube.{facet}.qrels" for facet in SCOPES[:3]]
    if all(file.exists() for file in files):
        for name, row in ROWS.items():
            if (FOLDER / f"{name}.trec.gz").exists():
                with TemporaryDirectory() as folder:
                    run = Path(folder, f"{name}.trec")
                    run.write_bytes(read_run(name))
                    report = build_report(files, [run], Scoring("csfcube"))
                figures[row.name] = report.evaluations[name].figures
    sources, rows = published_under("csfcube")
    for published in rows:
        figures[f"{published.system} ({sources[published.paper].short})"] = published.figures
    return {name: _line(name, of_row) for name, of_row in figures.items()}


def _line(name: str, figures: Mapping[str, Mapping[str, float | None]]) -> str:
    return f"| {name} | {' | '.join(_cell(figures, scope) for scope in SCOPES)} |"


def _cell(figures: Mapping[str, Mapping[str, float | None]], scope: str) -> str:
    values = [figures.get(measure, {}).get(scope) for measure in MEASURES]
    texts = ["-" if value is None else f"{100 * value:.2f}" for value in values]
    return " / ".join(texts) if any(value is not None for value in values) else ""


def with_rows(text: str, rows: Mapping[str, str]) -> str:
    """A document in which the rows of the tables that have five columns are those of ``rows``."""
    lines = []
    for line in text.split("\n"):
        match = re.match(r"\| (.+?) \|(?:[^|]*\|){4}$", line)
        lines.append(rows.get(match[1], line) if match else line)
    return "\n".join(lines)


def compared(collection: str, runs: Path = Path("runs"), page: Path = ROOT / DOCUMENTS[1]) -> str:
    """Say how many rows that ``make reproduce`` made of a collection are those of the documentation."""
    published = page.read_text(encoding="utf-8").split("\n")
    made = json.loads((runs / f"{collection}.json").read_text(encoding="utf-8"))["rows"]
    names = [ROWS[row["run"].replace(collection, "csfcube", 1)].name for row in made]
    if collection != "csfcube":
        names = [name.removeprefix("qbe ") for name in names]
    same = sum(_line(name, row["figures"]) in published for name, row in zip(names, made, strict=True))
    if same == len(made):
        return f"{collection}: all figures as published."
    why = "perhaps other data or releases (qbe doctor names them), or rounding of another processor"
    return f"{collection}: {same} of {len(made)} rows as published, the others differ: {why}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"runs (default: all): {', '.join(ROWS)}")
    parser.add_argument("--tables", action="store_true", help="write the tables alone")
    parser.add_argument("--compare", nargs="+", metavar="COLLECTION", help="compare figures alone")
    options = parser.parse_args()
    if options.compare:
        print("\n".join(map(compared, options.compare)))
        return
    if unknown := set(options.names) - ROWS.keys():
        parser.error(f"expected names of runs ({', '.join(ROWS)}), found {min(unknown)}")
    if not options.tables:
        make(options.names or ROWS)
    rows = table_rows(Path("qrels"))
    for name in DOCUMENTS:
        path = ROOT / name
        path.write_text(with_rows(path.read_text(encoding="utf-8"), rows), encoding="utf-8")
    print("\n".join(rows.values()))


if __name__ == "__main__":
    main()
