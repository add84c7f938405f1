"""``qbe train``: train the models that qbe ships, and sentence encoders."""

import argparse
import os
import shlex
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from qbe.cli import common
from qbe.cli.common import refuse
from qbe.cli.parser import parse

if TYPE_CHECKING:
    from qbe.train.work import Sources

TRAININGS = {
    "tagger": "tagger:TaggerTraining",
    "encoder": "cocitations:CocitationTraining",
    "large-encoder": "encoder:GradedTraining",
    "citation": "citation:CitationTraining",
    "technique-words": "grades:WordsTraining",
    "citation-pairs": "citation_pairs:CitationPairTraining",
    "cross-encoder": "cross_encoder:CrossEncoderTraining",
    "grades": "grades:GradeTraining",
    "joint-grades": "joint:JointTraining",
    "facet-projections": "projections:ProjectionTraining",
    "admit": "tagger:admit",
}
"""By subcommand: the module of `qbe.train`, and the class of its training or its function."""

_PAPERS, _ABSTRACTS = "arxiv-cs/arxiv-cs.jsonl.xz", "csfcube/abstracts-csfcube-preds.jsonl"
_BELOW_DATA = {"csabstruct": "csabstruct", "unlabelled": _PAPERS, "corpus": _PAPERS, "leave_out": _ABSTRACTS}
"""What options are by default, below QBE_DATA."""


def main(arguments: list[str]) -> None:
    options = parse("train", arguments)

    if options.command == "admit":
        tagger, csabstruct = Path(options.tagger), _path(options, "csabstruct")
        admit = resolve_name(f"qbe.train.{TRAININGS['admit']}")
        scores = admit(tagger, options.encoder, csabstruct, options.threads)
        for split, figures in scores.items():
            print(f"{split}: micro-F1 {figures['micro_f1']:.2f}, folded {figures['folded']:.2f}")
        return

    texts = options.seeds.split(",")
    are_seeds = all(text.isdecimal() and int(text) < 2**32 for text in texts)
    refuse(not are_seeds, f"expected --seeds such as 0,1,2, found {options.seeds!r}")
    alone = options.command == "tagger" and options.start and not options.headings
    refuse(bool(alone), "expected --headings with --start, found none: what the tagger learns on from")

    from qbe.models.cards import check_model_folder
    from qbe.train.work import RunOptions, run_training

    check_model_folder(Path(options.output))
    sources = _sources(options)
    cites = options.command == "cross-encoder" and options.collection
    make = resolve_name(f"qbe.train.{TRAININGS['citation-pairs' if cites else options.command]}")
    named = ("encoder", "aligner", "start", *(["steps"] if options.command == "joint-grades" else []))
    own = {name: getattr(options, name) for name in named if getattr(options, name, None)}
    if options.command in ("encoder", "citation-pairs", "cross-encoder"):
        own["recipe"] = common.made(type(make.recipe), options)
    output, seeds = Path(options.output), tuple(dict.fromkeys(map(int, texts)))
    run = RunOptions(seeds, options.threads, getattr(options, "device", "cpu"), shlex.join(arguments))
    run_training(make(**own), sources, output, Path(options.work), run)
    card = (output / "README.md").read_text(encoding="utf-8")
    print(f"{options.output}: {card.partition('## Figures')[2].strip()}")


def _path(options: argparse.Namespace, name: str) -> Path:
    value, folder, below = getattr(options, name), os.environ.get("QBE_DATA"), _BELOW_DATA[name]
    told = f"expected `{name}`, or QBE_DATA set to a folder that holds {below}, found neither"
    refuse(value is None and not folder, told)
    return Path(folder or "", below) if value is None else Path(value)


def _sources(options: argparse.Namespace) -> "Sources":
    from qbe.train.pairs import data_file, pair_files
    from qbe.train.work import Sources

    if getattr(options, "collection", None):
        train, dev = (Path(options.collection, f"{split}.qrels") for split in ("train", "dev"))
        return Sources(train=(train,), dev=(dev,), index=Path(options.index))
    fields: dict[str, Any] = {}
    if "pairs" in options:
        names = ["facet-judgments/train.tsv", "graded-pairs"]
        if options.command in ("grades", "joint-grades"):
            names += [f"graded-pairs/wild-train{number}.tsv" for number in ("", "-2", "-3")]
        fields["train"] = pair_files(map(Path, options.pairs or [data_file("pairs", name) for name in names]))
    elif "cocitations" in options:
        fields["train"] = tuple(map(Path, options.cocitations))
    elif "csabstruct" in options:
        headings = map(Path, getattr(options, "headings", None) or ())
        fields["train"] = (_path(options, "csabstruct"), *headings)
    if "dev" in options and (options.dev or options.command != "encoder"):
        fields["dev"] = tuple(map(Path, options.dev or [data_file("dev", "facet-judgments/dev.tsv")]))
    for name, field in (("unlabelled", "corpus"), ("corpus", "corpus"), ("leave_out", "leave_out")):
        if name in options:
            fields[field] = _path(options, name)
    if "index" in options:
        fields["index"] = Path(options.index)
    return Sources(**fields)
