"""Measures qbe on people's judgements outside CSFCube, and writes the tables of docs/evidence.md.

    python -m scripts.people           # all data sets (hours on two cores), then the tables
    python -m scripts.people cisi ...  # some of them
    python -m scripts.people --tables  # the tables alone, out of the runs that are there

Data sets are read from $QBE_DATA/people, or downloaded. Runs are ``runs/people.SET.SYSTEM.trec``. Intervals
(95 %) are over researchers, reviews, queries and abstracts.
"""

import argparse
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "evidence.md"
BEGIN, END = "<!-- written by scripts/people.py -->\n", "<!-- end -->\n"


class System(NamedTuple):
    """A row of the table: its name, the encoder of the index, first stage and reranker."""

    name: str
    encoder: str
    first_stage: str
    rerank: str = "none"


SMALL, LARGE, PLAIN = "facet-encoder", "facet-encoder-large", "all-MiniLM-L6-v2"
SYSTEMS: Mapping[str, System] = {
    "bm25": System("BM25", SMALL, "bm25"),
    "minilm": System("all-MiniLM-L6-v2, untrained: dense", PLAIN, "dense"),
    "dense": System("dense", SMALL, "dense"),
    "fused": System("fused", SMALL, "fused"),
    "grades": System("fused, grades", SMALL, "fused", "grades"),
    "default": System("fused, grades, joint grades (default)", SMALL, "fused", "grades:joint=20"),
    "large-dense": System("large encoder, dense", LARGE, "dense"),
    "large-grades": System("large encoder, fused, grades", LARGE, "fused", "grades"),
}
# Data set -> the protocol and what it prints first; headings have their own tagger as the system.
RANKED: Mapping[str, tuple[str | None, tuple[str, ...]]] = {
    "reviewers": ("reviewers", ("loss", "easy", "hard")),
    "reviews": ("reviews", ("AP(rel=2)",)),
    "cisi": (None, ("AP",)),
}
HEADINGS, TAGGED = "headings", Path("runs", "people.headings.tagger.jsonl")
TITLES = ("researchers' scores: loss", "easy", "hard", "reviews: AP", "CISI: AP")


def qbe(*words: str) -> None:
    print("$ qbe", shlex.join(words), flush=True)
    subprocess.run([sys.executable, "-m", "qbe", *words], check=True)


def make(name: str, systems: Iterable[str]) -> None:
    """Make the runs of a data set that are not there, or are not finished."""
    folder = Path("qrels", "people", name)
    qbe("datasets", name, "--output", str(folder))
    if name == HEADINGS:
        files = ["--input", f"{folder}/corpus.jsonl", "--output", str(TAGGED), "--overwrite"]
        qbe("tag", "--facets", "predicted", *files)
        return
    for system in (key for key in systems if not run_of(name, key).exists()):
        of = SYSTEMS[system]
        index = Path("indexes", f"people-{name}-{of.encoder}")
        if not (index / "CURRENT").exists():
            encoder = ["--encoder", of.encoder] if of.encoder != SMALL else []
            qbe("index", "--corpus", f"{folder}/corpus.jsonl", *encoder, "--output", str(index), "--resume")
        source = ["--index", str(index), "--topics", f"{folder}/topics.tsv", "--pool", f"{folder}/pools.tsv"]
        stages = ["--first-stage", of.first_stage, "--rerank", of.rerank, "--hits", "2000", "--resume"]
        qbe("search", *source, *stages, "--run-tag", system, "--output", str(run_of(name, system)))


def run_of(name: str, system: str) -> Path:
    return Path("runs", f"people.{name}.{system}.trec")


def tables(qrels: Path = Path("qrels", "people")) -> str:
    """Return the tables as Markdown: rankings beside published rows, and the tagger; cells without runs
    stay as they are.
    """
    from qbe.evaluate.report import published_under

    page = PAGE.read_text(encoding="utf-8")
    before = dict(re.findall(r"^\| ([^|]+) \|(.+)\|$", page, re.MULTILINE))
    cells = {name: {system: cells_of(qrels, name, system) for system in SYSTEMS} for name in RANKED}
    lines = [f"| | {' | '.join(TITLES)} |", "|---|" + "---:|" * len(TITLES)]
    for system, of in SYSTEMS.items():
        kept = [cell.strip() for cell in before.get(of.name, "| " * len(TITLES)).split("|")]
        made = [cell for name in RANKED for cell in cells[name][system]]
        row = [cell or old for cell, old in zip(made, kept, strict=False)]
        if any(row):
            lines.append(f"| {of.name} | {' | '.join(row)} |")
    sources, rows = published_under("reviewers")
    for published in rows:
        figures = [published.figures[measure]["all"] for measure in RANKED["reviewers"][1]]
        digits = max(len(str(figure)) - 2 for figure in figures)  # as many as are printed
        row = [f"{figure:.{digits}f}".removeprefix("0") for figure in figures]
        lines.append(f"| {published.system} ({sources[published.paper].short}) | {' | '.join(row)} | | |")
    if tagged := figures_of(qrels / HEADINGS / "corpus.jsonl", TAGGED, HEADINGS):
        said = textwrap.fill(f"Facet tagger, below authors' headings: {'; '.join(tagged)}.", 120)
    else:
        said = page[page.index("Facet tagger, below") : page.index(END)].strip()
    return "\n".join([*lines, "", said]) + "\n"


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
    names = (*RANKED, HEADINGS)
    parser.add_argument(
        "names", nargs="*", metavar="SET", help=f"data sets (default: all): {', '.join(names)}"
    )
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="rows to make")
    parser.add_argument("--tables", action="store_true", help="write the tables alone")
    options = parser.parse_args()
    if unknown := set(options.names) - set(names):
        parser.error(f"expected data sets ({', '.join(names)}), found {min(unknown)}")
    Path("runs").mkdir(exist_ok=True)
    for name in () if options.tables else options.names or names:
        make(name, options.systems)
    text, written = PAGE.read_text(encoding="utf-8"), tables()
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{written}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    print(written, end="")


if __name__ == "__main__":
    main()
