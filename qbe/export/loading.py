"""What an export starts from: a model and its tokenizer, from a folder as Hugging Face lays it out."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from qbe.errors import MissingDependencyError, ModelError


def load_model(folder: Path, architecture: str, expected: str) -> tuple[Any, Collection[str]]:
    """The model in ``folder`` in single precision, to be run, and the names of weights that its files lack.

    ``architecture`` is an automatic class of transformers, ``expected`` what an error calls such a model.
    Only safetensors weights are read, and no code of the model's is run. Raises ModelError when the model
    cannot be loaded, MissingDependencyError without transformers.
    """
    try:
        import transformers
    except ImportError as error:
        raise MissingDependencyError(
            "exporting needs torch and transformers; run: pip install 'qbe[train]'"
        ) from error
    try:
        model, report = getattr(transformers, architecture).from_pretrained(
            folder,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            attn_implementation="eager",
            output_loading_info=True,
        )
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{folder}: expected {expected}, found: {reason}; check --model") from error
    return model.eval().float(), report["missing_keys"]


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer in ``folder``; raises ModelError where it is none of the ``tokenizers`` package."""
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise ModelError(
            f"{path}: expected a tokenizer of the tokenizers package, found: {reason}"
        ) from error
