"""``qbe train``: train the models that qbe ships, and sentence encoders."""

from __future__ import annotations

import argparse

from qbe.cli import common
from qbe.cli.common import refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from qbe.train.work import Sources

OF_PAIRS = "graded pairs to train on, files or folders with train*.tsv (default: those of a checkout"
OPTIONS = {
    "output": "--output DIR!  the folder to write the model to",
    "work": "--work DIR!  the folder of checkpoints and other finished parts",
    "seeds": "--seeds 0,1,2 (0,1,2)  one model each, and their mean",
    "seed": "--seeds 0,1,2 (0)  one model each, and their mean",
    "threads": "--threads N  default: all available processors",
    "device": "--device cpu|cuda (cpu)  where it trains",
    "pairs": f"--pairs PATH...  {OF_PAIRS})",
    "wild": f"--pairs PATH...  {OF_PAIRS}, with its wild-train.tsv)",
    "devs": "--dev FILE...  graded pairs to measure on; the first chooses, the last calibrates chances "
    "(default: data/facet-judgments/dev.tsv in a checkout of the repository)",
    "corpus": "--corpus FILE  the papers of the pairs as JSON lines (default: in $QBE_DATA)",
    "leave-out": "--leave-out FILE  papers as JSON lines that models are evaluated on; papers with such a "
    "title are not trained on (default: in $QBE_DATA)",
    "index": "--index DIR!  an index of the pairs' papers",
    "collection": "--collection DIR!  written by qbe datasets citations, dblp, pubmed or open-research\n"
    "--index DIR!  an index of its papers.jsonl",
    "encoder": "--encoder NAME (all-MiniLM-L6-v2)  the model of the BERT family to start from: name in the "
    "registry, a folder, or a hub name",
    "base": "--encoder NAME (all-mpnet-base-v2)  the model of the kind BERT or MPNet to start from",
    "csabstruct": "--csabstruct DIR  its train, dev, test.jsonl (default: in $QBE_DATA)",
    "unlabelled": "--unlabelled FILE  papers as JSON lines (default: in $QBE_DATA)",
    "cocitations": "--cocitations FILE...!  pairs of co-cited papers, as JSON lines in ASPIRE's format\n"
    "--dev FILE...  the same, for dev (default: 5 %% of the sets)",
    "objective": "--objective bi-encoder|ts|ot|ts+ot|abs|att|max|cosent|ict  in the paper: SPECTER-CoCite, "
    "TSASPIRE, OTASPIRE, TS+OTASPIRE, its ablations ABS, ATT and MAX, the co-citation sentence encoder "
    "CoSentBert, and ICTSENTBERT, of the inverse cloze task (default: ot)",
    "aligner": "--aligner NAME_OR_FOLDER  an encoder, such as one of the objective cosent, that aligns the "
    "sentences of ts, ts+ot and abs (default: as the files say)",
    "losses": "--margin X  by which the distance of a negative should be larger (default: 1)\n"
    "--temperature X  tau of transport's masses or of attention (default: 0.5; 1 for att)\n"
    "--regularization X  lambda of transport (default: 20)",
    "batch": "--batch N  pairs a batch, three of which make a step (default: 10)\n"
    "--warm-up X  steps in which the rate rises, or below 1 their share of all (default: 0.05)",
    "similarity": "--similarity cosine|l2  l2: distances of vectors as they are, cosine: of unit length "
    "(default: l2)",
    "rates": "--epochs N  at most (default: 1)\n--learning-rate RATE  default: 2e-5; 1e-5 for ts+ot",
    "lengths": "--query-tokens N  tokens of the query to read (default: 256)\n"
    "--candidate-tokens N  tokens of a candidate to read (default: 256)",
    "classes": "--classes natural|balanced|all-cited|random  of citations: BM25's best candidates as they "
    "are, as many that are not cited as are, also all that is cited, or that and as many papers at random "
    "(default: natural)\n"
    "--candidates N  of citations: BM25's best of each query (default: 10)",
    "citations": "--collection DIR  written by qbe datasets citations: learn from it who cites whom, with "
    "one output and the loss bce, in place of graded pairs",
    "facet": "--facet background|method|result  a model of one output (default: one of three)\n"
    "--loss grades|margin|bce  squared error and RankNet of a list's grades, the margin of triplets ordered "
    "by grade, or cross-entropy of a grade of 1.5 or more (default: grades)\n"
    "--texts facet|abstract|whole  of the query its facet's sentences or its abstract, with the titles "
    "before or, whole, between [SEP] (default: facet with --facet, else abstract)\n"
    "--margin X  of --loss margin (default: 0.5)\n"
    "--triplets N  of --loss margin, of a query and epoch (default: 10)",
    "passes": "--epochs X  passes over the pairs, such as 0.5 (default: 1)\n"
    "--learning-rate RATE  the highest (default: 5e-5)\n"
    "--batch N  pairs a step (default: 16)\n"
    "--warm-up X  steps in which the rate rises, or below 1 their share of all (default: 0.1)\n"
    "--evaluations N  on dev, evenly spread; the best is kept (default: 8)",
    "tagger": "--tagger DIR!  the tagger's folder\n--encoder NAME_OR_FOLDER!  the encoder",
}
"""Options, by the names that COMMANDS gives them."""

COMMANDS = {
    "tagger": (
        "the facet tagger",
        "on CSAbstruct and unlabelled arXiv abstracts. Under an hour on two processors.",
        "tagger:TaggerTraining",
        "output work csabstruct unlabelled leave-out seeds threads",
    ),
    "encoder": (
        "a sentence encoder",
        "on co-citations with an objective of ASPIRE (Mysore et al., 2022).",
        "cocitations:CocitationTraining",
        "cocitations output work leave-out objective encoder aligner similarity rates batch losses seed "
        "threads device",
    ),
    "large-encoder": (
        "the large facet encoder",
        "all its layers and projections of its vectors, on graded pairs of arXiv papers (all-mpnet-base-v2: "
        "the difference is written). Three minutes on a large GPU, days on two processors.",
        "encoder:GradedTraining",
        "output work pairs base devs corpus leave-out seeds threads device",
    ),
    "citation": (
        "the citation model",
        "which recommends citations, over the vectors of an index and who cites whom.",
        "citation:CitationTraining",
        "collection output work seeds threads",
    ),
    "technique-words": (
        "the words of techniques and problems",
        "by counting in the titles of a corpus. Takes minutes; nothing is trained.",
        "words:WordsTraining",
        "output work corpus devs seed threads",
    ),
    "citation-pairs": (
        "a pair reranker for citations",
        "which reads a paper and a candidate for its bibliography together (Nogueira et al., BIR 2020), on "
        "the best candidates of BM25; it goes with --rerank of qbe cite and qbe search.",
        "citation_pairs:CitationPairTraining",
        "collection output work encoder lengths classes passes seed threads device",
    ),
    "cross-encoder": (
        "a cross-encoder of pairs of papers, for a facet, for all, or for citations",
        "of the BERT or RoBERTa family, on graded pairs of papers of an index (SciFACE, 2026, section 3.9) "
        "or, with --collection, as citation-pairs; Spearman's correlation on dev chooses. For --rerank.",
        "cross_encoder:CrossEncoderTraining",
        "index output work citations pairs devs leave-out encoder facet lengths classes passes seed threads "
        "device",
    ),
    "grades": (
        "the grade model",
        "which turns comparisons of papers into grades, over an index of the papers of graded pairs.",
        "grades:GradeTraining",
        "index output work pairs devs leave-out seeds threads",
    ),
    "joint-grades": (
        "joint grades: a cross-encoder of pairs of papers",
        "on graded pairs and on pairs of an index that a larger one grades. A quarter of an hour on a large "
        "GPU, weeks on two processors.",
        "joint:JointTraining",
        "index output work wild devs leave-out seed threads device",
    ),
    "facet-projections": (
        "the facet projections",
        "which rerank by stored vectors without a pass of a model, over an index of graded pairs' papers.",
        "projections:ProjectionTraining",
        "index output work pairs devs leave-out seeds threads",
    ),
    "admit": (
        "allow a tagger to be used with another encoder than it was trained on",
        "",
        "tagger:admit",
        "tagger csabstruct threads",
    ),
}
"""What each subcommand trains and more about it, the module (of `qbe.train`) and class of its training, and
its options.
"""
ADMITS = """\
Measure a facet tagger on an encoder whose weights are close to those of the encoder it was trained on, and \
record in the tagger's card that it can be used with it."""


def _about(line: str, more: str) -> str:
    said = f"Train {line}, {more} It is written with a card; an interrupted call continues from --work."
    return said if more else ADMITS


PARSER = common.commands_parser(
    "qbe train",
    "Train the models that qbe ships, and sentence encoders of your own.",
    {
        name: (line, _about(line, more), "\n".join(OPTIONS[each] for each in names.split()))
        for name, (line, more, _, names) in COMMANDS.items()
    },
)

_PAPERS, _ABSTRACTS = "arxiv-cs/arxiv-cs.jsonl.xz", "csfcube/abstracts-csfcube-preds.jsonl"
_BELOW_DATA = {"csabstruct": "csabstruct", "unlabelled": _PAPERS, "corpus": _PAPERS, "leave_out": _ABSTRACTS}
"""What options are by default, below QBE_DATA."""


def main(arguments: list[str]) -> None:
    """Train, and print what the model's card says of its figures."""
    options = PARSER.parse_args(arguments)
    from pathlib import Path

    threads = common.threads(options.threads)
    if options.command == "admit":
        csabstruct = _path(options, "csabstruct")
        scores = _training("admit")(Path(options.tagger), options.encoder, csabstruct, threads)
        for split, figures in scores.items():
            print(f"{split}: micro-F1 {figures['micro_f1']:.2f}, folded {figures['folded']:.2f}")
        return
    from qbe.models.cards import check_model_folder

    check_model_folder(Path(options.output))
    texts = options.seeds.split(",")
    are_seeds = all(text.isdecimal() and int(text) < 2**32 for text in texts)
    refuse(not are_seeds, f"expected --seeds such as 0,1,2, found {options.seeds!r}")
    sources = _sources(options)
    cites = options.command == "cross-encoder" and options.collection
    make = _training("citation-pairs" if cites else options.command)
    own = {name: getattr(options, name) for name in ("encoder", "aligner") if getattr(options, name, None)}
    if options.command == "encoder":
        from qbe.train.cocitations import CocitationRecipe

        own["recipe"] = common.made(CocitationRecipe, options)
    if options.command in ("citation-pairs", "cross-encoder"):
        from qbe.train.cross_encoder import CrossEncoderRecipe

        own["recipe"] = common.made(CrossEncoderRecipe, options)
    from qbe.train.work import Folders, RunOptions, run_training

    folders = Folders(Path(options.output), Path(options.work))
    seeds = tuple(dict.fromkeys(map(int, texts)))
    run_training(make(**own), sources, folders, RunOptions(seeds, threads, getattr(options, "device", "cpu")))
    card = (folders.output / "README.md").read_text(encoding="utf-8")
    print(f"{options.output}: {card.partition('## Figures')[2].strip()}")


def _path(options: argparse.Namespace, name: str) -> Path:
    """The path that an option gives, or what it stands for below QBE_DATA."""
    import os
    from pathlib import Path

    value, folder, below = getattr(options, name), os.environ.get("QBE_DATA"), _BELOW_DATA[name]
    told = f"expected `{name}`, or QBE_DATA set to a folder that holds {below}, found neither"
    refuse(value is None and not folder, told)
    return Path(folder or "", below) if value is None else Path(value)


def _training(command: str) -> Callable[..., Any]:
    """The class of a training, or the function of ``admit``."""
    from importlib import import_module

    module, _, name = COMMANDS[command][2].partition(":")
    called: Callable[..., Any] = getattr(import_module(f"qbe.train.{module}"), name)
    return called


def _sources(options: argparse.Namespace) -> Sources:
    """The files and the index that the options give, or their defaults in a checkout or QBE_DATA."""
    from pathlib import Path

    from qbe.train.pairs import data_file, pair_files
    from qbe.train.work import Sources

    fields: dict[str, Any] = {}
    if getattr(options, "collection", None):
        fields |= {split: (Path(options.collection, f"{split}.qrels"),) for split in ("train", "dev")}
    elif "pairs" in options:
        names = ["facet-judgments/train.tsv", "graded-pairs"]
        if options.command == "joint-grades":
            names.append("graded-pairs/wild-train.tsv")
        fields["train"] = pair_files(map(Path, options.pairs or [data_file("pairs", name) for name in names]))
    elif "cocitations" in options:
        fields["train"] = tuple(map(Path, options.cocitations))
    elif "csabstruct" in options:
        fields["train"] = (_path(options, "csabstruct"),)
    if "train" in fields and "dev" in fields:
        return Sources(**fields, index=Path(options.index))
    if "dev" in options and options.dev:
        fields["dev"] = tuple(map(Path, options.dev))
    elif "dev" in options and options.command != "encoder":
        fields["dev"] = (data_file("dev", "facet-judgments/dev.tsv"),)
    for name, field in (("unlabelled", "corpus"), ("corpus", "corpus"), ("leave_out", "leave_out")):
        if name in options:
            fields[field] = _path(options, name)
    if "index" in options:
        fields["index"] = Path(options.index)
    return Sources(**fields)
