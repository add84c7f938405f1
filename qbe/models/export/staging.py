"""Folders that appear whole or not at all."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from qbe.errors import OutputError
from qbe.models.kinds import CROSS_ENCODER, DIFFERENCE, ENCODER, RANGES, TAGGER, TOKENIZER
from qbe.util.files import publish_directory

_NAMED = ("citation", "grades", "facet-projections", "joint-grades")
"""Models whose card and weights have their name."""

_METADATA = {
    *(kind.metadata_file for kind in (ENCODER, CROSS_ENCODER, TAGGER)),
    DIFFERENCE,
    *(f"{name}.json" for name in _NAMED),
    "words.tsv.gz",
}
_PYTORCH = {"config.json", "model.safetensors"}
_WEIGHTS = {TOKENIZER, RANGES, *(f"{name}.npz" for name in _NAMED)}
_BESIDE = {*_METADATA, *_PYTORCH, *_WEIGHTS, "README.md", "LICENSE", "NOTICE"}
"""Files of a model's folder beside its ONNX files; a folder that a model was copied to may lack some."""


def check_model_folder(folder: Path) -> None:
    """Raise OutputError where a folder holds files that are not a model's: they would be removed when a model
    takes its place.

    >>> folder = Path("notes")
    >>> folder.mkdir()
    >>> _ = (folder / "notes.txt").write_text("mine")
    >>> check_model_folder(folder)
    Traceback (most recent call last):
    ...
    qbe.errors.OutputError: notes: expected no such folder, or a model to replace, found notes.txt in it; ...
    """
    for path in _foreign(folder):
        raise OutputError(
            f"{folder}: expected no such folder, or a model to replace, found {path.relative_to(folder)} in "
            "it; choose another `output`, or move that away"
        )


def _foreign(folder: Path) -> Iterator[Path]:
    """Files that are not a model's, in a folder and in those within it."""
    if not folder.is_dir():
        return
    paths = sorted(folder.iterdir())
    names = {path.name for path in paths}
    is_model = bool(names & _METADATA) or names >= _PYTORCH or any(path.suffix == ".onnx" for path in paths)
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            yield from _foreign(path)
        elif not is_model or (path.name not in _BESIDE and path.suffix != ".onnx"):
            yield path


@contextlib.contextmanager
def staged_folder(destination: Path) -> Iterator[Path]:
    """A hidden folder, which replaces ``destination`` when the block ends without an error.

    When the block raises, ``destination`` stays as it was and the hidden folder is removed. Raises what
    `check_model_folder` does, before the block.

    >>> with staged_folder(Path("model")) as staged:
    ...     _ = (staged / "config.json").write_text("{}")
    ...     Path("model").exists()
    False
    >>> Path("model/config.json").exists()
    True
    """
    check_model_folder(destination)
    destination.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", dir=destination.parent))
    staged.chmod(0o755)
    try:
        yield staged
        publish_directory(staged, destination)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
