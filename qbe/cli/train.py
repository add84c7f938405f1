"""``qbe train``: train the models that qbe ships, and sentence encoders."""

from __future__ import annotations

import argparse

from qbe.cli import common

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from qbe.train.work import Sources

_CONTINUES = "An interrupted call continues from --work."
_PAIRS = "graded pairs to train on, files or folders with train*.tsv (default: data/facet-judgments/train.tsv"
OPTIONS = {
    "output": "--output DIR!  the folder to write the model to",
    "work": "--work DIR!  the folder of checkpoints and other finished parts",
    "seeds": "--seeds 0,1,2 (0,1,2)  one model each, and their mean",
    "seed": "--seeds 0,1,2 (0)  one model each, and their mean",
    "threads": "--threads N  default: all available processors",
    "device": "--device cpu|cuda (cpu)  where it trains",
    "pairs": f"--pairs PATH...  {_PAIRS} and data/graded-pairs in a checkout)",
    "wild": f"--pairs PATH...  {_PAIRS}, data/graded-pairs, and its wild-train.tsv in a checkout)",
    "devs": "--dev FILE...  graded pairs to measure on; the first chooses, the last calibrates chances "
    "(default: data/facet-judgments/dev.tsv in a checkout of the repository)",
    "corpus": "--corpus FILE  the papers of the pairs as JSON lines (default: in $QBE_DATA)",
    "leave-out": "--leave-out FILE  papers as JSON lines that models are evaluated on; papers with such a "
    "title are not trained on (default: in $QBE_DATA)",
    "index": "--index DIR!  an index of the pairs' papers",
    "collection": "--collection DIR!  written by qbe datasets citations or citeomatic",
    "collection-index": "--index DIR!  an index of its papers.jsonl",
    "encoder": "--encoder NAME (all-MiniLM-L6-v2)  the model of the BERT family to start from: name in the "
    "registry, a folder, or a hub name",
    "base": "--encoder NAME (all-mpnet-base-v2)  the model of the kind BERT or MPNet to start from",
    "csabstruct": "--csabstruct DIR  its train, dev, test.jsonl (default: in $QBE_DATA)",
    "unlabelled": "--unlabelled FILE  papers as JSON lines (default: in $QBE_DATA)",
    "cocitations": "--cocitations FILE...!  pairs of co-cited papers, as JSON lines in ASPIRE's format",
    "dev-cocitations": "--dev FILE...  the same, for dev (default: 5 %% of the sets)",
    "objective": "--objective bi-encoder|ts|ot|ts+ot|abs|att|max|cosent|ict  in the paper: SPECTER-CoCite, "
    "TSASPIRE, OTASPIRE, TS+OTASPIRE, its ablations ABS, ATT and MAX, the co-citation sentence encoder "
    "CoSentBert, and ICTSENTBERT, of the inverse cloze task (default: ot)",
    "aligner": "--aligner NAME_OR_FOLDER  an encoder, such as one of the objective cosent, that aligns the "
    "sentences of ts, ts+ot and abs (default: as the files say)",
    "margin": "--margin X  by which the distance of a negative should be larger (default: 1)",
    "temperature": "--temperature X  tau of transport's masses or of attention (default: 0.5; 1 for att)",
    "regularization": "--regularization X  lambda of transport (default: 20)",
    "batch": "--batch N  pairs a batch, three of which make a step (default: 10)",
    "warm-up": "--warm-up X  steps in which the rate rises, or below 1 their share of all (default: 0.05)",
    "similarity": "--similarity cosine|l2  l2: distances of vectors as they are, cosine: of unit length "
    "(default: l2)",
    "epochs": "--epochs N  at most (default: 1)",
    "learning-rate": "--learning-rate RATE  default: 2e-5; 1e-5 for ts+ot",
    "query-tokens": "--query-tokens N  tokens of the query to read (default: 256)",
    "candidate-tokens": "--candidate-tokens N  tokens of a candidate to read (default: 256)",
    "classes": "--classes natural|balanced|all-cited|random  of citations: BM25's best candidates as they are, "
    "as many that are not cited as are, also all that is cited, or that and as many papers at random "
    "(default: natural)",
    "candidates": "--candidates N  of citations: BM25's best of each query (default: 10)",
    "papers-index": "--index DIR!  an index of the papers",
    "citations": "--collection DIR  written by qbe datasets citations: learn from it who cites whom, with one "
    "output and the loss bce, in place of graded pairs",
    "facet": "--facet background|method|result  a model of one output (default: one of three)",
    "loss": "--loss grades|margin|bce  squared error and RankNet of a list's grades, the margin of triplets "
    "ordered by grade, or cross-entropy of a grade of 1.5 or more (default: grades)",
    "texts": "--texts facet|abstract|whole  of the query its facet's sentences or its abstract, with the titles "
    "before or, whole, between [SEP] (default: facet with --facet, else abstract)",
    "margin-of-scores": "--margin X  of --loss margin (default: 0.5)",
    "triplets": "--triplets N  of --loss margin, of a query and epoch (default: 10)",
    "pair-batch": "--batch N  pairs a step (default: 16)",
    "rises": "--warm-up X  steps in which the rate rises, or below 1 their share of all (default: 0.1)",
    "evaluations": "--evaluations N  on dev, evenly spread; the best is kept (default: 8)",
    "passes": "--epochs X  passes over the pairs, such as 0.5 (default: 1)",
    "highest-rate": "--learning-rate RATE  the highest (default: 5e-5)",
    "tagger": "--tagger DIR!  the tagger's folder",
    "other-encoder": "--encoder NAME_OR_FOLDER!  the encoder",
}
"""Options, by the names that COMMANDS gives them."""

COMMANDS = {
    "tagger": (
        "the facet tagger",
        "Train the facet tagger on CSAbstruct and unlabelled arXiv abstracts, export it, and write its model "
        f"card. Under an hour on two processors. {_CONTINUES}",
        "tagger:TaggerTraining",
        "output work csabstruct unlabelled leave-out seeds threads",
    ),
    "encoder": (
        "a sentence encoder",
        "Train a sentence encoder on co-citations with an objective of ASPIRE (Mysore et al., 2022), export "
        f"it, and write its card. {_CONTINUES}",
        "cocitations:CocitationTraining",
        "cocitations output work dev-cocitations leave-out objective encoder aligner similarity epochs "
        "learning-rate batch warm-up margin temperature regularization seed threads device",
    ),
    "large-encoder": (
        "the large facet encoder",
        "Train all layers of an encoder, and projections of its vectors, on graded pairs of arXiv papers, "
        "and write it (all-mpnet-base-v2: the difference from it) and the projections with their cards. "
        f"Three minutes on a large GPU, days on two processors. {_CONTINUES}",
        "encoder:GradedTraining",
        "output work pairs base devs corpus leave-out seeds threads device",
    ),
    "citation": (
        "the citation model",
        "Train the model that recommends citations, over the vectors of an index and who cites whom, and "
        f"write it with a model card. {_CONTINUES}",
        "citation:CitationTraining",
        "collection collection-index output work seeds threads",
    ),
    "technique-words": (
        "the words of techniques and problems",
        "Count the words of the titles of a corpus by what they name, a technique or a problem, and write "
        "them with a card. Takes minutes; nothing is trained.",
        "words:WordsTraining",
        "output work corpus devs seed threads",
    ),
    "citation-pairs": (
        "a pair reranker for citations",
        "Train a reranker that reads a paper and a candidate for its bibliography together (Nogueira et al., "
        "BIR 2020) on the best candidates of BM25, export it for --rerank of qbe cite and qbe search, and "
        f"write its card. {_CONTINUES}",
        "citation_pairs:CitationPairTraining",
        "collection collection-index output work encoder query-tokens candidate-tokens classes candidates "
        "passes highest-rate pair-batch rises evaluations seed threads device",
    ),
    "cross-encoder": (
        "a cross-encoder of pairs of papers, for a facet, for all, or for citations",
        "Train a cross-encoder of the BERT or RoBERTa family on graded pairs (SciFACE, 2026, section 3.9) or, "
        "with --collection, on citations, as citation-pairs does; export it for --rerank, and write its card. "
        f"Spearman's correlation on dev chooses among evaluations. {_CONTINUES}",
        "cross_encoder:CrossEncoderTraining",
        "papers-index output work citations pairs devs leave-out encoder facet loss texts query-tokens "
        "candidate-tokens classes candidates margin-of-scores triplets passes highest-rate pair-batch rises "
        "evaluations seed threads device",
    ),
    "grades": (
        "the grade model",
        "Train the model that turns comparisons of papers into grades, over an index of the papers of graded "
        f"pairs, and write it with a model card. {_CONTINUES}",
        "grades:GradeTraining",
        "index output work pairs devs leave-out seeds threads",
    ),
    "joint-grades": (
        "joint grades: a cross-encoder of pairs of papers",
        "Train the cross-encoder that grades pairs of papers, on graded pairs and on pairs of an index that "
        "a larger one grades, and write it with a model card. A quarter of an hour on a large GPU, weeks on "
        f"two processors. {_CONTINUES}",
        "joint:JointTraining",
        "index output work wild devs leave-out seed threads device",
    ),
    "facet-projections": (
        "the facet projections",
        "Train the projections of stored vectors that rerank without a pass of a model, over an index of "
        f"graded pairs' papers, and write them with a model card. {_CONTINUES}",
        "projections:ProjectionTraining",
        "index output work pairs devs leave-out seeds threads",
    ),
    "admit": (
        "allow a tagger to be used with another encoder than it was trained on",
        "Measure a facet tagger on an encoder whose weights are close to those of the encoder it was trained "
        "on, and record in the tagger's card that it can be used with it.",
        "tagger:admit",
        "tagger other-encoder csabstruct threads",
    ),
}
"""The line of each subcommand in the help of the command, its description, the module (of `qbe.train`) and
the class of its training, and its options.
"""

PARSER = common.Parser("qbe train", "Train the models that qbe ships, and sentence encoders of your own.")
_commands = PARSER.add_subparsers(dest="command", required=True)
for _name, (_line, _about, _, _options) in COMMANDS.items():
    _command = _commands.add_parser(_name, help=_line, description=_about)
    _command.options("\n".join(OPTIONS[each] for each in _options.split()))

_SOURCES = {
    "pairs": ("train", ""),
    "csabstruct": ("train", "csabstruct"),
    "cocitations": ("train", ""),
    "unlabelled": ("corpus", "arxiv-cs/arxiv-cs.jsonl.xz"),
    "corpus": ("corpus", "arxiv-cs/arxiv-cs.jsonl.xz"),
    "dev": ("dev", ""),
    "leave_out": ("leave_out", "csfcube/abstracts-csfcube-preds.jsonl"),
    "index": ("index", ""),
}
"""The fields of `qbe.train.work.Sources` that options give, and their defaults below QBE_DATA."""


def main(arguments: list[str]) -> None:
    """Train, and print what the model's card says of its figures."""
    options = PARSER.parse_args(arguments)
    from pathlib import Path

    threads = common.threads(options.threads)
    if options.command == "admit":
        csabstruct = _path("csabstruct", options.csabstruct)
        scores = _training("admit")(Path(options.tagger), options.encoder, csabstruct, threads)
        for split, figures in scores.items():
            print(f"{split}: micro-F1 {figures['micro_f1']:.2f}, folded {figures['folded']:.2f}")
        return
    from qbe.errors import UsageError
    from qbe.models.cards import check_model_folder

    check_model_folder(Path(options.output))
    try:
        seeds = tuple(dict.fromkeys(map(int, options.seeds.split(","))))
        if not all(0 <= seed < 2**32 for seed in seeds):
            raise ValueError
    except ValueError:
        raise UsageError(f"expected seeds such as 0,1,2, found {options.seeds!r}; check `seeds`") from None
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
    run_training(make(**own), sources, folders, RunOptions(seeds, threads, getattr(options, "device", "cpu")))
    card = (folders.output / "README.md").read_text(encoding="utf-8")
    print(f"{options.output}: {card.partition('## Figures')[2].strip()}")


def _training(command: str) -> Callable[..., Any]:
    """The class of a training, or the function of ``admit``; raises MissingDependencyError."""
    from importlib import import_module

    from qbe.errors import MissingDependencyError

    module, _, name = COMMANDS[command][2].partition(":")
    try:
        called: Callable[..., Any] = getattr(import_module(f"qbe.train.{module}"), name)
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"training needs the packages of its extra, found no {error.name}; run: pip install 'qbe[train]'"
        ) from error
    return called


def _sources(options: argparse.Namespace) -> Sources:
    """The files and the index that the options give, or that stand for them below QBE_DATA."""
    from pathlib import Path

    from qbe.train.pairs import data_file, pair_files
    from qbe.train.work import Sources

    if getattr(options, "collection", None):
        collection = Path(options.collection)
        train, dev = ((collection / f"{split}.qrels",) for split in ("train", "dev"))
        return Sources(train=train, dev=dev, index=Path(options.index))
    pairs = ["facet-judgments/train.tsv", "graded-pairs"]
    if options.command == "joint-grades":
        pairs.append("graded-pairs/wild-train.tsv")
    fields: dict[str, Any] = {}
    for name in [each for each in _SOURCES if each in options]:
        field, value = _SOURCES[name][0], getattr(options, name)
        if name == "pairs":
            fields[field] = pair_files(
                map(Path, value) if value else (data_file(name, each) for each in pairs)
            )
        elif isinstance(value, list):
            fields[field] = tuple(map(Path, value))
        elif name == "dev":
            default = "facet-judgments/dev.tsv"
            fields[field] = () if options.command == "encoder" else (data_file(name, default),)
        else:
            path = _path(name, value)
            fields[field] = (path,) if field == "train" else path
    return Sources(**fields)


def _path(parameter: str, value: str | None) -> Path:
    """The path that an option gives, by default that of a name below QBE_DATA."""
    import os
    from pathlib import Path

    from qbe.errors import UsageError

    if value is not None:
        return Path(value)
    name, folder = _SOURCES[parameter][1], os.environ.get("QBE_DATA")
    if not folder:
        raise UsageError(
            f"expected `{parameter}`, or QBE_DATA set to a folder that holds {name}, found neither"
        )
    return Path(folder, name)
