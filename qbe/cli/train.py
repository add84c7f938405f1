"""``qbe train``: train the models that qbe ships, and sentence encoders."""

from __future__ import annotations

from qbe.cli import common as _cli
from qbe.cli.train_options import COMMANDS, PROGRAM, parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from qbe.train.work import Sources

OPTIONS: dict[str, str] = {}
"""Options that are not named as the parameter that a message of the library has."""

_DATA = {
    "csabstruct": "csabstruct",
    "unlabelled": "arxiv-cs/arxiv-cs.jsonl.xz",
    "corpus": "arxiv-cs/arxiv-cs.jsonl.xz",
    "leave_out": "csfcube/abstracts-csfcube-preds.jsonl",
}
"""The defaults of other options, below QBE_DATA."""

_FIELDS = {"csabstruct": "train", "cocitations": "train", "pairs": "train", "unlabelled": "corpus"}
"""What `qbe.train.work.Sources` calls an option of another name."""

_DEV = "facet-judgments/dev.tsv"
_JUDGMENTS = "facet-judgments/train.tsv"
_PAIRS = {
    "facet-projections": (_JUDGMENTS, "graded-pairs"),
    "grades": (_JUDGMENTS, "graded-pairs"),
    "joint-grades": (_JUDGMENTS, "graded-pairs", "graded-pairs/wild-train.tsv"),
    "large-encoder": (_JUDGMENTS, "graded-pairs"),
}
"""The defaults of ``--dev`` and ``--pairs``, in the folder data of the repository."""


def main(arguments: list[str]) -> None:
    options = parser().parse_args(arguments)
    from pathlib import Path

    threads = _cli.threads(options.threads)
    if options.command == "admit":
        csabstruct = _path("csabstruct", options.csabstruct)
        scores = _training("admit")(Path(options.tagger), options.encoder, csabstruct, threads)
        for split, figures in scores.items():
            print(f"{split}: micro-F1 {figures['micro_f1']:.2f}, folded {figures['folded']:.2f}")
        return
    from qbe.models.cards import check_model_folder

    check_model_folder(Path(options.output))
    seeds = _seeds(getattr(options, "seeds", "0"))
    sources = _sources(options)
    training = _training(options.command)(**_own(options))
    from qbe.train.work import Folders, RunOptions, run_training

    run = RunOptions(seeds, threads, getattr(options, "device", "cpu"))
    folders = Folders(Path(options.output), Path(options.work))
    run_training(training, sources, folders, run)
    card = (folders.output / "README.md").read_text(encoding="utf-8")
    print(f"{options.output}: {card.partition('## Figures')[2].strip()}")


def _training(command: str) -> Callable[..., Any]:
    """The class of a subcommand's training, or the function of ``admit``; raises MissingDependencyError
    without the extra ``train``.
    """
    from importlib import import_module

    from qbe.errors import MissingDependencyError

    _, _, training, _ = COMMANDS[command]
    module, _, function = training.partition(":")
    try:
        called: Callable[..., Any] = getattr(import_module(f"qbe.train.{module}"), function)
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"training needs the packages of its extra, found no {error.name}; run: pip install 'qbe[train]'"
        ) from error
    return called


def _own(options: argparse.Namespace) -> dict[str, Any]:
    """What one or some trainings take beside sources, folders and a run."""
    given = vars(options)
    own = {name: given[name] for name in ("encoder",) if given.get(name)}
    if options.command == "encoder":
        from qbe.train.encoder import CocitationRecipe

        own["recipe"] = CocitationRecipe(
            options.objective, options.similarity, options.epochs, options.learning_rate
        )
    if options.command == "citation-pairs":
        from qbe.train.cross_encoder import CrossEncoderRecipe

        fields = ("query_tokens", "candidate_tokens", "classes", "candidates", "epochs", "learning_rate")
        own["recipe"] = CrossEncoderRecipe(**{name: given[name] for name in fields})
    return own


def _sources(options: argparse.Namespace) -> Sources:
    """The files and the index that the options give, or that stand for them below QBE_DATA."""
    from pathlib import Path

    from qbe.train.work import Sources

    if options.command.startswith("citation"):
        collection = Path(options.collection)
        train, dev = ((collection / f"{split}.qrels",) for split in ("train", "dev"))
        return Sources(train=train, dev=dev, index=Path(options.index))
    fields: dict[str, Any] = {}
    for name in ("pairs", "csabstruct", "cocitations", "unlabelled", "corpus", "dev", "leave_out", "index"):
        if not hasattr(options, name):
            continue
        value, field = getattr(options, name), _FIELDS.get(name, name)
        if name == "pairs":
            fields[field] = _pairs(options)
        elif isinstance(value, list | tuple):
            fields[field] = tuple(map(Path, value))
        else:
            path = _path(name, value)
            fields[field] = (path,) if field in ("train", "dev") else path
    return Sources(**fields)


def _pairs(options: argparse.Namespace) -> tuple[Path, ...]:
    """The files of graded pairs to train on."""
    from pathlib import Path

    from qbe.train.pairs import data_file, pair_files

    if options.pairs:
        return pair_files(map(Path, options.pairs))
    return pair_files(data_file("pairs", name) for name in _PAIRS[options.command])


def _path(parameter: str, value: str | None) -> Path:
    """The path that an option gives, by default that of a name in the repository or below QBE_DATA."""
    import os
    from pathlib import Path

    from qbe.errors import UsageError

    if value is not None:
        return Path(value)
    if parameter == "dev":
        from qbe.train.pairs import data_file

        return data_file(parameter, _DEV)
    name, folder = _DATA[parameter], os.environ.get("QBE_DATA")
    if not folder:
        raise UsageError(
            f"expected `{parameter}`, or QBE_DATA set to a folder that holds {name}, found neither"
        )
    return Path(folder, name)


def _seeds(text: str) -> tuple[int, ...]:
    from qbe.errors import UsageError

    try:
        seeds = tuple(dict.fromkeys(map(int, text.split(","))))
        if not all(0 <= seed < 2**32 for seed in seeds):
            raise ValueError
    except ValueError:
        raise UsageError(f"expected seeds such as 0,1,2, found {text!r}; check `seeds`") from None
    return seeds


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
