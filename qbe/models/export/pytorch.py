"""PyTorch models: loaded from folders in the Hugging Face format, traced to ONNX files."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from qbe.errors import MissingDependencyError, ModelError
from qbe.models.kinds import TOKENIZER

TEXTS = (
    "Short.",
    "We study how the length of a query changes the order of the papers that a search engine returns.",
    "Neural rankers read a query and a document together. That costs time. We ask whether reading each "
    "once, and comparing their sentences afterwards, keeps the order of the first hundred documents. On "
    "two collections it does, at a hundredth of the cost; on a third it does not, and we explain why.",
    "Sätze mit Umlauten, Formeln wie $O(n \\log n)$, URLs (https://example.org) and 3.14 numbers!",
)
"""What exported models are compared with their originals on."""


def load_model(
    folder: Path, architecture: str, expected: str, parameter: str = "`folder`", **settings: Any
) -> tuple[Any, Collection[str]]:
    """The model in ``folder`` in single precision, for inference, and the names of weights that are missing.

    ``architecture`` is an automatic class of transformers, ``expected`` the name of such a model in an error,
    ``parameter`` what it says to check, and ``settings`` are fields of the model's configuration to change.
    Weights are read from model.safetensors, and where there is only a pytorch_model.bin from that, of which
    PyTorch then unpickles tensors and nothing else (``weights_only``); no code of the model's is run. Raises
    ModelError when the model cannot be loaded, MissingDependencyError without transformers.
    """
    try:
        import transformers
    except ImportError as error:
        raise MissingDependencyError(
            "exporting needs torch and transformers; run: pip install 'qbe[train]'"
        ) from error
    pickled = not (folder / "model.safetensors").exists() and (folder / "pytorch_model.bin").is_file()
    try:
        model, report = getattr(transformers, architecture).from_pretrained(
            folder,
            use_safetensors=not pickled,
            weights_only=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
            **{"attn_implementation": "eager", **settings},
        )
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{folder}: expected {expected}, found: {reason}; check {parameter}") from error
    return model.eval().float(), report["missing_keys"]


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer in ``folder``; raises ModelError where the ``tokenizers`` package cannot read it."""
    from tokenizers import Tokenizer

    path = folder / TOKENIZER
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise ModelError(
            f"{path}: expected a tokenizer of the tokenizers package, found: {reason}"
        ) from error


def write_tokenizer(folder: Path, path: Path) -> None:
    """The tokenizer of the model in ``folder`` as a file of the ``tokenizers`` package.

    A folder without one has word pieces of BERT's kind in vocab.txt, and in tokenizer_config.json how texts
    are prepared for them (SPECTER's are cased, and yet its texts are lowercased). Raises ModelError where
    these cannot be read.
    """
    if (folder / TOKENIZER).is_file():
        shutil.copyfile(folder / TOKENIZER, path)
        return
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        tokenizer.backend_tokenizer.save(str(path))
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise ModelError(
            f"{folder / 'vocab.txt'}: expected the word pieces of a BERT tokenizer, found: {reason}"
        ) from error


def to_onnx(
    module: Any,
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    axes: Mapping[str, Mapping[int, str]],
    path: Path,
) -> None:
    """Trace a module with example inputs, given by name in the order of its arguments, and write it in fp32.

    ``axes`` names, for each input and output, the axes whose length may vary.
    """
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tracer's notes on constants; a parity check decides
        torch.onnx.export(
            module.eval(),  # the exporter would switch a module in training mode, and so dropout, back on
            tuple(inputs.values()),
            str(path),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes=axes,
            opset_version=17,
            dynamo=False,
        )
