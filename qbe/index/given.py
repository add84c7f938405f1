"""The encoder of an index, by name or as an object, a function or an array of vectors that a user brings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from qbe.errors import EncoderMismatchError, ModelError, UsageError
from qbe.index.store import Manifest
from qbe.models.encoder import chunks
from qbe.models.folders import resolve_encoder
from qbe.models.formats import COSINE, SENTENCES, EncoderFormat
from qbe.models.pooling import Floats, PaperVectors, stored
from qbe.models.session import CPU
from qbe.types import Paper

PROBE, PROBED, CLOSE = "Graph networks for traffic forecasting.", 8, 0.02  # the first numbers of its vector


class GivenEncoder:
    """Encodes by a model of the user's, in the place of a `qbe.models.encoder.Encoder`.

    ``given`` has ``encode`` or is called with a list of texts, a sentence each or a title and abstract, and
    returns vectors (texts, dimension). Or it holds the vectors of each paper to be indexed, in their order or
    by id: one, or one for each sentence; then only papers of the index can be searched with.
    """

    batched, device, threads = True, CPU, 1

    def __init__(self, given: Any) -> None:
        self._encode = getattr(given, "encode", given if callable(given) else None)
        self._vectors: Any = None if self._encode else given
        name, probe = type(given).__name__, []
        if self._vectors is None:
            vector = self._encoded([PROBE])[0]
            self.dimension, probe = len(vector), [round(float(each), 4) for each in vector[:PROBED]]
        elif hasattr(given, "__getitem__") and len(given):
            first = next(iter(given.values())) if isinstance(given, Mapping) else given[0]
            self.dimension, name = int(np.shape(first)[-1]), "given vectors"
        else:
            raise TypeError(f"expected `encoder` as a name, an object with encode, or vectors, found {name}")
        encoder_format = EncoderFormat(layout=SENTENCES)
        metadata = SimpleNamespace(encoder_format=encoder_format, adapter=None, weights_sha256="", name=name)
        identity = {"name": name, "precision": "fp32", "weights_sha256": "", "probe": probe}
        self.files = SimpleNamespace(metadata=metadata, identity=identity, precision="fp32")

    def __str__(self) -> str:
        return str(self.files.metadata.name)

    def check(self, folder: object, built: dict[str, Any]) -> None:
        """Raise EncoderMismatchError unless an index was built with vectors of this encoder."""
        theirs, own = (np.array(each.get("probe", [np.nan])) for each in (built, self.files.identity))
        if theirs.shape != own.shape or not np.allclose(theirs, own, atol=CLOSE):
            raise EncoderMismatchError(
                f"{folder} was built with the encoder {built['name']}, found {self} with other vectors; give "
                "the encoder it was built with as `encoder`, or build the index again"
            )

    def encode(self, papers: Iterable[Paper], _: Any = None) -> Iterator[PaperVectors]:
        """Encode papers in order."""
        if self._vectors is None:
            for chunk in chunks(papers):
                texts = [[f"{p.title}. {p.abstract}", *(s.text for s in p.sentences)] for p in chunk]
                vectors = iter(self._encoded(list(chain.from_iterable(texts))))
                for some in texts:
                    whole, *each = (next(vectors) for _ in some)
                    yield PaperVectors(np.stack(each), whole)
            return
        for number, paper in enumerate(papers):
            every, none = self._vectors, np.zeros((0, 1))
            given = every.get(paper.paper_id, none) if isinstance(every, Mapping) else every[number]
            rows = np.atleast_2d(given)
            if len(rows) not in (1, len(paper.sentences)):
                raise UsageError(
                    "expected as `encoder` a vector of each paper, or of each of its sentences, found "
                    f"{len(rows)} for the {len(paper.sentences)} sentences of {paper.paper_id}"
                )
            sentences = stored(np.broadcast_to(rows, (len(paper.sentences), rows.shape[1])), COSINE)
            yield PaperVectors(sentences, stored(rows.mean(axis=0), COSINE))

    def check_count(self, papers: int) -> None:
        """Raise UsageError where there are not as many vectors as papers to be encoded."""
        given = self._vectors
        if given is not None and not isinstance(given, Mapping) and papers != len(given):
            raise UsageError(f"expected vectors of {papers} papers as `encoder`, found {len(given)}")

    def encode_paper(self, paper: Paper, _: Any = None) -> PaperVectors:
        if self._vectors is not None:
            raise UsageError("an index of given vectors is searched with its own papers, found another one")
        return next(self.encode([paper]))

    def cut(self, _: Paper) -> list[str]:
        return []  # what a model of the user's reads is not known

    def _encoded(self, texts: list[str]) -> Floats:
        vectors = np.asarray(self._encode(texts) if self._encode else None, np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise ModelError(
                f"expected vectors ({len(texts)}, dimension) of the `encoder`, found {vectors.shape}"
            )
        return stored(vectors, COSINE)


def matching_encoder(folder: Path, manifest: Manifest, name: Any) -> Any:
    """Return the files of the encoder of an index, those of ``name``, or a `GivenEncoder`; raise
    EncoderMismatchError for another.
    """
    assert manifest.dense is not None
    built = manifest.dense["encoder"]
    if name is not None and not isinstance(name, str):
        name.check(folder, built)
        return name
    if "probe" in built:
        raise EncoderMismatchError(
            f"{folder} was built with the encoder {built['name']} of a program; give it as `encoder`"
        )
    files = resolve_encoder(name or manifest.settings["encoder"], built["precision"])
    ways = []  # in which the encoder of the index, and this one, read papers
    for identity in (built, files.identity):
        stated = {**(identity.get("convention") or {}), "adapter": identity.get("adapter")}
        words = [f"{key} {value}" for key, value in stated.items() if value is not None]
        ways.append(", ".join(words) or "the default encoder")
    weights, found, text = built["weights_sha256"], files.metadata, ""
    if found.weights_sha256 != weights:
        text = f"({weights[:12]}), found {found.name} ({found.weights_sha256[:12]})"
    elif ways[0] != ways[1]:
        text = f"read as {ways[0]}, found it read as {ways[1]}"
    if text:
        raise EncoderMismatchError(
            f"{folder} was built with the encoder {built['name']} {text}; give the encoder it was built with "
            "as `encoder`, or build the index again"
        )
    return files
