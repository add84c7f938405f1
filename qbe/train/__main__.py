"""``qbe train``: train the models that qbe ships, and sentence encoders."""

from __future__ import annotations

from qbe import _cli
from qbe.train.options import PROGRAM, parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from qbe.train.artifacts import Folders, RunOptions

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
    from qbe.train.artifacts import Folders, RunOptions

    check_model_folder(Path(options.output))
    run = RunOptions(_seeds(options.seeds), threads, getattr(options, "device", "cpu"))
    folders = Folders(Path(options.output), Path(getattr(options, "work", options.output)))
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
    for line in train[options.command](options, folders, run):
        print(f"{options.output}: {line}")


def _train_tagger(options: argparse.Namespace, folders: Folders, run: RunOptions) -> Iterator[str]:
    csabstruct = _path(options, "csabstruct", "csabstruct")
    unlabelled = _path(options, "unlabelled", "arxiv-cs/arxiv-cs.jsonl.xz")
    leave_out = _leave_out(options)
    with _training_packages():
        from qbe.train.tagger.training import Sources, train_tagger
    metadata = train_tagger(Sources(csabstruct, unlabelled, leave_out), folders, run)
    scores = metadata.training["test"]
    figures = f"micro-F1 {scores['micro_f1']:.2f}, folded {scores['folded']:.2f}"
    yield f"{figures} on CSAbstruct's test split"


def _train_reranker(options: argparse.Namespace, folders: Folders, run: RunOptions) -> Iterator[str]:
    dev, corpus = _dev_and_corpus(options)
    leave_out = _leave_out(options)
    train = _pairs(options, "facet-judgments/train.tsv", "")
    with _training_packages():
        from qbe.train.reranker.training import Sources, train_rerankers
    sources = Sources(train, dev, corpus, leave_out)
    metadata = train_rerankers(sources, _base_weights(), folders, run, start=options.start)
    yield _spearman(metadata.training["exported"]["int8"], "on dev")


def _train_encoder(options: argparse.Namespace, folders: Folders, run: RunOptions) -> Iterator[str]:
    from pathlib import Path

    from qbe.train.encoder.recipe import Recipe

    recipe = Recipe(options.objective, options.similarity, options.epochs, options.learning_rate)
    leave_out = _leave_out(options)
    with _training_packages():
        from qbe.train.encoder.data import Sources
        from qbe.train.encoder.training import train_encoder
    dev = None if options.dev is None else Path(options.dev)
    sources = Sources(tuple(map(Path, options.cocitations)), dev, leave_out)
    trained = train_encoder(sources, folders, run, recipe=recipe, encoder=options.encoder)
    parity = trained.metadata.parity.items()
    cosines = ", ".join(f"{precision} {figures['min_cosine']:.5f}" for precision, figures in parity)
    yield (
        f"{recipe.objective}, loss on dev {trained.before:.4f} to {trained.after:.4f}; smallest cosine "
        f"against PyTorch: {cosines}"
    )


def _make_facet_encoder(options: argparse.Namespace, folders: Folders, run: RunOptions) -> Iterator[str]:
    from dataclasses import replace
    from pathlib import Path

    dev, corpus = _dev_and_corpus(options)
    with _training_packages():
        from qbe.train.facet_encoder import Sources, make_facet_encoder
    folders = replace(folders, work=Path(options.rerankers))
    encoder = make_facet_encoder(Sources(dev, corpus), _base_weights(), folders, run)
    yield _spearman(encoder.dev, "on dev by mean-max")


def _train_large_encoder(options: argparse.Namespace, folders: Folders, run: RunOptions) -> Iterator[str]:
    dev, corpus = _dev_and_corpus(options)
    leave_out = _leave_out(options)
    train = _pairs(options, None, "train-3.tsv")
    with _training_packages():
        from qbe.train.large_encoder import train_large_encoder
        from qbe.train.reranker.training import Sources
    metadata = train_large_encoder(Sources(train, dev, corpus, leave_out), folders, run)
    yield f"{metadata.name}, {metadata.dimension} dimensions, {metadata.layers} layers"


def _train_citation(options: argparse.Namespace, folders: Folders, run: RunOptions) -> Iterator[str]:
    from pathlib import Path

    with _training_packages():
        from qbe.train.citation.training import Sources, train_citation
    collection = Path(options.collection)
    sources = Sources(Path(options.index), collection / "train.qrels", collection / "dev.qrels")
    for name, (f1, mrr, recall) in train_citation(sources, folders, run).items():
        yield f"{name}: F1@20 {f1:.3f}, MRR {mrr:.3f}, recall {recall:.3f} on dev"


def _train_grades(options: argparse.Namespace, folders: Folders, run: RunOptions) -> Iterator[str]:
    from pathlib import Path

    train, dev = _pairs(options, "facet-judgments/train.tsv", "train-6.tsv"), _dev_files(options)
    with _training_packages():
        from qbe.train.grades.training import Sources, train_grades
    sources = Sources(Path(options.index), train, dev, _leave_out(options))
    for name, errors in train_grades(sources, folders, run).items():
        figures = " / ".join(f"{value:.2f}" for value in errors)
        yield f"{name}: errors {figures} grades (background / method / result)"


def _train_projections(options: argparse.Namespace, folders: Folders, run: RunOptions) -> Iterator[str]:
    from pathlib import Path

    train, dev = _pairs(options, "facet-judgments/train.tsv", ""), _dev_files(options)
    with _training_packages():
        from qbe.train.projections.training import Sources, train_projections
    sources = Sources(Path(options.index), train, dev, _leave_out(options))
    for name, figures in train_projections(sources, folders, run)["mean"].items():
        yield f"{name}: {_spearman(figures.values(), 'by stored vectors')}"


def _distil(options: argparse.Namespace, folders: Folders, run: RunOptions) -> Iterator[str]:
    from pathlib import Path

    dev, leave_out = _dev_files(options), _leave_out(options)
    with _training_packages():
        from qbe.train.distillation.training import Sources, distil
    projections = None if options.projections is None else Path(options.projections)
    sources = Sources(Path(options.index), dev, leave_out, _base_weights(), projections, options.start)
    metadata = distil(sources, folders, run)
    yield _spearman(metadata.training["exported"]["int8"], "on dev")


def _admit(options: argparse.Namespace, threads: int) -> None:
    csabstruct = _path(options, "csabstruct", "csabstruct")
    with _training_packages():
        from qbe.train.tagger.measure import admit
    from pathlib import Path

    scores = admit(Path(options.tagger), options.encoder, csabstruct, threads)
    for split, figures in scores.items():
        print(f"{split}: micro-F1 {figures['micro_f1']:.2f}, folded {figures['folded']:.2f}")


def _spearman(values: Iterable[float], where: str) -> str:
    figures = " / ".join(f"{value:.3f}" for value in values)
    return f"Spearman {figures} {where} (background / method / result)"


def _seeds(text: str) -> tuple[int, ...]:
    from qbe.errors import UsageError

    try:
        return tuple(dict.fromkeys(map(int, text.split(","))))
    except ValueError:
        raise UsageError(f"expected seeds such as 0,1,2, found {text!r}; check `seeds`") from None


def _pairs(options: argparse.Namespace, judgments: str | None, name: str) -> tuple[Path, ...]:
    """The files of pairs to train on: by default ``judgments`` in QBE_DATA, if there are any, and the file
    ``name`` of the repository's pairs (all files where it is empty).
    """
    from pathlib import Path

    from qbe.train.pairs import default_pairs, pair_files

    if options.pairs:
        return pair_files(map(Path, options.pairs))
    given = [] if judgments is None else [_path(options, "pairs", judgments)]
    return pair_files([*given, default_pairs() / name])


def _leave_out(options: argparse.Namespace) -> Path:
    return _path(options, "leave_out", "csfcube/abstracts-csfcube-preds.jsonl")


def _dev_and_corpus(options: argparse.Namespace) -> tuple[Path, Path]:
    dev = _path(options, "dev", "facet-judgments/dev.tsv")
    return dev, _path(options, "corpus", "arxiv-cs/arxiv-cs.jsonl.xz")


def _dev_files(options: argparse.Namespace) -> tuple[Path, ...]:
    from pathlib import Path

    return tuple(map(Path, options.dev or [_path(options, "dev", "facet-judgments/dev.tsv")]))


def _base_weights() -> Path:
    """The folder of the encoder that the facet rerankers are made of."""
    from qbe.models.registry import BASE_ENCODER, ENCODERS
    from qbe.models.sources import packaged_weights

    return packaged_weights(ENCODERS[BASE_ENCODER])


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
