"""The options of ``qbe train``.

Choices and defaults are written out here, since help must not load the modules that have them.
"""

from __future__ import annotations

from qbe.cli import common as _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    Option = tuple[str, dict[str, Any]]
    """An option, and what `argparse` is told of it."""

PROGRAM = "qbe train"
OBJECTIVES = ("bi-encoder", "ts", "ot", "ts+ot")
SIMILARITIES = ("cosine", "l2")
_DATA = "(default: in $QBE_DATA)"
_CONTINUES = "An interrupted call continues from --work."


def _option(name: str, metavar: str | None, text: str, **settings: Any) -> Option:
    default = " (default: %(default)s)" if settings.get("default") else ""
    metavars = {} if metavar is None else {"metavar": metavar}
    return name, {**metavars, "help": text + default, **settings}


def _pairs(default: str) -> Option:
    return _option(
        "--pairs",
        "PATH",
        f"graded pairs to train on, files or folders with train*.tsv (default: {default} in a checkout of "
        "the repository)",
        nargs="+",
    )


def _run(seeds: str = "0,1,2") -> tuple[Option, ...]:
    """What every training takes."""
    return (
        _OUTPUT,
        _option("--work", "DIR", "the folder of checkpoints and other finished parts", required=True),
        _option("--seeds", "0,1,2", "one model each, and their mean", default=seeds),
        _THREADS,
    )


_OUTPUT = _option("--output", "DIR", "the folder to write the model to", required=True)
_THREADS = _option("--threads", "N", "default: all available processors", type=int)
_DEVICE = _option("--device", None, "where it trains", choices=("cpu", "cuda"), default="cpu")
_CSABSTRUCT = _option("--csabstruct", "DIR", f"its train, dev, test.jsonl {_DATA}")
_OF_CHECKOUT = "(default: data/facet-judgments/dev.tsv in a checkout of the repository)"
_DEV_FILES = _option(
    "--dev",
    "FILE",
    f"graded pairs to measure on; the first chooses, the last calibrates chances {_OF_CHECKOUT}",
    nargs="+",
)
_CORPUS = _option("--corpus", "FILE", f"the papers of the pairs as JSON lines {_DATA}")
_LEAVE_OUT = _option(
    "--leave-out",
    "FILE",
    f"papers as JSON lines that models are evaluated on; papers with such a title are not trained on {_DATA}",
)
_PAIRS_INDEX = _option("--index", "DIR", "an index of the pairs' papers", required=True)
_COLLECTION = _option("--collection", "DIR", "written by qbe datasets citations or citeomatic", required=True)
_COLLECTION_INDEX = _option("--index", "DIR", "an index of its papers.jsonl", required=True)
_PAIRS = _pairs("data/facet-judgments/train.tsv and data/graded-pairs")
_BERT = _option(
    "--encoder",
    "NAME",
    "the model of the BERT family to start from: name in the registry, a folder, or a hub name",
    default="all-MiniLM-L6-v2",
)


COMMANDS: dict[str, tuple[str, str, str, tuple[Option, ...]]] = {
    "tagger": (
        "the facet tagger",
        "Train the facet tagger on CSAbstruct and unlabelled arXiv abstracts, export it, and write its model "
        f"card. Under an hour on two processors. {_CONTINUES}",
        "tagger:TaggerTraining",
        (
            _CSABSTRUCT,
            _option("--unlabelled", "FILE", f"papers as JSON lines {_DATA}"),
            _LEAVE_OUT,
            *_run(),
        ),
    ),
    "encoder": (
        "a sentence encoder",
        "Train a sentence encoder on co-citations with an objective of ASPIRE (Mysore et al., 2022), export "
        f"it, and write its card. {_CONTINUES}",
        "encoder:CocitationTraining",
        (
            _option(
                "--cocitations",
                "FILE",
                "pairs of co-cited papers, as JSON lines in ASPIRE's format",
                nargs="+",
                required=True,
            ),
            _option("--dev", "FILE", "the same, for dev (default: 5 %% of the sets)", nargs="+", default=()),
            _LEAVE_OUT,
            _option(
                "--objective",
                None,
                "in the paper: SPECTER-CoCite, TSASPIRE, OTASPIRE, TS+OTASPIRE",
                choices=OBJECTIVES,
                default="ot",
            ),
            _BERT,
            _option(
                "--similarity",
                None,
                "l2: distances of vectors as they are, cosine: of unit length",
                choices=SIMILARITIES,
                default="l2",
            ),
            _option("--epochs", "N", "at most", type=int, default=1),
            _option("--learning-rate", "RATE", "default: 2e-5; 3e-5 for ot", type=float),
            *_run("0"),
            _DEVICE,
        ),
    ),
    "large-encoder": (
        "the large facet encoder",
        "Train all layers of an encoder, and projections of its vectors, on graded pairs of arXiv papers, "
        "and write it (all-mpnet-base-v2: the difference from it) and the projections with their cards. "
        f"Three minutes on a large GPU, days on two processors. {_CONTINUES}",
        "encoder:GradedTraining",
        (
            _PAIRS,
            _option(
                "--encoder",
                "NAME",
                "the model of the kind BERT or MPNet to start from",
                default="all-mpnet-base-v2",
            ),
            _DEV_FILES,
            _CORPUS,
            _LEAVE_OUT,
            *_run(),
            _DEVICE,
        ),
    ),
    "citation": (
        "the citation model",
        "Train the model that recommends citations, over the vectors of an index and who cites whom, and "
        f"write it with a model card. {_CONTINUES}",
        "citation:CitationTraining",
        (
            _COLLECTION,
            _COLLECTION_INDEX,
            *_run(),
        ),
    ),
    "technique-words": (
        "the words of techniques and problems",
        "Count the words of the titles of a corpus by what they name, a technique or a problem, and write "
        "them with a card. Takes minutes; nothing is trained.",
        "words:WordsTraining",
        (_CORPUS, _DEV_FILES, *_run("0")),
    ),
    "citation-pairs": (
        "a pair reranker for citations",
        "Train a reranker that reads a paper and a candidate for its bibliography together (Nogueira et al., "
        "BIR 2020) on the best candidates of BM25, export it for --rerank of qbe cite and qbe search, and "
        f"write its card. {_CONTINUES}",
        "cross_encoder:CrossEncoderTraining",
        (
            _COLLECTION,
            _COLLECTION_INDEX,
            _BERT,
            _option("--query-tokens", "N", "tokens of the query to read", type=int, default=256),
            _option("--candidate-tokens", "N", "tokens of a candidate to read", type=int, default=256),
            _option(
                "--classes",
                None,
                "BM25's best candidates as they are, as many that are not cited as are, or also all that is "
                "cited",
                choices=("natural", "balanced", "all-cited"),
                default="natural",
            ),
            _option("--candidates", "N", "BM25's best of each query", type=int, default=10),
            _option("--epochs", "N", "passes over the pairs, such as 0.5", type=float, default=1.0),
            _option("--learning-rate", "RATE", "the highest", type=float, default=5e-5),
            *_run("0"),
            _DEVICE,
        ),
    ),
    "grades": (
        "the grade model",
        "Train the model that turns comparisons of papers into grades, over an index of the papers of graded "
        f"pairs, and write it with a model card. {_CONTINUES}",
        "grades:GradeTraining",
        (
            _PAIRS_INDEX,
            _PAIRS,
            _DEV_FILES,
            _LEAVE_OUT,
            *_run(),
        ),
    ),
    "joint-grades": (
        "joint grades: a cross-encoder of pairs of papers",
        "Train the cross-encoder that grades pairs of papers, on graded pairs and on pairs of an index that "
        "a larger one grades, and write it with a model card. A quarter of an hour on a large GPU, weeks on "
        f"two processors. {_CONTINUES}",
        "joint:JointTraining",
        (
            _PAIRS_INDEX,
            _pairs("data/facet-judgments/train.tsv, data/graded-pairs, and its wild-train.tsv"),
            _DEV_FILES,
            _LEAVE_OUT,
            *_run("0"),
            _DEVICE,
        ),
    ),
    "facet-projections": (
        "the facet projections",
        "Train the projections of stored vectors that rerank without a pass of a model, over an index of "
        f"graded pairs' papers, and write them with a model card. {_CONTINUES}",
        "projections:ProjectionTraining",
        (
            _PAIRS_INDEX,
            _PAIRS,
            _DEV_FILES,
            _LEAVE_OUT,
            *_run(),
        ),
    ),
    "admit": (
        "allow a tagger to be used with another encoder than it was trained on",
        "Measure a facet tagger on an encoder whose weights are close to those of the encoder it was trained "
        "on, and record in the tagger's card that it can be used with it.",
        "tagger:admit",
        (
            _option("--tagger", "DIR", "the tagger's folder", required=True),
            _option("--encoder", "NAME_OR_FOLDER", "the encoder", required=True),
            _CSABSTRUCT,
            _THREADS,
        ),
    ),
}
"""The line of each subcommand in the help of the command, its description, the module (of `qbe.train`) and
the class of its training, and its options.
"""


def parser() -> argparse.ArgumentParser:
    """The parser of the command and its subcommands.

    >>> arguments = ["admit", "--tagger", "my-tagger", "--encoder", "my-encoder"]
    >>> parser().parse_args(arguments).command
    'admit'
    """
    parser = _cli.parser(PROGRAM, "Train the models that qbe ships, and sentence encoders of your own.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (summary, description, _, options) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=description)
        for option, settings in options:
            command.add_argument(option, **settings)
    return parser
