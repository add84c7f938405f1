"""An index of as many papers as wanted, made out of a real one, or its papers alone.

A synthetic paper takes its sentences, with facets and vectors, from one real paper, three in ten of them from
another. To each vector the difference of two real neighbours is added (sentences of different papers; two
such differences mixed at random), times a number drawn from 0 to STRENGTH, since a real corpus has near
copies as well as unrelated papers. The same seed makes the same index. It has no postings.
"""

from __future__ import annotations

import contextlib
import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from qbe.types import Paper, Sentence

if TYPE_CHECKING:
    from qbe.index.index import Index

DIFFERENCES = 2048  # pairs of neighbours that differences are taken of

# At the most: two sentences made from the same one are then a little farther apart than real neighbours.
STRENGTH = 0.8

OTHER_PAPER = 0.3  # the share of sentences from another paper

BLOCK = 4096  # papers made at a time


class Timings:
    """``seconds`` and ``peaks`` of each stage: the most bytes held until its end, on Linux during it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.peaks: dict[str, int] = {}

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure the block."""
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # counts the peak anew (proc(5))
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started
        self.peaks[name] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Drawn(NamedTuple):
    """Synthetic papers: the real paper of each, and the real sentences of all, laid end to end."""

    papers: np.ndarray
    starts: np.ndarray
    sentences: np.ndarray


def draw(starts: np.ndarray, count: int, random: np.random.Generator) -> Drawn:
    """Real papers and sentences for ``count`` papers; ``starts`` is the real index's layout."""
    papers, others = random.integers(len(starts) - 1, size=(2, count))
    counts = starts[papers + 1] - starts[papers]
    begins = np.concatenate([[0], np.cumsum(counts)])
    sentences = np.arange(begins[-1]) + np.repeat(starts[papers] - begins[:-1], counts)
    others = np.repeat(others, counts)
    lengths = starts[others + 1] - starts[others]
    places = starts[others] + (random.random(len(others)) * lengths).astype(np.int64)
    sentences = np.where(random.random(len(others)) < OTHER_PAPER, places, sentences)
    return Drawn(papers, begins, sentences)


def differences(vectors: Any, starts: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Differences (DIFFERENCES, dimension) of sentences and their nearest ones in other papers."""
    rows = np.sort(random.choice(len(vectors), min(DIFFERENCES, len(vectors)), replace=False))
    chosen = vectors[rows].astype(np.float32)
    paper_of = np.searchsorted(starts, rows, side="right") - 1
    best, near = np.full(len(rows), -2, np.float32), np.zeros_like(rows)
    for first in range(0, len(vectors), 8192):
        products = chosen @ vectors[first : first + 8192].astype(np.float32).T
        places = np.arange(first, first + products.shape[1])
        products[(places >= starts[paper_of, None]) & (places < starts[paper_of + 1, None])] = -2
        better = products.max(axis=1) > best
        near[better] = first + products.argmax(axis=1)[better]
        best = np.maximum(best, products.max(axis=1))
    order = np.argsort(near)
    neighbours = np.empty_like(chosen)
    neighbours[order] = vectors[near[order]].astype(np.float32)
    moves: np.ndarray = neighbours - chosen
    return moves


def moved(vectors: np.ndarray, noise: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Vectors (n, dimension) with mixed differences added, of unit length, in half precision."""
    first, second = random.integers(len(noise), size=(2, len(vectors)))
    angles = random.random((len(vectors), 1), np.float32) * np.float32(2 * np.pi)
    strengths = random.random((len(vectors), 1), np.float32) * np.float32(STRENGTH)
    vectors = vectors + strengths * np.cos(angles) * noise[first]
    vectors += strengths * np.sin(angles) * noise[second]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    half: np.ndarray = vectors.astype(np.float16)
    return half


def blocks(source: Index, papers: int, seed: int) -> Iterator[tuple[Drawn, np.random.Generator]]:
    """What the papers are made of, some at a time, each block with a generator of its own."""
    for number, first in enumerate(range(0, papers, BLOCK)):
        random = np.random.default_rng([seed, number])
        yield draw(source.layout.starts, min(BLOCK, papers - first), random), random


def papers_of(source: Index, papers: int, seed: int) -> Iterator[Paper]:
    """The papers, their facets as labels."""
    from qbe.index.papers import FACET_CODES

    real = list(source.papers.read_from(0))
    texts = [sentence.text for paper in real for sentence in paper.sentences]
    facets = source.layout.facets
    number = 0
    for drawn, _ in blocks(source, papers, seed):
        for place, paper in enumerate(drawn.papers.tolist()):
            rows = drawn.sentences[drawn.starts[place] : drawn.starts[place + 1]].tolist()
            sentences = tuple(Sentence(texts[row], FACET_CODES[facets[row]]) for row in rows)
            yield Paper(f"m{number:07d}", real[paper].title, sentences, labelled=True)
            number += 1


def write_synthetic(
    source: Index,
    folder: Path,
    papers: int,
    seed: int,
    threads: int,
    timings: Timings,
) -> None:
    """Make an index in a new folder, stage by stage as `qbe.index.build` does, in a stream."""
    from qbe.index.build import describe
    from qbe.index.faiss import write_faiss
    from qbe.index.papers import write_papers
    from qbe.index.params import resolve, resolve_stored
    from qbe.index.vectors import SENTENCES, WHOLE, open_vectors, writing_vectors

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with timings.stage("papers"):
        counts = write_papers(folder, papers_of(source, papers, seed))
    stored = resolve_stored("auto", counts["sentences"])
    with timings.stage("vectors"):
        noise = differences(source.sentence_vectors, source.layout.starts, np.random.default_rng(seed))
        real, whole = (
            np.asarray(each).astype(np.float32) for each in (source.sentence_vectors, source.whole_vectors)
        )
        shapes = (counts["sentences"], real.shape[1]), (papers, real.shape[1])
        with (
            writing_vectors(folder, SENTENCES, shapes[0], stored, source.similarity) as add_sentences,
            writing_vectors(folder, WHOLE, shapes[1], stored, source.similarity) as add_whole,
        ):
            for drawn, random in blocks(source, papers, seed):
                add_whole(moved(whole[drawn.papers], noise, random))
                for first in range(0, len(drawn.sentences), BLOCK):
                    add_sentences(moved(real[drawn.sentences[first : first + BLOCK]], noise, random))
        del real, whole
    with timings.stage("faiss"):
        vectors = open_vectors(folder, SENTENCES, stored)
        params = resolve("auto", *vectors.shape)
        write_faiss(folder, vectors, source.similarity, params, threads)
    with timings.stage("files"):
        dense = {**(source.manifest.dense or {}), "stored": stored, "ann": params.record()}
        counted = {**counts, "predicted": 0}
        inputs = {"settings": source.manifest.settings}
        describe(folder, {"inputs": inputs, "counts": counted, "tagger": None, "dense": dense})
