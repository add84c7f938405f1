"""A model as its difference from a base: integers, with a scale a row, for weights that training changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.errors import MissingDependencyError, ModelError

SCALE = ".scale"
LARGEST = 127

Floats = NDArray[np.float32]


def quantized(base: Mapping[str, Floats], changed: Mapping[str, Floats]) -> dict[str, NDArray[Any]]:
    """The difference of each changed weight from the base's: int8 codes of matrices, each row (the last axis)
    with a scale (float32) of its own; vectors as they are, float32.

    >>> base = {"w": np.float32([[1.0, 2.0]]), "b": np.float32([0.5])}
    >>> codes = quantized(base, {"w": np.float32([[1.5, 1.0]]), "b": np.float32([0.75])})
    >>> codes["w"].tolist(), round(float(codes["w.scale"][0]) * 127, 4), codes["b"].tolist()
    ([[64, -127]], 1.0, [0.25])
    """
    parts: dict[str, NDArray[Any]] = {}
    for name, values in changed.items():
        difference = np.asarray(values, np.float32) - np.asarray(base[name], np.float32)
        if difference.ndim < 2:
            parts[name] = difference
            continue
        scale = np.abs(difference).max(-1) / LARGEST
        safe = np.where(scale > 0, scale, 1)[..., None]
        parts[name] = np.rint(difference / safe).astype(np.int8)
        parts[name + SCALE] = scale.astype(np.float32)
    return parts


def applied(base: Mapping[str, Floats], parts: Mapping[str, NDArray[Any]]) -> dict[str, Floats]:
    """The weights of the base with a difference that `quantized` made added to them.

    Raises ModelError for weights that the base does not have in that shape.

    >>> base = {"w": np.float32([[1.0, 2.0]])}
    >>> np.round(applied(base, quantized(base, {"w": np.float32([[1.5, 1.0]])}))["w"], 2).tolist()
    [[1.5, 1.0]]
    """
    weights = dict(base)
    for name, values in parts.items():
        if name.endswith(SCALE):
            continue
        if name not in base or base[name].shape != values.shape:
            raise ModelError(
                f"expected weights of the base, found {name} {values.shape} in the difference, which it does "
                "not have; give the base that the model was made from"
            )
        scale = parts.get(name + SCALE)
        difference = values.astype(np.float32) if scale is None else values * scale[..., None]
        weights[name] = (base[name] + difference).astype(np.float32)
    return weights


def write_weights(path: Path, weights: Mapping[str, NDArray[Any]]) -> None:
    """Write weights as a safetensors file; raises MissingDependencyError without that package."""
    _safetensors().save_file({name: np.ascontiguousarray(part) for name, part in weights.items()}, str(path))


def read_weights(path: Path) -> dict[str, NDArray[Any]]:
    """The weights of a safetensors file; raises ModelError where it cannot be read."""
    library = _safetensors()
    try:
        weights: dict[str, NDArray[Any]] = library.load_file(str(path))
    except Exception as error:
        raise ModelError(
            f"{path}: expected weights in safetensors, found: {error}; install qbe again"
        ) from error
    return weights


def _safetensors() -> Any:
    try:
        from safetensors import numpy as library
    except ImportError as error:
        raise MissingDependencyError(
            "making a large model needs safetensors, torch and transformers; run: pip install 'qbe[large]'"
        ) from error
    return library
