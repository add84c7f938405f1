"""Runs the ablations of ``ablations.toml``, and prints their tables.

    python -m scripts.ablations facets crossed --seeds 0 1 2  # some of them
    python -m scripts.ablations pairs --rows natural random --steps 300  # some rows, with shorter trainings
    python -m scripts.ablations aspire --table                # the table alone, of what has run

Commands run in a folder (``--work``); those that have finished there, which ``done.json`` names, are left
out. ``csfcube`` and ``mpnet`` look at the test folds. Data: ``data/`` of the repository, and $QBE_DATA with
arxiv-cs, csfcube and citations.
"""

import argparse
import itertools
import json
import os
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from scripts.models import ROOT, train

SHOWN = ("right by both", "F1@20", "F1@20 of means", "MRR", "R@1000", "NDCG%20", "MAP")
Sizes = Mapping[str, int]


def read_ablations() -> dict[str, dict[str, Any]]:
    """Ablations by name, with what they take of the one that they are ``like``."""
    read = tomllib.loads((ROOT / "scripts" / "ablations.toml").read_text(encoding="utf-8"))
    return {name: read.get(each.get("like"), {}) | each for name, each in read.items()}


def filled(ablation: Mapping[str, Any], row: str, of: str, sizes: Sizes) -> list[str]:
    """The commands or the files of a row, of one seed."""
    values = {**ablation.get("values", {}), **ablation["rows"][row], "row": row}
    texts = ablation[of]
    for _ in range(3):  # values have placeholders, too
        texts = [text.format(**values, **sizes) for text in texts]
    return [text for text in texts if text]


def commands_of(
    ablations: Mapping[str, Any], name: str, rows: Sequence[str] | None, every: Sequence[Sizes]
) -> list[str]:
    """All commands of an ablation in order, with those of another that it comes ``after``."""
    ablation = ablations[name]
    after = commands_of(ablations, ablation["after"], rows, every) if "after" in ablation else []
    chosen = [row for row in ablation["rows"] if row in (rows or ablation["rows"])]
    own = (filled(ablation, row, "commands", sizes) for sizes in every for row in chosen)
    return list(dict.fromkeys([*after, *ablation.get("before", ()), *itertools.chain.from_iterable(own)]))


def write_pairs(folder: Path, most: int) -> None:
    """Write whole lists of at most so many graded pairs to train on, and copies of files of dev."""
    data, names = ROOT / "data", ("graded-pairs/train-6.tsv", "graded-pairs/train.tsv")
    texts = [(data / name).read_text(encoding="utf-8").splitlines(keepends=True) for name in names]
    rows = itertools.chain.from_iterable(lines for _, *lines in texts)
    lists = [list(each) for _, each in itertools.groupby(rows, lambda row: row.partition("\t")[0])]
    kept = itertools.compress(lists, (size <= most for size in itertools.accumulate(map(len, lists))))
    folder.mkdir()
    (folder / "train.tsv").write_text("".join([texts[0][0], *itertools.chain.from_iterable(kept)]))
    for name in ("facet-judgments/dev.tsv", "graded-pairs/dev-2.tsv", "graded-pairs/dev-3.tsv"):
        shutil.copy(data / name, folder)


def figures_of(path: Path) -> Iterator[tuple[str, float]]:
    """Figures by their names, of what a training of pairs or an evaluation wrote."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if "training" in content:
        training = content["training"]
        for label, figures in training["dev"].items():
            yield from ((f"{label.removeprefix('pairs/')} {name}", value) for name, value in figures.items())
        every, curves = training["steps_per_measurement"], training["curves"].values()
        for number, *values in zip(itertools.count(1), *curves, strict=False):
            yield from ((f"dev after {every * number} steps", value) for value in values)
        return
    for row in content["rows"]:
        name = row["run"].rpartition(".")[2]
        for measure in SHOWN:
            for scope, value in row["figures"].get(measure, {}).items():
                yield f"{name} {measure} {scope}".removesuffix(" all"), value


def table(ablation: Mapping[str, Any], work: Path, every: Sequence[Sizes]) -> str:
    """Figures by row in Markdown: of several seeds the mean and the standard deviation."""
    names, cells = list(ablation["rows"]), dict[str, dict[str, list[float]]]()
    for name, sizes in itertools.product(names, every):
        paths = (work / file for file in filled(ablation, name, "files", sizes))
        for figure, value in itertools.chain.from_iterable(map(figures_of, filter(Path.is_file, paths))):
            cells.setdefault(figure, {}).setdefault(name, []).append(value)
    lines = [["", *names], ["---", *("---:" for _ in names)]]
    lines += [[figure, *(_cell(values.get(name, ())) for name in names)] for figure, values in cells.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(values: Sequence[float]) -> str:
    spread = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
    return f"{mean(values):.3f}{spread}" if values else ""


def main() -> None:
    ablations = read_ablations()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("names", nargs="+", choices=ablations, metavar="NAME", help=f"of {', '.join(ablations)}")
    add("--rows", nargs="+", metavar="ROW", help="default: all")
    add("--seeds", nargs="+", type=int, default=[0], metavar="N")
    add("--steps", type=int, metavar="N", help="of a training")
    add("--pairs", type=int, default=20_000, metavar="N", help="graded pairs to train on, at most")
    add("--table", action="store_true", help="print the tables of what has run, run nothing")
    add("--dry-run", action="store_true", help="print the commands, run nothing")
    add("--work", default="ablations", metavar="DIR", help="where it runs (default: ablations)")
    options = parser.parse_args()
    work = Path(options.work).resolve()
    if not (options.table or options.dry_run):
        work.mkdir(parents=True, exist_ok=True)
        if not (work / "pairs").exists():
            write_pairs(work / "pairs", options.pairs)
        if data := os.environ.get("QBE_DATA"):
            os.environ["QBE_DATA"] = str(Path(data).resolve())
    for name in options.names:
        steps = options.steps or ablations[name]["steps"]
        every = [{"seed": seed, "steps": steps, "three": 3 * steps} for seed in options.seeds]
        commands = commands_of(ablations, name, options.rows, every)
        if options.dry_run:
            print(*commands, sep="\n")
            continue
        if not options.table:
            train(name, commands, work)
        print(f"{ablations[name]['what']}; {steps} steps\n\n{table(ablations[name], work, every)}\n")


if __name__ == "__main__":
    main()
