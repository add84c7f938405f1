"""FAISS indexes of each kind, for the sample's 594 sentences as vectors of 16 numbers."""

from pathlib import Path

import numpy as np

from qbe.index.index import Index

EXACT, GRAPH, ROUNDED = "SQfp16", "HNSW32,SQfp16", "IVF32,SQ8"
FACTORIES = (EXACT, GRAPH, ROUNDED, "IVF32,PQ4x4fs", "OPQ4,IVF32,PQ4x4fs", "IVF32,PQ2", "Flat")
"""Factory strings; but for the graph, all find all that they are to find where all lists are read."""


def vectors_apart(folder: Path) -> np.ndarray:
    """Sentence vectors (sentences, 16) of an index, moved apart: the tiny model's are nearly parallel."""
    vectors = Index(folder).sentence_vectors.astype(np.float32)
    apart = vectors - vectors.mean(axis=0)
    return (apart / np.linalg.norm(apart, axis=1, keepdims=True)).astype(np.float16)
