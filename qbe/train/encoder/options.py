"""The options of ``python -m qbe.train encoder``, and what is wrong with them."""

from __future__ import annotations

import argparse
from pathlib import Path

from qbe.errors import UsageError
from qbe.models.encoder_format import SIMILARITIES
from qbe.train.encoder.recipe import LAYOUTS, OBJECTIVES, Recipe, Schedule, Settings


def add_options(encoder: argparse.ArgumentParser, data: str) -> None:
    """Add the options; ``data`` tells where data lie by default."""
    schedule, settings = Schedule(), Settings()
    shown = "default: %(default)s"
    encoder.add_argument(
        "--cocitations",
        type=Path,
        nargs="+",
        required=True,
        metavar="FILE",
        help="pairs of co-cited papers and the sentences that cite them, as JSON lines of ASPIRE's form",
    )
    encoder.add_argument(
        "--dev", type=Path, metavar="FILE", help="such pairs to choose on (default: a share of the sets)"
    )
    encoder.add_argument(
        "--leave-out", type=Path, metavar="FILE", help=f"papers that are evaluated on, as above {data}"
    )
    encoder.add_argument("--output", type=Path, required=True, metavar="DIR", help="the encoder's folder")
    encoder.add_argument("--work", type=Path, required=True, metavar="DIR", help="for checkpoints")
    encoder.add_argument(
        "--objective",
        choices=tuple(OBJECTIVES),
        default=Recipe().objective,
        help="in the paper: " + ", ".join(each.name for each in OBJECTIVES.values()) + f" ({shown})",
    )
    encoder.add_argument(
        "--encoder",
        metavar="NAME",
        help="the model of the BERT family to start from: name in the registry, a folder, or a hub name "
        "(default: all-MiniLM-L6-v2)",
    )
    encoder.add_argument(
        "--aligner",
        metavar="NAME",
        help="the encoder that tells which sentences belong together (ts, ts+ot, abs; default: what the "
        "files tell, all-MiniLM-L6-v2 where they do not)",
    )
    encoder.add_argument(
        "--layout",
        choices=LAYOUTS,
        help=f"of a paper, whether [SEP] stands behind its title (default: {Recipe().layout})",
    )
    encoder.add_argument(
        "--similarity",
        choices=SIMILARITIES,
        default=settings.similarity,
        help=f"l2: distances of vectors as they are, cosine: of unit length ({shown})",
    )
    encoder.add_argument("--margin", type=float, default=settings.margin, metavar="M", help=shown)
    encoder.add_argument(
        "--temperature",
        type=float,
        metavar="TAU",
        help=f"of the masses that are transported (ot, ts+ot; default: {settings.temperature:g})",
    )
    encoder.add_argument(
        "--regularization",
        type=float,
        metavar="LAMBDA",
        help=f"of the transport (ot, ts+ot; default: {settings.regularization:g})",
    )
    encoder.add_argument(
        "--batch", type=int, default=schedule.batch, metavar="N", help=f"pairs, at least 2 ({shown})"
    )
    encoder.add_argument(
        "--accumulate", type=int, default=schedule.accumulate, metavar="N", help=f"batches a step ({shown})"
    )
    encoder.add_argument(
        "--epochs", type=int, default=schedule.epochs, metavar="N", help=f"at most ({shown})"
    )
    encoder.add_argument(
        "--learning-rate", type=float, metavar="RATE", help="default: 2e-5; 3e-5 for ot, abs and max"
    )
    encoder.add_argument(
        "--warm-up", type=float, default=schedule.warm_up, metavar="SHARE", help=f"of the steps ({shown})"
    )
    encoder.add_argument("--seeds", default="0", metavar="0,1,2", help="one model each, and their mean")
    encoder.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help=shown)
    encoder.add_argument("--threads", type=int, help="default: all processors this process may use")


def recipe(options: argparse.Namespace) -> Recipe:
    """The recipe that the options ask for; raises UsageError where they make none."""
    objective = OBJECTIVES[options.objective]
    _check(options)
    settings = Settings(margin=options.margin, similarity=options.similarity)
    if options.temperature is not None:
        settings = settings._replace(temperature=options.temperature)
    if options.regularization is not None:
        settings = settings._replace(regularization=options.regularization)
    rate = objective.rate if options.learning_rate is None else options.learning_rate
    schedule = Schedule(
        epochs=options.epochs,
        batch=options.batch,
        accumulate=options.accumulate,
        learning_rate=rate,
        warm_up=options.warm_up,
    )
    return Recipe(options.objective, options.layout or Recipe().layout, settings, schedule)


def _check(options: argparse.Namespace) -> None:
    for name, least in (("epochs", 1), ("batch", 2), ("accumulate", 1)):
        value = getattr(options, name)
        if value < least:
            raise UsageError(f"expected --{name} of at least {least}, found {value}")
    for name in ("learning_rate", "margin", "temperature", "regularization"):
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"expected --{name.replace('_', '-')} above 0, found {value:g}")
    if not 0 <= options.warm_up < 1:
        raise UsageError(f"expected --warm-up of at least 0 and below 1, found {options.warm_up:g}")
    objective = OBJECTIVES[options.objective]
    for name, means in (
        ("temperature", objective.transports),
        ("regularization", objective.transports),
        ("aligner", objective.aligned),
        ("layout", not objective.sentences),
    ):
        if getattr(options, name) is not None and not means:
            raise UsageError(
                f"expected no --{name} with --objective {options.objective}, which has no use for it; "
                "leave it out"
            )
