"""The files of sentence and whole-paper vectors in an index, memory-mapped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qbe.index.dense.ann import FLOAT16
from qbe.index.dense.stored import Vectors, open_vectors
from qbe.index.openfiles import OpenFiles

SENTENCES = "vectors.npy"
WHOLE = "whole.npy"


def read_vectors(folder: Path | OpenFiles, stored: str = FLOAT16) -> tuple[Vectors, Vectors]:
    """Sentence vectors and whole-paper vectors of an index, memory-mapped; raises IndexFormatError.

    >>> sentences, whole = read_vectors(Path("indexes/sample"))
    >>> sentences.shape, whole.shape
    ((594, 384), (128, 384))
    """
    return open_vectors(folder, SENTENCES, stored), open_vectors(folder, WHOLE, stored)


def silent(_: int) -> None:
    """Takes the number of vectors just added to an index, and shows nothing.

    >>> silent(3)
    """


def blocks(vectors: Vectors, rows: int = 65536) -> Iterator[NDArray[np.float32]]:
    """The vectors as float32 arrays of up to ``rows`` rows, in order.

    >>> [len(block) for block in blocks(np.zeros((5, 2), np.float16), rows=2)]
    [2, 2, 1]
    """
    for first in range(0, len(vectors), rows):
        yield vectors[first : first + rows].astype(np.float32)
