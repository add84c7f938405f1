"""Measures qbe on people's judgements outside CSFCube, and writes the table of docs/evidence.md.

    python -m scripts.people           # all data sets (hours on two cores), then the table
    python -m scripts.people cisi ...  # some of them
    python -m scripts.people --tables  # the table alone, out of the runs that are there

Data sets are read from $QBE_DATA/people, or downloaded. Runs are ``runs/people.SET.SYSTEM.trec``. Intervals
(95 %) are over researchers, reviews, queries and abstracts.
"""

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path

from scripts.runs import LARGE, ROOT, SMALL, Row, index_command, run, search_command

PAGE = ROOT / "docs" / "evidence.md"
BEGIN, END = "<!-- written by scripts/people.py -->\n", "<!-- end -->\n"

SYSTEMS: Mapping[str, Row] = {
    "bm25": Row("BM25", SMALL, "bm25"),
    "minilm": Row("all-MiniLM-L6-v2, untrained: dense", "all-MiniLM-L6-v2", "dense"),
    "dense": Row("dense", SMALL, "dense"),
    "fused": Row("fused", SMALL, "fused"),
    "grades": Row("fused, grades", SMALL, "fused", "grades"),
    "default": Row("fused, grades, joint grades (default)", SMALL, "fused", "grades:joint=20"),
    "large-dense": Row("large encoder, dense", LARGE, "dense"),
    "large-grades": Row("large encoder, fused, grades", LARGE, "fused", "grades"),
}
# Data set -> the protocol and what it prints first; headings have their own tagger as the system.
RANKED: Mapping[str, tuple[str | None, tuple[str, ...]]] = {
    "reviewers": ("reviewers", ("loss", "easy", "hard")),
    "reviews": ("reviews", ("AP(rel=2)",)),
    "cisi": (None, ("AP",)),
}
HEADINGS, TAGGED = "headings", Path("runs", "people.headings.tagger.jsonl")
TAGGER = "Facet tagger, below authors' headings: "


def make(name: str, systems: Iterable[str]) -> None:
    """Make the runs of a data set that are not there, or are not finished."""
    folder = Path("qrels", "people", name)
    run(["qbe", "datasets", name, "--output", str(folder)])
    if name == HEADINGS:
        files = ["--input", f"{folder}/corpus.jsonl", "--output", str(TAGGED), "--overwrite"]
        run(["qbe", "tag", "--facets", "predicted", *files])
        return
    for system in (key for key in systems if not run_of(name, key).exists()):
        row = SYSTEMS[system]
        index = Path("indexes", f"people-{name}-{row.encoder}")
        if not (index / "CURRENT").exists():
            run([*index_command(row, index, folder), "--resume"])
        search = search_command(row, system, index, folder, run_of(name, system))
        run([*search, "--hits", "2000", "--resume"])


def run_of(name: str, system: str) -> Path:
    return Path("runs", f"people.{name}.{system}.trec")


def with_figures(written: str, qrels: Path = Path("qrels", "people")) -> str:
    """The table with the figures of all runs, and the tagger's; what has no run stays as it is."""
    systems, lines = {row.name: system for system, row in SYSTEMS.items()}, []
    for line in written.split("\n"):
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        if name in systems:
            made = [cell for each in RANKED for cell in cells_of(qrels, each, systems[name])]
            row = [cell or old for cell, old in zip(made, cells, strict=True)]
            line = f"| {name} | {' | '.join(row)} |"
        elif line.startswith(TAGGER):
            tagged = figures_of(qrels / HEADINGS / "corpus.jsonl", TAGGED, HEADINGS)
            line = f"{TAGGER}{'; '.join(tagged)}." if tagged else line
        lines.append(line)
    return "\n".join(lines)


def cells_of(qrels: Path, name: str, system: str) -> list[str]:
    protocol, measures = RANKED[name]
    figures = figures_of(qrels / name / f"{name}.qrels", run_of(name, system), protocol, measures)
    return [figure.partition(" ")[2] for figure in figures] or [""] * len(measures)


def figures_of(qrels: Path, run: Path, protocol: str | None, measures: tuple[str, ...] = ()) -> list[str]:
    """Return the figures of a run, each after its name, with intervals of means; none without a run."""
    from qbe.evaluate.report import Scoring, build_report
    from qbe.evaluate.significance import figure_interval

    if not run.exists():
        return []
    own = () if protocol in ("reviewers", HEADINGS) else measures
    (evaluation,) = build_report([qrels], [run], Scoring(protocol, own)).evaluations.values()
    said = []
    for measure in measures or evaluation.figures:
        text = f"{measure} {evaluation.figures[measure]['all']:.3f}".replace(" 0.", " .")
        if measure in evaluation.per_query:
            low, high = figure_interval(evaluation, measure, "all")
            text += f" ({low:.3f} to {high:.3f})".replace("0.", ".")
        said.append(text)
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names, add = (*RANKED, HEADINGS), parser.add_argument
    add("names", nargs="*", metavar="SET", help=f"data sets (default: all): {', '.join(names)}")
    add("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="rows to make")
    add("--tables", action="store_true", help="write the table alone")
    options = parser.parse_args()
    if unknown := set(options.names) - set(names):
        parser.error(f"expected data sets ({', '.join(names)}), found {min(unknown)}")
    Path("runs").mkdir(exist_ok=True)
    for name in () if options.tables else options.names or names:
        make(name, options.systems)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    written, _, after = rest.partition(END)
    written = with_figures(written)
    PAGE.write_text(f"{before}{BEGIN}{written}{END}{after}", encoding="utf-8")
    print(written.strip())


if __name__ == "__main__":
    main()
