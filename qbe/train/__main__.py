"""``qbe train``: train the models that qbe ships, and sentence encoders."""

from __future__ import annotations

from qbe import _cli
from qbe.train.options import PROGRAM, parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from qbe.train.work_folder import RunOptions

OPTIONS: dict[str, str] = {}
"""Options that are not named as the parameter that a message of the library has."""


def main(arguments: list[str]) -> None:
    options = parser().parse_args(arguments)
    threads = _cli.threads(options.threads)
    if options.command == "admit":
        _admit(options, threads)
        return
    from pathlib import Path

    from qbe.export.staging import check_model_folder
    from qbe.train.work_folder import RunOptions

    check_model_folder(Path(options.output))
    run = RunOptions(_seeds(options.seeds), threads, getattr(options, "device", "cpu"))
    train = {
        "tagger": _train_tagger,
        "reranker": _train_reranker,
        "encoder": _train_encoder,
        "facet-encoder": _make_facet_encoder,
        "large-encoder": _train_large_encoder,
        "citation": _train_citation,
        "grades": _train_grades,
        "facet-projections": _train_projections,
        "distillation": _distil,
    }
    train[options.command](options, run)


def _train_tagger(options: argparse.Namespace, run: RunOptions) -> None:
    csabstruct = _path(options, "csabstruct", "csabstruct")
    unlabelled = _path(options, "unlabelled", "arxiv-cs/arxiv-cs.jsonl.xz")
    leave_out = _leave_out(options)
    with _training_packages():
        from qbe.train.tagger.training import Sources, train_tagger
    from pathlib import Path

    from qbe.train.work_folder import Folders

    sources = Sources(csabstruct, unlabelled, leave_out)
    metadata = train_tagger(sources, Folders(Path(options.output), Path(options.work)), run)
    scores = metadata.training["test"]
    figures = f"micro-F1 {scores['micro_f1']:.2f}, folded {scores['folded']:.2f}"
    print(f"{options.output}: {figures} on CSAbstruct's test split")


def _train_reranker(options: argparse.Namespace, run: RunOptions) -> None:
    from pathlib import Path

    from qbe.train.graded_pairs import default_pairs, pair_files
    from qbe.train.reranker.recipe import Recipe, Schedule
    from qbe.train.work_folder import Folders
    from qbe.types import Facet

    schedule = Schedule(epochs=options.epochs, loss=options.loss, crossed=options.crossed)
    recipe = Recipe(lists=options.lists, blended=options.blended, schedule=schedule)
    dev, corpus = _dev_and_corpus(options)
    leave_out = _leave_out(options)
    if options.pairs:
        train = pair_files(map(Path, options.pairs))
    else:
        train = pair_files([_path(options, "pairs", "facet-judgments/train.tsv"), default_pairs()])
    with _training_packages():
        from qbe.models.registry import BASE_ENCODER, ENCODERS
        from qbe.models.sources import packaged_weights
        from qbe.train.reranker.training import Sources, Start, train_rerankers
    metadata = train_rerankers(
        Sources(train, dev, corpus, leave_out),
        Start(
            packaged_weights(ENCODERS[BASE_ENCODER]),
            earlier=options.start,
            share=options.share,
        ),
        Folders(Path(options.output), Path(options.work)),
        run,
        recipe=recipe,
        facets=[facet for facet in Facet if options.facet in ("all", facet.value)],
    )
    figures = " / ".join(f"{value:.3f}" for value in metadata.training["exported"]["int8"])
    print(f"{options.output}: Spearman {figures} on dev (background / method / result)")


def _train_encoder(options: argparse.Namespace, run: RunOptions) -> None:
    from qbe.train.encoder.recipe import Recipe

    recipe = Recipe(options.objective, options.similarity, options.epochs, options.learning_rate)
    leave_out = _leave_out(options)
    with _training_packages():
        from qbe.train.encoder.data import Sources
        from qbe.train.encoder.training import train_encoder
    from pathlib import Path

    from qbe.train.work_folder import Folders

    trained = train_encoder(
        Sources(
            tuple(map(Path, options.cocitations)),
            None if options.dev is None else Path(options.dev),
            leave_out,
        ),
        Folders(Path(options.output), Path(options.work)),
        run,
        recipe=recipe,
        encoder=options.encoder,
    )
    parity = trained.metadata.parity.items()
    cosines = ", ".join(f"{precision} {figures['min_cosine']:.5f}" for precision, figures in parity)
    print(
        f"{options.output}: {recipe.objective}, loss on dev {trained.before:.4f} to {trained.after:.4f}; "
        f"smallest cosine against PyTorch: {cosines}"
    )


def _make_facet_encoder(options: argparse.Namespace, run: RunOptions) -> None:
    dev, corpus = _dev_and_corpus(options)
    with _training_packages():
        from qbe.models.registry import BASE_ENCODER, ENCODERS
        from qbe.models.sources import packaged_weights
        from qbe.train.facet_encoder.training import Sources, make_facet_encoder
    from pathlib import Path

    from qbe.train.work_folder import Folders

    weights = packaged_weights(ENCODERS[BASE_ENCODER])
    folders = Folders(Path(options.output), Path(options.rerankers))
    encoder = make_facet_encoder(Sources(dev, corpus), weights, folders, run, share=options.share)
    figures = " / ".join(f"{value:.3f}" for value in encoder.dev)
    print(f"{options.output}: Spearman {figures} on dev by mean-max (background / method / result)")


def _train_large_encoder(options: argparse.Namespace, run: RunOptions) -> None:
    from dataclasses import replace
    from pathlib import Path

    from qbe.train.graded_pairs import default_pairs, pair_files
    from qbe.train.work_folder import Folders

    dev, corpus = _dev_and_corpus(options)
    leave_out = _leave_out(options)
    train = pair_files(map(Path, options.pairs or [default_pairs() / "train-3.tsv"]))
    with _training_packages():
        from qbe.train.large_encoder.training import RECIPE, train_large_encoder
        from qbe.train.reranker.training import Sources
    folders = Folders(Path(options.output), Path(options.work))
    recipe = replace(RECIPE, sampled=options.sampled)
    metadata = train_large_encoder(Sources(train, dev, corpus, leave_out), folders, run, recipe=recipe)
    print(f"{options.output}: {metadata.name}, {metadata.dimension} dimensions, {metadata.layers} layers")


def _admit(options: argparse.Namespace, threads: int) -> None:
    csabstruct = _path(options, "csabstruct", "csabstruct")
    with _training_packages():
        from qbe.train.tagger.measure import admit
    from pathlib import Path

    scores = admit(Path(options.tagger), options.encoder, csabstruct, threads)
    for split, figures in scores.items():
        print(f"{split}: micro-F1 {figures['micro_f1']:.2f}, folded {figures['folded']:.2f}")


def _seeds(text: str) -> tuple[int, ...]:
    from qbe.errors import UsageError

    try:
        return tuple(dict.fromkeys(map(int, text.split(","))))
    except ValueError:
        raise UsageError(f"expected seeds such as 0,1,2, found {text!r}; check `seeds`") from None


def _leave_out(options: argparse.Namespace) -> Path:
    return _path(options, "leave_out", "csfcube/abstracts-csfcube-preds.jsonl")


def _dev_and_corpus(options: argparse.Namespace) -> tuple[Path, Path]:
    dev = _path(options, "dev", "facet-judgments/dev.tsv")
    return dev, _path(options, "corpus", "arxiv-cs/arxiv-cs.jsonl.xz")


def _train_citation(options: argparse.Namespace, run: RunOptions) -> None:
    from pathlib import Path

    with _training_packages():
        from qbe.train.citation.training import Sources, train_citation
    from qbe.train.work_folder import Folders

    collection = Path(options.collection)
    sources = Sources(Path(options.index), collection / "train.qrels", collection / "dev.qrels")
    figures = train_citation(sources, Folders(Path(options.output), Path(options.work)), run)
    for known, (f1, mrr, recall) in figures.items():
        print(f"{options.output}: {known}: F1@20 {f1:.3f}, MRR {mrr:.3f}, recall {recall:.3f} on dev")


def _train_grades(options: argparse.Namespace, run: RunOptions) -> None:
    from pathlib import Path

    from qbe.train.graded_pairs import default_pairs, pair_files
    from qbe.train.work_folder import Folders

    if options.pairs:
        train = pair_files(map(Path, options.pairs))
    else:
        train = pair_files(
            [_path(options, "pairs", "facet-judgments/train.tsv"), default_pairs() / "train-6.tsv"]
        )
    dev = options.dev or [_path(options, "dev", "facet-judgments/dev.tsv")]
    with _training_packages():
        from qbe.train.grades.training import Sources, train_grades
    sources = Sources(Path(options.index), train, tuple(map(Path, dev)), _leave_out(options))
    folders = Folders(Path(options.output), Path(options.work))
    for name, each in train_grades(sources, folders, run).items():
        errors = " / ".join(f"{value:.2f}" for value in each)
        print(f"{options.output}: {name}: errors {errors} grades (background / method / result)")


def _train_projections(options: argparse.Namespace, run: RunOptions) -> None:
    from pathlib import Path

    from qbe.train.graded_pairs import default_pairs, pair_files
    from qbe.train.work_folder import Folders

    if options.pairs:
        train = pair_files(map(Path, options.pairs))
    else:
        train = pair_files([_path(options, "pairs", "facet-judgments/train.tsv"), default_pairs()])
    dev = options.dev or [_path(options, "dev", "facet-judgments/dev.tsv")]
    with _training_packages():
        from qbe.train.projections.training import Sources, train_projections
    sources = Sources(Path(options.index), train, tuple(map(Path, dev)), _leave_out(options))
    folders = Folders(Path(options.output), Path(options.work))
    for name, each in train_projections(sources, folders, run)["mean"].items():
        values = " / ".join(f"{value:.3f}" for value in each.values())
        print(f"{options.output}: {name}: correlation {values} (background / method / result)")


def _distil(options: argparse.Namespace, run: RunOptions) -> None:
    from pathlib import Path

    from qbe.train.distillation.recipe import Recipe
    from qbe.train.work_folder import Folders

    recipe = Recipe(steps=options.steps)
    dev = options.dev or [_path(options, "dev", "facet-judgments/dev.tsv")]
    leave_out = _leave_out(options)
    with _training_packages():
        from qbe.models.registry import BASE_ENCODER, ENCODERS
        from qbe.models.sources import packaged_weights
        from qbe.train.distillation.training import Sources, distil
    projections = None if options.projections is None else Path(options.projections)
    files = tuple(map(Path, dev))
    weights = packaged_weights(ENCODERS[BASE_ENCODER])
    sources = Sources(Path(options.index), files, leave_out, weights, projections, options.start)
    folders = Folders(Path(options.output), Path(options.work))
    metadata = distil(sources, folders, run, recipe=recipe, share=options.share)
    figures = " / ".join(f"{value:.3f}" for value in metadata.training["exported"]["int8"])
    print(f"{options.output}: Spearman {figures} on dev (background / method / result)")


def _path(options: argparse.Namespace, parameter: str, name: str) -> Path:
    """The path that an option gives, by default that of a name below QBE_DATA."""
    import os
    from pathlib import Path

    from qbe.errors import UsageError

    value, folder = getattr(options, parameter), os.environ.get("QBE_DATA")
    if value is not None:
        return Path(value)
    if not folder:
        raise UsageError(
            f"expected `{parameter}`, or QBE_DATA set to a folder that holds {name}, found neither"
        )
    return Path(folder, name)


def _training_packages() -> AbstractContextManager[None]:
    """Around imports that need the extra ``train``."""
    from contextlib import contextmanager

    from qbe.errors import MissingDependencyError

    @contextmanager
    def checked() -> Iterator[None]:
        try:
            yield
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                f"training needs torch and transformers, found no {error.name}; run: pip install 'qbe[train]'"
            ) from error

    return checked()


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
