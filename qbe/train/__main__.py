"""``python -m qbe.train``: train the models that qbe ships."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from qbe import _cli
from qbe.errors import MissingDependencyError, UsageError


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(prog="python -m qbe.train", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    tagger = commands.add_parser(
        "tagger",
        help="the facet tagger",
        description="Train the facet tagger on CSAbstruct and unlabelled arXiv abstracts, export it, and "
        "write its model card. Under an hour on two processors; an interrupted call goes on with what is in "
        "--work.",
    )
    data = "(default: in $QBE_DATA)"
    tagger.add_argument("--csabstruct", type=Path, metavar="DIR", help=f"its train, dev, test.jsonl {data}")
    tagger.add_argument("--unlabelled", type=Path, metavar="FILE", help=f"papers as JSON lines {data}")
    tagger.add_argument(
        "--leave-out",
        type=Path,
        metavar="FILE",
        help=f"papers as JSON lines that are evaluated on: no paper with such a title is learned from {data}",
    )
    tagger.add_argument("--output", type=Path, required=True, metavar="DIR", help="the tagger's folder")
    tagger.add_argument("--work", type=Path, required=True, metavar="DIR", help="for finished parts")
    tagger.add_argument(
        "--seeds", default="0,1,2", metavar="0,1,2", help="one student each (default: %(default)s)"
    )
    tagger.add_argument("--threads", type=int, help="default: all processors this process may use")
    return parser


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    threads = _cli.threads(options.threads)
    try:
        seeds = tuple(dict.fromkeys(map(int, options.seeds.split(","))))
    except ValueError:
        raise UsageError(f"expected seeds such as 0,1,2, found {options.seeds!r}; check --seeds") from None
    csabstruct = options.csabstruct or _in_data("csabstruct", "--csabstruct")
    unlabelled = options.unlabelled or _in_data("arxiv-cs/arxiv-cs.jsonl.xz", "--unlabelled")
    leave_out = options.leave_out or _in_data("csfcube/abstracts-csfcube-preds.jsonl", "--leave-out")

    try:
        from qbe.train.tagger_publish import train_tagger
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"training needs torch and transformers, found no {error.name}; run: pip install 'qbe[train]'"
        ) from error
    card = train_tagger(csabstruct, unlabelled, leave_out, options.output, options.work, seeds, threads)
    figures = card.training["test"]
    found = f"micro-F1 {figures['micro_f1']:.2f}, folded {figures['folded']:.2f}"
    print(f"{options.output}: {found} on CSAbstruct's test split")


def _in_data(name: str, option: str) -> Path:
    folder = os.environ.get("QBE_DATA")
    if not folder:
        raise UsageError(f"expected {option}, or QBE_DATA set to a folder that holds {name}, found neither")
    return Path(folder) / name


if __name__ == "__main__":
    _cli.run("qbe.train", main)
