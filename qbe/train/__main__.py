"""``python -m qbe.train``: train the models that qbe ships."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from qbe import _cli
from qbe.errors import MissingDependencyError, UsageError
from qbe.train.encoder.options import add_options, recipe
from qbe.types import Facet


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
    reranker = commands.add_parser(
        "reranker",
        help="the facet rerankers",
        description="Train the facet rerankers on graded pairs of arXiv papers, export them, and write their "
        "model card. An interrupted call goes on with what is in --work.",
    )
    reranker.add_argument(
        "--facet",
        choices=("all", *map(str, Facet)),
        default="all",
        help="whose grades are learned (default: all three at once)",
    )
    reranker.add_argument(
        "--pairs", type=Path, nargs="+", metavar="FILE", help=f"graded pairs to learn from {data}"
    )
    reranker.add_argument("--dev", type=Path, metavar="FILE", help=f"graded pairs to choose on {data}")
    reranker.add_argument("--corpus", type=Path, metavar="FILE", help=f"the pairs' papers {data}")
    reranker.add_argument(
        "--leave-out", type=Path, metavar="FILE", help=f"papers that are evaluated on, as above {data}"
    )
    reranker.add_argument("--output", type=Path, required=True, metavar="DIR", help="the rerankers' folder")
    reranker.add_argument("--work", type=Path, required=True, metavar="DIR", help="for checkpoints")
    reranker.add_argument(
        "--start",
        type=Path,
        metavar="DIR",
        help="the --work of an earlier training with the same seeds, to go on from its weights",
    )
    reranker.add_argument(
        "--loss",
        choices=("logistic", "margin", "listwise", "cross-entropy", "margin-mse"),
        default="logistic",
        help="margin-mse distils a teacher whose scores stand in the pairs' files (default: %(default)s)",
    )
    reranker.add_argument("--epochs", type=int, default=1, help="at most (default: %(default)s)")
    reranker.add_argument("--seeds", default="0,1,2", metavar="0,1,2", help="one model each, and their mean")
    reranker.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default: %(default)s")
    reranker.add_argument("--threads", type=int, help="default: all processors this process may use")
    encoder = commands.add_parser(
        "encoder",
        help="a sentence encoder",
        description="Train a sentence encoder on co-citations with an objective of ASPIRE (Mysore et al., "
        "2022), export it, and write its card. An interrupted call goes on with what is in --work.",
    )
    add_options(encoder, data)
    facets = commands.add_parser(
        "facet-encoder",
        help="the facet encoder, out of trained facet rerankers",
        description="Make the facet encoder out of the weights of trained facet rerankers, measure it, and "
        "write its model card. Minutes; nothing is trained.",
    )
    facets.add_argument(
        "--rerankers", type=Path, required=True, metavar="DIR", help="the --work of their training"
    )
    facets.add_argument("--dev", type=Path, metavar="FILE", help=f"graded pairs to measure on {data}")
    facets.add_argument("--corpus", type=Path, metavar="FILE", help=f"the pairs' papers {data}")
    facets.add_argument("--output", type=Path, required=True, metavar="DIR", help="the encoder's folder")
    facets.add_argument("--seeds", default="0,1,2", metavar="0,1,2", help="of the rerankers (default: all)")
    facets.add_argument("--threads", type=int, help="default: all processors this process may use")
    admit = commands.add_parser(
        "admit",
        help="a tagger on another encoder than it was trained on",
        description="Measure a facet tagger on the states of an encoder whose layers are near those it was "
        "trained on, and note in its card that it may read them.",
    )
    admit.add_argument("--tagger", type=Path, required=True, metavar="DIR", help="the tagger's folder")
    admit.add_argument("--encoder", required=True, metavar="NAME_OR_FOLDER", help="the encoder")
    admit.add_argument("--csabstruct", type=Path, metavar="DIR", help=f"its train, dev, test.jsonl {data}")
    admit.add_argument("--threads", type=int, help="default: all processors this process may use")
    admit.set_defaults(seeds="0")
    return parser


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    threads = _cli.threads(options.threads)
    seeds = _seeds(options.seeds)
    train = {
        "tagger": _train_tagger,
        "reranker": _train_reranker,
        "encoder": _train_encoder,
        "facet-encoder": _make_facet_encoder,
        "admit": _admit,
    }
    train[options.command](options, seeds, threads)


def _seeds(text: str) -> tuple[int, ...]:
    try:
        return tuple(dict.fromkeys(map(int, text.split(","))))
    except ValueError:
        raise UsageError(f"expected seeds such as 0,1,2, found {text!r}; check --seeds") from None


@contextlib.contextmanager
def _training_packages() -> Iterator[None]:
    """Around imports that need the extra ``train``."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"training needs torch and transformers, found no {error.name}; run: pip install 'qbe[train]'"
        ) from error


def _train_reranker(options: argparse.Namespace, seeds: tuple[int, ...], threads: int) -> None:
    if options.epochs < 1:
        raise UsageError(f"expected --epochs of at least 1, found {options.epochs}")
    dev = options.dev or _in_data("facet-judgments/dev.tsv", "--dev")
    corpus = options.corpus or _in_data("arxiv-cs/arxiv-cs.jsonl.xz", "--corpus")
    leave_out = options.leave_out or _in_data("csfcube/abstracts-csfcube-preds.jsonl", "--leave-out")
    train = options.pairs or [_in_data("facet-judgments/train.tsv", "--pairs")]
    with _training_packages():
        from qbe.models.registry import BASE_ENCODER, ENCODERS
        from qbe.models.sources import packaged_weights
        from qbe.train.graded_pairs import MORE_PAIRS
        from qbe.train.reranker.fit import Schedule
        from qbe.train.reranker.training import Recipe, Sources, train_rerankers
    if not options.pairs:
        train = [*train, *MORE_PAIRS]
    card = train_rerankers(
        Sources(tuple(train), dev, corpus, leave_out),
        packaged_weights(ENCODERS[BASE_ENCODER]),
        options.output,
        options.work,
        seeds,
        threads,
        recipe=Recipe(schedule=Schedule(epochs=options.epochs, loss=options.loss)),
        facets=[facet for facet in Facet if options.facet in ("all", facet.value)],
        device=options.device,
        start=options.start,
    )
    figures = " / ".join(f"{value:.3f}" for value in card.training["exported"]["int8"])
    print(f"{options.output}: Spearman {figures} on dev (background / method / result)")


def _train_tagger(options: argparse.Namespace, seeds: tuple[int, ...], threads: int) -> None:
    csabstruct = options.csabstruct or _in_data("csabstruct", "--csabstruct")
    unlabelled = options.unlabelled or _in_data("arxiv-cs/arxiv-cs.jsonl.xz", "--unlabelled")
    leave_out = options.leave_out or _in_data("csfcube/abstracts-csfcube-preds.jsonl", "--leave-out")
    with _training_packages():
        from qbe.train.tagger.publish import train_tagger
    card = train_tagger(csabstruct, unlabelled, leave_out, options.output, options.work, seeds, threads)
    figures = card.training["test"]
    found = f"micro-F1 {figures['micro_f1']:.2f}, folded {figures['folded']:.2f}"
    print(f"{options.output}: {found} on CSAbstruct's test split")


def _train_encoder(options: argparse.Namespace, seeds: tuple[int, ...], threads: int) -> None:
    wanted = recipe(options)
    leave_out = options.leave_out or _in_data("csfcube/abstracts-csfcube-preds.jsonl", "--leave-out")
    with _training_packages():
        from qbe.models.registry import BASE_ENCODER
        from qbe.train.encoder.data import Sources
        from qbe.train.encoder.training import train_encoder
    found = train_encoder(
        Sources(tuple(options.cocitations), options.dev, leave_out),
        options.output,
        options.work,
        seeds,
        threads,
        recipe=wanted,
        start=options.encoder or BASE_ENCODER,
        aligner=options.aligner,
        device=options.device,
    )
    cosines = ", ".join(f"{key} {value['min_cosine']:.5f}" for key, value in found.card.parity.items())
    print(
        f"{options.output}: {wanted.objective}, loss on dev {found.before:.4f} to {found.after:.4f}; "
        f"smallest cosine against PyTorch: {cosines}"
    )


def _make_facet_encoder(options: argparse.Namespace, seeds: tuple[int, ...], threads: int) -> None:
    dev = options.dev or _in_data("facet-judgments/dev.tsv", "--dev")
    corpus = options.corpus or _in_data("arxiv-cs/arxiv-cs.jsonl.xz", "--corpus")
    with _training_packages():
        from qbe.models.registry import BASE_ENCODER, ENCODERS
        from qbe.models.sources import packaged_weights
        from qbe.train.facet_encoder.training import Sources, make_facet_encoder
    weights = packaged_weights(ENCODERS[BASE_ENCODER])
    found = make_facet_encoder(
        Sources(dev, corpus), weights, options.rerankers, options.output, seeds, threads
    )
    figures = " / ".join(f"{value:.3f}" for value in found.dev)
    print(f"{options.output}: Spearman {figures} on dev by mean-max (background / method / result)")


def _admit(options: argparse.Namespace, _none: tuple[int, ...], threads: int) -> None:
    csabstruct = options.csabstruct or _in_data("csabstruct", "--csabstruct")
    with _training_packages():
        from qbe.train.tagger.measure import admit
    found = admit(options.tagger, options.encoder, csabstruct, threads)
    for split, figures in found.items():
        print(f"{split}: micro-F1 {figures['micro_f1']:.2f}, folded {figures['folded']:.2f}")


def _in_data(name: str, option: str) -> Path:
    folder = os.environ.get("QBE_DATA")
    if not folder:
        raise UsageError(f"expected {option}, or QBE_DATA set to a folder that holds {name}, found neither")
    return Path(folder) / name


if __name__ == "__main__":
    _cli.run("qbe.train", main)
