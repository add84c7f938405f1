"""CSAbstruct (Cohan et al., 2019): abstracts of computer science with one label a sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from qbe.corpus import read_records
from qbe.errors import CorpusError
from qbe.types import FacetProbabilities

LABELS = FacetProbabilities._fields
"""The five labels; a label's number is its position here."""

_NUMBERS = {label: number for number, label in enumerate(LABELS)}

SPLITS = ("train", "dev", "test")


class LabelledAbstract(NamedTuple):
    """An abstract's sentences, their labels (positions in LABELS), and the confidence of the annotators.

    Confidences are in (0, 1]: the share of the (quality-weighted) votes for the label.
    """

    sentences: tuple[str, ...]
    labels: tuple[int, ...]
    confidences: tuple[float, ...]


def read_csabstruct(folder: Path) -> Mapping[str, list[LabelledAbstract]]:
    """The abstracts of ``train.jsonl``, ``dev.jsonl`` and ``test.jsonl`` in a folder, by split.

    Raises CorpusError for a file that is absent or not in the release's format.

    >>> record = '{"sentences": ["We cut it."], "labels": ["method"], "confs": [0.75]}'
    >>> for split in SPLITS:
    ...     _ = Path(f"{split}.jsonl").write_text(record)
    >>> read_csabstruct(Path())["dev"]
    [LabelledAbstract(sentences=('We cut it.',), labels=(2,), confidences=(0.75,))]
    """
    return {split: _read(folder / f"{split}.jsonl") for split in SPLITS}


def _read(path: Path) -> list[LabelledAbstract]:
    abstracts = [_abstract(record, where) for where, record in read_records(path)]
    if not abstracts:
        raise CorpusError(f"{path}: expected abstracts, found none; give the folder of CSAbstruct's release")
    return abstracts


def _abstract(record: Mapping[str, Any], where: str) -> LabelledAbstract:
    try:
        sentences, labels = tuple(record["sentences"]), tuple(map(_NUMBERS.__getitem__, record["labels"]))
        confidences = tuple(map(float, record.get("confs") or [1.0] * len(labels)))
    except (KeyError, ValueError, TypeError) as error:
        raise CorpusError(
            f"{where}: expected sentences, labels ({', '.join(LABELS)}) and confs, found {error!r}; "
            "give the folder of CSAbstruct's release"
        ) from error
    if not len(sentences) == len(labels) == len(confidences) or not sentences:
        counts = json.dumps([len(sentences), len(labels), len(confidences)])
        raise CorpusError(
            f"{where}: expected one label and one confidence a sentence, found {counts}; correct the record"
        )
    return LabelledAbstract(sentences, labels, confidences)
