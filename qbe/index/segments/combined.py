"""The manifest of an index of several segments, and what its dead papers take from the counts."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from qbe.index.labels import describe_predictions
from qbe.index.manifest import Manifest
from qbe.index.papers import PaperStore
from qbe.index.rows import Rows
from qbe.index.segments.commit import ROOT
from qbe.index.segments.snapshot import OpenSegment, Snapshot
from qbe.index.segments.views import take

Counts = Mapping[str, Any]
PREDICTIONS = ("labels", "lacking")
"""What a manifest's ``tagger`` counts."""


def combined_manifest(snapshot: Snapshot) -> Manifest:
    """What an index states of itself: its only segment's manifest, or one out of all segments'.

    Papers and predictions are counted without the dead ones, Lucene's documents and tokens with them, since
    they count in its statistics. ``dense`` is that of the segment with most sentences; others, of other
    sizes, may store vectors and find candidates otherwise. ``settings`` are the last segment's with all
    sources of the corpus, ``files`` those of all segments, and the digests are over the segments' own and
    over their dead rows.
    """
    parts = snapshot.parts
    if snapshot.plain:
        return parts[0].manifest
    last = parts[-1].manifest
    sources = [source for part in parts for source in part.manifest.settings["corpus"]]
    return dataclasses.replace(
        last,
        settings={**last.settings, "corpus": list(dict.fromkeys(sources))},
        corpus={
            **_sum([live_counts(part) for part in parts]),
            "sha256": _digest(parts, [part.manifest.corpus["sha256"] for part in parts]),
        },
        lucene=_lucene(parts),
        dense=max(parts, key=lambda part: part.manifest.corpus["sentences"]).manifest.dense,
        tagger=_tagger(parts),
        files={
            name if part.segment.name == ROOT else f"{part.segment.name}/{name}": entry
            for part in parts
            for name, entry in part.manifest.files.items()
        },
        digest=_digest(parts, [part.manifest.digest for part in parts]),
    )


def labeller(manifest: Manifest) -> dict[str, str] | None:
    """The identity of the tagger whose labels an index holds, if any."""
    if manifest.tagger is None:
        return None
    return {name: value for name, value in manifest.tagger.items() if name not in PREDICTIONS}


def live_counts(part: OpenSegment) -> Counts:
    """``papers``, ``labelled``, ``predicted`` and ``sentences`` of a segment without its dead papers."""
    if part.segment.deletions is not None:
        return part.segment.deletions.corpus
    return {key: value for key, value in part.manifest.corpus.items() if key != "sha256"}


def live_predictions(part: OpenSegment) -> Counts | None:
    """``labels`` and ``lacking`` of a segment without its dead papers; None where nothing was predicted."""
    if part.segment.deletions is not None:
        return part.segment.deletions.tagger
    if part.manifest.tagger is None:
        return None
    return {key: part.manifest.tagger[key] for key in PREDICTIONS}


def counts_of(part: OpenSegment, rows: Rows) -> tuple[Counts, Counts | None]:
    """The counts of `live_counts` and `live_predictions` of some papers alone."""
    store = PaperStore(part.path, predictions=False)
    labelled = sum(store[row].labelled for row in rows.tolist())
    layout = take(PaperStore(part.path).layout(), rows)
    corpus = {
        "papers": len(rows),
        "labelled": labelled,
        "predicted": len(rows) - labelled if part.manifest.dense is not None else 0,
        "sentences": len(layout.facets),
    }
    return corpus, None if layout.probabilities is None else describe_predictions(layout)


def minus(counts: Counts, others: Counts) -> dict[str, Any]:
    """Counts less others of the same names, at any depth."""
    return {
        name: minus(value, others[name]) if isinstance(value, Mapping) else value - others[name]
        for name, value in counts.items()
    }


def _sum(counts: Sequence[Counts]) -> dict[str, Any]:
    """Counts added up, name by name, at any depth."""
    return {
        name: _sum([one[name] for one in counts])
        if isinstance(value, Mapping)
        else sum(one[name] for one in counts)
        for name, value in counts[0].items()
    }


def _lucene(parts: Sequence[OpenSegment]) -> Counts | None:
    found = [part.manifest.lucene for part in parts if part.manifest.lucene is not None]
    if not found:
        return None
    return {**found[-1], **_sum([{key: one[key] for key in ("documents", "tokens")} for one in found])}


def _tagger(parts: Sequence[OpenSegment]) -> Counts | None:
    taggers = [part.manifest.tagger for part in parts if part.manifest.tagger is not None]
    if not taggers:
        return None
    found = [counts for part in parts if (counts := live_predictions(part)) is not None]
    return {**taggers[-1], **_sum(found)}


def _digest(parts: Sequence[OpenSegment], digests: Sequence[str]) -> str:
    dead = [part.segment.deletions.sha256 if part.segment.deletions else None for part in parts]
    text = json.dumps(list(zip(digests, dead, strict=True)))
    return hashlib.sha256(text.encode()).hexdigest()
