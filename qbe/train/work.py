"""One run of a training: what it reads, its work folder with finished parts, and what it publishes."""

import contextlib
import dataclasses
import functools
import itertools
import json
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qbe.errors import ModelError, UsageError
from qbe.index.index import Index, open_index
from qbe.index.reader import IndexReader
from qbe.models import reading
from qbe.models.cards import DEFAULT_ENCODER, check_model_folder, staged_folder
from qbe.types import Facet
from qbe.util.files import atomic_file, sha256, write_text


@dataclasses.dataclass(frozen=True, slots=True)
class RunOptions:
    """How a training runs: one model for each of the ``seeds``, and their mean, on ``device`` (cpu, cuda)."""

    seeds: tuple[int, ...] = (0, 1, 2)
    threads: int = 1
    device: str = "cpu"
    given: str = dataclasses.field(default="", compare=False)  # the command line, for the card


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What trainings read; each says which of these."""

    train: tuple[Path, ...] = ()  # files (or a folder of files) to learn from
    dev: tuple[Path, ...] = ()  # files to choose and measure on; of graded pairs the first chooses
    corpus: Path = Path()  # papers as JSON lines
    index: Path = Path()  # of these papers
    leave_out: Path = Path()  # papers that are evaluated on: those with such a title are not learned from

    def digests(self) -> dict[str, str]:
        """SHA-256 of all files but the index, by the name of each and of its folder."""
        given = (*self.train, *self.dev, self.corpus, self.leave_out)
        files = (
            sorted(path.glob("*.jsonl")) if path.is_dir() else [path] for path in given if path != Path()
        )
        digests: dict[str, str] = {}
        for path in itertools.chain.from_iterable(files):
            key, digest = str(Path(path.parent.name, path.name)), sha256(path)
            if digests.setdefault(key, digest) != digest:
                raise UsageError(
                    f"expected files with different folder and name, found {key} twice; rename one"
                )
        return digests


class Training(ABC):
    """One kind of model, a dataclass of its ``recipe`` (a dataclass of all that is chosen) and options.

    `run_training` sets the attributes and calls the methods in this order.
    """

    recipe: Any
    sources: Sources
    run: RunOptions
    work: Path
    name: str  # of the folder that is published
    opened: contextlib.ExitStack  # closes what `open` opens
    made_from: Mapping[str, Any]  # the recipe, the identities of models and index, the digests of the data

    def open_index(self) -> tuple[Index, IndexReader]:
        """Open the index of the sources, until the training ends."""
        index = self.opened.enter_context(open_index(self.sources.index, threads=self.run.threads))
        return index, index.reader

    def open(self) -> Mapping[str, Any]:
        """Open what is read; returns the identities of models and index, if any."""
        return {}

    @abstractmethod
    def fit(self) -> None:
        """Train, with finished parts in the work folder, which are not done again."""

    @abstractmethod
    def publish(self, folder: Path) -> "Card":
        """Write the model's files into a new folder, and measure it."""


def run_training(
    training: Training, sources: Sources, output: Path, work: Path, run: RunOptions
) -> Mapping[str, Sequence[float]]:
    """Train a model, or continue with what ``work`` holds, and publish it with a card; return its figures."""
    import torch

    if work.resolve().is_relative_to(output.resolve()):  # which is replaced as a whole
        raise UsageError(
            f"expected a `work` folder outside of `output`, found {work} in {output}; give another"
        )
    check_model_folder(output)
    torch.set_num_threads(run.threads)
    training.sources, training.run, training.work = sources, run, work
    training.name = output.resolve().name
    with contextlib.ExitStack() as training.opened:
        models = training.open()
        recipe, data = dataclasses.asdict(training.recipe), sources.digests()
        training.made_from = {"recipe": recipe, **models, "data": data}
        check_provenance(work, training.made_from)
        training.fit()
        with staged_folder(output) as staged:
            card = training.publish(staged)
            card.write(staged, data, run.given)
    return card.figures


def check_provenance(work: Path, made_from: Mapping[str, Any]) -> None:
    """Note in a work folder what its files are made from, or compare with the note there.

    A note that is alone in its folder is replaced: that training failed before it made anything.
    """
    note, text = work / "made-from.json", json.dumps(made_from, indent=1) + "\n"
    if not note.exists() or list(work.iterdir()) == [note]:
        write_text(note, text)
    elif note.read_text() != text:
        raise ModelError(
            f"{work}: expected parts of the same recipe and data, found those of others (see {note.name}); "
            "give another `work`"
        )


def save_arrays(path: Path, arrays: Mapping[str, ArrayLike]) -> None:
    with atomic_file(path) as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]


def load_arrays(path: Path, what: str, *names: str) -> dict[str, NDArray[Any]]:
    """Read arrays of `save_arrays`; raises ModelError, which says ``what`` they are, for a damaged file."""
    with reading(path, f"{what} of this training", "delete it"), np.load(path) as stored:
        return {name: stored[name] for name in names}


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    import torch

    with atomic_file(path) as stream:
        torch.save(dict(state), stream)


README = "README.md"
APACHE = "Apache License, Version 2.0"
LIMITS = "Trained on English abstracts of computer science; not tested elsewhere."
GRADES_LIMITS = (
    LIMITS + " The grades are those of large language models that followed CSFCube's published definitions."
)
OWN_GRADES = ("facet-judgments/", "graded-pairs/")  # folders of this repository, of which the above is true
BY_FACET = (*map(str, Facet), "mean")  # columns of figures by facet

_wrapped = functools.partial(textwrap.fill, width=110, break_on_hyphens=False, break_long_words=False)


def reader_name(kind: str, encoder: str) -> str:
    """The name of a model of a kind that reads the vectors of an encoder, such as ``grades-large``."""
    return kind + encoder.removeprefix(DEFAULT_ENCODER)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What a model's card says; labels of ``figures`` have `` | `` between columns, and a last column
    ``mean`` is computed.
    """

    name: str
    purpose: str
    input: str
    caption: str
    columns: Sequence[str] = ()
    figures: Mapping[str, Sequence[float]]
    places: int = 3
    limits: str = LIMITS
    licence: str = APACHE

    def write(self, folder: Path, data: Mapping[str, str], given: str = "") -> None:
        """Write README.md in a model's folder, which holds all its other files; ``data`` are the SHA-256 of
        the files learned from, by name, ``given`` is the command line, if there is one.
        """
        are_others = any(name.endswith(".tsv") and not name.startswith(OWN_GRADES) for name in data)
        size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file() and file.name != README)
        facts = {
            "Input": self.input,
            "Size": f"{size / 1e6:.3g} MB",
            "Command": given and f"`qbe train {given}`",
            "Data (SHA-256)": ", ".join(f"{name} ({digest[:12]})" for name, digest in data.items()),
            "Limits": LIMITS if are_others and self.limits == GRADES_LIMITS else self.limits,
            "Licence": self.licence,
        }
        lines = (
            _wrapped(f"- {name}: {fact}", subsequent_indent="  ") for name, fact in facts.items() if fact
        )
        table: list[str] = []
        for label, numbers in self.figures.items():
            labels = label.split(" | ")
            mean = [sum(numbers) / len(numbers)] if self.columns[-1] == "mean" else []
            row = [*labels, *(f"{number:.{self.places}f}" for number in (*numbers, *mean))]
            if not table:
                table.append(f"| {' | '.join(self.columns)} |")
                table.append("|" + "---|" * len(labels) + "---:|" * (len(self.columns) - len(labels)))
            table.append(f"| {' | '.join(row)} |")
        caption, bullets, figures = _wrapped(self.caption), "\n".join(lines), "\n".join(table)
        parts = [f"# {self.name}", _wrapped(self.purpose), bullets, "## Figures", caption, figures]
        (folder / README).write_text("\n\n".join(parts) + "\n", encoding="utf-8")
