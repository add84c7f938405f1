"""The options of ``qbe train``.

Choices and defaults are written out here, since help must not load the modules that have them.
"""

from __future__ import annotations

from qbe import _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

PROGRAM = "qbe train"
FACETS = ("background", "method", "result")
LAYOUTS = ("title-abstract", "title-sep-abstract")
LOSSES = ("logistic", "margin", "listwise", "cross-entropy", "margin-mse")
OBJECTIVES = ("bi-encoder", "ts", "ot", "ts+ot", "abs", "max", "att", "cosent")
SIMILARITIES = ("cosine", "l2")
_DATA = "(default: in $QBE_DATA)"
_DEFAULT = "default: %(default)s"


def parser() -> argparse.ArgumentParser:
    """The parser of the command and its subcommands.

    >>> arguments = ["admit", "--tagger", "my-tagger", "--encoder", "my-encoder"]
    >>> parser().parse_args(arguments).command
    'admit'
    """
    parser = _cli.parser(PROGRAM, "Train the models that qbe ships, and sentence encoders of your own.")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, summary: str, description: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=summary, description=description)

    _add_tagger(
        command(
            "tagger",
            "the facet tagger",
            "Train the facet tagger on CSAbstruct and unlabelled arXiv abstracts, export it, and write its "
            "model card. Under an hour on two processors; an interrupted call continues from --work.",
        )
    )
    _add_reranker(
        command(
            "reranker",
            "the facet rerankers",
            "Train the facet rerankers on graded pairs of arXiv papers, export them, and write their model "
            "card. An interrupted call continues from --work.",
        )
    )
    _add_encoder(
        command(
            "encoder",
            "a sentence encoder",
            "Train a sentence encoder on co-citations with an objective of ASPIRE (Mysore et al., 2022), "
            "export it, and write its card. An interrupted call continues from --work.",
        )
    )
    _add_facet_encoder(
        command(
            "facet-encoder",
            "the facet encoder, from trained facet rerankers",
            "Make the facet encoder from the weights of trained facet rerankers, measure it, and write its "
            "model card. Takes minutes; nothing is trained.",
        )
    )
    _add_large_encoder(
        command(
            "large-encoder",
            "the large facet encoder",
            "Train the upper layers of all-mpnet-base-v2 on graded pairs of arXiv papers, and write their "
            "difference from it with a model card. An interrupted call continues from --work.",
        )
    )
    _add_citation(
        command(
            "citation",
            "the citation model",
            "Train the model that recommends citations, over the vectors of an index and who cites whom, and "
            "write it with a model card. An interrupted call continues from --work.",
        )
    )
    _add_grades(
        command(
            "grades",
            "the grade model",
            "Train the model that turns scores of candidates into grades, over an index of graded pairs' "
            "papers, and write it with a model card. An interrupted call continues from --work.",
        )
    )
    _add_projections(
        command(
            "facet-projections",
            "the facet projections",
            "Train the projections of stored vectors that rerank without a pass of a model, over an index of "
            "graded pairs' papers, and write them with a model card. An interrupted call continues from "
            "--work.",
        )
    )
    _add_distillation(
        command(
            "distillation",
            "the facet rerankers, from scores of a larger encoder",
            "Train the facet rerankers on the scores that facet projections give the papers of an index, "
            "whose vectors are those of a larger encoder; no grades are needed. Export them, and write their "
            "model card. An interrupted call continues from --work.",
        )
    )
    _add_admit(
        command(
            "admit",
            "allow a tagger to be used with another encoder than it was trained on",
            "Measure a facet tagger on an encoder whose weights are close to those of the encoder it was "
            "trained on, and record in the tagger's card that it can be used with it.",
        )
    )
    return parser


def _add_tagger(tagger: argparse.ArgumentParser) -> None:
    _add_csabstruct(tagger)
    tagger.add_argument("--unlabelled", metavar="FILE", help=f"papers as JSON lines {_DATA}")
    _add_leave_out(tagger)
    _add_output(tagger)
    _add_work(tagger)
    _add_run(tagger, device=False)


def _add_reranker(reranker: argparse.ArgumentParser) -> None:
    reranker.add_argument(
        "--facet",
        choices=("all", *FACETS),
        default="all",
        help="whose grades are trained on (default: all three at once)",
    )
    _add_pairs(reranker, "facet-judgments in $QBE_DATA, and data/graded-pairs")
    _add_dev_pairs(reranker)
    _add_leave_out(reranker)
    _add_output(reranker)
    _add_work(reranker)
    reranker.add_argument(
        "--start",
        metavar="DIR",
        help="the --work of an earlier training with the same seeds, whose weights each seed starts from; or "
        "trained rerankers (a folder or facet-rerankers), whose weights all seeds start from",
    )
    reranker.add_argument(
        "--share",
        type=float,
        default=1.0,
        metavar="SHARE",
        help="with trained rerankers as --start, publish weights between theirs (0) and the mean of the "
        f"seeds (1; {_DEFAULT})",
    )
    reranker.add_argument(
        "--loss",
        choices=LOSSES,
        default="logistic",
        help=f"margin-mse distils a teacher whose scores are in the files of pairs ({_DEFAULT})",
    )
    reranker.add_argument(
        "--lists",
        type=int,
        metavar="N",
        help="train only on the N lists with the most crossed pairs (default: on all)",
    )
    reranker.add_argument(
        "--blended",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="the share of lists that get candidates blended of several papers, one with each facet of a "
        f"similar paper and the others of unrelated ones ({_DEFAULT})",
    )
    reranker.add_argument(
        "--crossed",
        type=float,
        default=0.0,
        metavar="WEIGHT",
        help="how much more a pair counts whose order for another facet is the reverse (losses logistic and "
        f"margin; {_DEFAULT})",
    )
    reranker.add_argument("--epochs", type=int, default=1, metavar="N", help=f"at most ({_DEFAULT})")
    _add_run(reranker)


def _add_encoder(encoder: argparse.ArgumentParser) -> None:
    encoder.add_argument(
        "--cocitations",
        nargs="+",
        required=True,
        metavar="FILE",
        help="pairs of co-cited papers and the sentences that cite them, as JSON lines in ASPIRE's format",
    )
    encoder.add_argument("--dev", metavar="FILE", help="the same, for dev (default: 5 %% of the sets)")
    _add_leave_out(encoder)
    _add_output(encoder)
    _add_work(encoder)
    encoder.add_argument(
        "--objective",
        choices=OBJECTIVES,
        default="ot",
        help="in the paper: SPECTER-CoCite, TSASPIRE, OTASPIRE, TS+OTASPIRE, absASPIRE, maxASPIRE, "
        f"attASPIRE, CoSentBert ({_DEFAULT})",
    )
    encoder.add_argument(
        "--encoder",
        default="all-MiniLM-L6-v2",
        metavar="NAME",
        help="the model of the BERT family to start from: name in the registry, a folder, or a hub name "
        f"({_DEFAULT})",
    )
    encoder.add_argument(
        "--aligner",
        metavar="NAME",
        help="the encoder that aligns sentences (ts, ts+ot, abs; default: the alignments in the files, and "
        "all-MiniLM-L6-v2 where there are none)",
    )
    encoder.add_argument(
        "--layout",
        choices=LAYOUTS,
        help="of a paper, whether [SEP] follows its title (default: title-sep-abstract)",
    )
    encoder.add_argument(
        "--similarity",
        choices=SIMILARITIES,
        default="l2",
        help=f"l2: distances of vectors as they are, cosine: of unit length ({_DEFAULT})",
    )
    _add_loss_and_schedule(encoder)
    _add_run(encoder, seeds="0")


def _add_loss_and_schedule(encoder: argparse.ArgumentParser) -> None:
    encoder.add_argument("--margin", type=float, default=1.0, metavar="M", help=_DEFAULT)
    encoder.add_argument(
        "--temperature",
        type=float,
        metavar="TAU",
        help="of the transport's masses (ot, ts+ot; default: 5000)",
    )
    encoder.add_argument(
        "--regularization", type=float, metavar="LAMBDA", help="of the transport (ot, ts+ot; default: 20)"
    )
    encoder.add_argument("--batch", type=int, default=10, metavar="N", help=f"pairs, at least 2 ({_DEFAULT})")
    encoder.add_argument(
        "--accumulate", type=int, default=3, metavar="N", help=f"batches per step ({_DEFAULT})"
    )
    encoder.add_argument("--epochs", type=int, default=1, metavar="N", help=f"at most ({_DEFAULT})")
    encoder.add_argument(
        "--learning-rate", type=float, metavar="RATE", help="default: 2e-5; 3e-5 for ot, abs and max"
    )
    encoder.add_argument(
        "--warm-up", type=float, default=0.05, metavar="SHARE", help=f"of the steps ({_DEFAULT})"
    )


def _add_facet_encoder(encoder: argparse.ArgumentParser) -> None:
    encoder.add_argument("--rerankers", required=True, metavar="DIR", help="the --work of their training")
    encoder.add_argument(
        "--share",
        type=float,
        default=0.5,
        metavar="SHARE",
        help=f"weights between the original ones (0) and those of the rerankers (1; {_DEFAULT})",
    )
    _add_dev_pairs(encoder)
    _add_output(encoder)
    _add_run(encoder, device=False)


def _add_large_encoder(encoder: argparse.ArgumentParser) -> None:
    _add_pairs(encoder, "data/graded-pairs/train-3.tsv")
    encoder.add_argument(
        "--sampled", type=int, default=450, metavar="N", help=f"lists, drawn at random ({_DEFAULT})"
    )
    _add_dev_pairs(encoder)
    _add_leave_out(encoder)
    _add_output(encoder)
    _add_work(encoder)
    _add_run(encoder, seeds="0")


def _add_citation(citation: argparse.ArgumentParser) -> None:
    citation.add_argument(
        "--collection", required=True, metavar="DIR", help="written by qbe datasets citations"
    )
    citation.add_argument("--index", required=True, metavar="DIR", help="an index of its papers.jsonl")
    _add_output(citation)
    _add_work(citation)
    _add_run(citation, device=False)


def _add_pairs(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--pairs",
        nargs="+",
        metavar="PATH",
        help=f"graded pairs to train on, files or folders with train*.tsv (default: {default} in a "
        "checkout of the repository)",
    )


def _add_projections(projections: argparse.ArgumentParser) -> None:
    _add_pairs(
        projections,
        "facet-judgments/train.tsv in $QBE_DATA, and data/graded-pairs",
    )
    projections.add_argument(
        "--dev", nargs="+", metavar="FILE", help=f"graded pairs to measure on; the first chooses {_DATA}"
    )
    projections.add_argument("--index", required=True, metavar="DIR", help="an index of the pairs' papers")
    _add_leave_out(projections)
    _add_output(projections)
    _add_work(projections)
    _add_run(projections, device=False)


def _add_grades(grades: argparse.ArgumentParser) -> None:
    _add_pairs(
        grades,
        "facet-judgments/train.tsv in $QBE_DATA, and data/graded-pairs/train-6.tsv",
    )
    grades.add_argument("--dev", nargs="+", metavar="FILE", help=f"graded pairs to measure on {_DATA}")
    grades.add_argument("--index", required=True, metavar="DIR", help="an index of the pairs' papers")
    _add_leave_out(grades)
    grades.add_argument(
        "--sampled",
        type=int,
        default=350,
        metavar="N",
        help=f"lists of each file, drawn at random ({_DEFAULT})",
    )
    _add_output(grades)
    _add_work(grades)
    _add_run(grades, device=False)


def _add_distillation(distillation: argparse.ArgumentParser) -> None:
    distillation.add_argument(
        "--index", required=True, metavar="DIR", help="papers to learn from, with vectors of a larger encoder"
    )
    distillation.add_argument(
        "--projections",
        metavar="DIR",
        help="facet projections of these vectors (default: those that ship for the encoder)",
    )
    distillation.add_argument(
        "--start",
        default="facet-rerankers",
        metavar="NAME_OR_FOLDER",
        help=f"the rerankers in int8 that learn ({_DEFAULT})",
    )
    distillation.add_argument(
        "--dev",
        nargs="+",
        metavar="FILE",
        help=f"graded pairs whose queries are not learned from; the first are measured {_DATA}",
    )
    _add_leave_out(distillation)
    distillation.add_argument(
        "--steps", type=int, default=650, metavar="N", help=f"for each seed ({_DEFAULT})"
    )
    distillation.add_argument(
        "--share",
        type=float,
        default=0.5,
        metavar="SHARE",
        help=f"publish weights between those of --start (0) and the mean of the seeds (1; {_DEFAULT})",
    )
    _add_output(distillation)
    _add_work(distillation)
    _add_run(distillation, device=False)


def _add_admit(admit: argparse.ArgumentParser) -> None:
    admit.add_argument("--tagger", required=True, metavar="DIR", help="the tagger's folder")
    admit.add_argument("--encoder", required=True, metavar="NAME_OR_FOLDER", help="the encoder")
    _add_csabstruct(admit)
    _add_threads(admit)


def _add_csabstruct(command: argparse.ArgumentParser) -> None:
    command.add_argument("--csabstruct", metavar="DIR", help=f"its train, dev, test.jsonl {_DATA}")


def _add_dev_pairs(command: argparse.ArgumentParser) -> None:
    command.add_argument("--dev", metavar="FILE", help=f"graded pairs of dev {_DATA}")
    command.add_argument("--corpus", metavar="FILE", help=f"the papers of the pairs as JSON lines {_DATA}")


def _add_leave_out(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--leave-out",
        metavar="FILE",
        help="papers as JSON lines that models are evaluated on; papers with such a title are not trained on "
        f"{_DATA}",
    )


def _add_output(command: argparse.ArgumentParser) -> None:
    command.add_argument("--output", required=True, metavar="DIR", help="the folder to write the model to")


def _add_work(command: argparse.ArgumentParser) -> None:
    command.add_argument("--work", required=True, metavar="DIR", help="folder for checkpoints")


def _add_run(command: argparse.ArgumentParser, *, seeds: str = "0,1,2", device: bool = True) -> None:
    command.add_argument(
        "--seeds", default=seeds, metavar="0,1,2", help=f"one model each, and their mean ({_DEFAULT})"
    )
    if device:
        command.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help=_DEFAULT)
    _add_threads(command)


def _add_threads(command: argparse.ArgumentParser) -> None:
    command.add_argument("--threads", type=int, metavar="N", help="default: all available processors")
