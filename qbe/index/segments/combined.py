"""The manifest of an index of several segments, and what its dead papers take from the counts."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from qbe.index.labels import describe_predictions
from qbe.index.manifest import Manifest
from qbe.index.papers import SegmentPapers
from qbe.index.rows import Rows
from qbe.index.segments.commit import ROOT
from qbe.index.segments.snapshot import OpenSegment, Snapshot
from qbe.index.segments.views import take

Counts = Mapping[str, Any]
PREDICTIONS = ("labels", "lacking")
"""What a manifest's ``tagger`` counts."""

COUNTED = ("papers", "labelled", "sentences", "predicted")
"""What a manifest's ``corpus`` counts of its papers; how they were read, and what was left out then, stand
with it.
"""


def combined_manifest(snapshot: Snapshot) -> Manifest:
    """The manifest of an index: that of its only segment, or one combined from all segments'.

    Papers and predictions are counted without the deleted ones, Lucene's documents and tokens with them,
    since they count in its statistics. How the corpus was read, and what was left out of it, are facts of one
    segment each, which the whole does not state. ``dense`` is that of the segment with most sentences;
    others, of other sizes, may store vectors and find candidates otherwise. ``settings`` are the last
    segment's with all sources of the corpus, ``files`` those of all segments, and the digests are over the
    segments' own and over their rows of deleted papers.

    >>> from qbe.index.segments.snapshot import open_snapshot
    >>> snapshot = open_snapshot(index.folder)
    >>> combined_manifest(snapshot).digest == index.manifest.digest
    True
    >>> snapshot.close()
    """
    segments = snapshot.segments
    if snapshot.plain:
        return segments[0].manifest
    last = segments[-1].manifest
    sources = [source for each in segments for source in each.manifest.settings["corpus"]]
    return dataclasses.replace(
        last,
        settings={**last.settings, "corpus": list(dict.fromkeys(sources))},
        corpus={
            **_sum([live_counts(each) for each in segments]),
            "sha256": _digest(segments, [each.manifest.corpus["sha256"] for each in segments]),
        },
        lucene=_lucene(segments),
        dense=max(segments, key=lambda each: each.manifest.corpus["sentences"]).manifest.dense,
        tagger=_tagger(segments),
        files={
            name if each.segment.name == ROOT else f"{each.segment.name}/{name}": entry
            for each in segments
            for name, entry in each.manifest.files.items()
        },
        digest=_digest(segments, [each.manifest.digest for each in segments]),
    )


def tagger_identity(manifest: Manifest) -> dict[str, str] | None:
    """The identity of the tagger whose labels an index holds; None where nothing was predicted.

    >>> tagger_identity(index.manifest) is None  # the corpus brought all labels
    True
    """
    if manifest.tagger is None:
        return None
    return {name: value for name, value in manifest.tagger.items() if name not in PREDICTIONS}


def live_counts(segment: OpenSegment) -> Counts:
    """``papers``, ``labelled``, ``predicted`` and ``sentences`` of a segment without its deleted papers.

    >>> from qbe.index.segments.snapshot import open_snapshot
    >>> snapshot = open_snapshot(index.folder)
    >>> live_counts(snapshot.segments[0])
    {'papers': 128, 'labelled': 128, 'sentences': 594, 'predicted': 0}
    >>> snapshot.close()
    """
    if segment.segment.deletions is not None:
        return segment.segment.deletions.corpus
    return {key: segment.manifest.corpus[key] for key in COUNTED}


def live_predictions(segment: OpenSegment) -> Counts | None:
    """``labels`` and ``lacking`` of a segment without its dead papers; None where nothing was predicted."""
    if segment.segment.deletions is not None:
        return segment.segment.deletions.tagger
    if segment.manifest.tagger is None:
        return None
    return {key: segment.manifest.tagger[key] for key in PREDICTIONS}


def counts_of(segment: OpenSegment, rows: Rows) -> tuple[Counts, Counts | None]:
    """The counts of `live_counts` and `live_predictions` of some papers only."""
    store = SegmentPapers(segment.files, predictions=False)
    labelled = sum(store[row].labelled for row in rows.tolist())
    layout = take(SegmentPapers(segment.files).layout(), rows)
    corpus = {
        "papers": len(rows),
        "labelled": labelled,
        "predicted": len(rows) - labelled if segment.manifest.dense is not None else 0,
        "sentences": len(layout.facets),
    }
    return corpus, None if layout.probabilities is None else describe_predictions(layout)


def minus(counts: Counts, others: Counts) -> dict[str, Any]:
    """Counts minus others of the same names, at any depth.

    >>> minus({"papers": 5, "labels": {"other": 2}}, {"papers": 1, "labels": {"other": 2}})
    {'papers': 4, 'labels': {'other': 0}}
    """
    return {
        name: minus(value, others[name]) if isinstance(value, Mapping) else value - others[name]
        for name, value in counts.items()
    }


def _sum(counts: Sequence[Counts]) -> dict[str, Any]:
    """Counts added up, name by name, at any depth."""
    return {
        name: _sum([each[name] for each in counts])
        if isinstance(value, Mapping)
        else sum(each[name] for each in counts)
        for name, value in counts[0].items()
    }


def _lucene(segments: Sequence[OpenSegment]) -> Counts | None:
    described = [each.manifest.lucene for each in segments if each.manifest.lucene is not None]
    if not described:
        return None
    statistics = [{key: lucene[key] for key in ("documents", "tokens")} for lucene in described]
    return {**described[-1], **_sum(statistics)}


def _tagger(segments: Sequence[OpenSegment]) -> Counts | None:
    taggers = [each.manifest.tagger for each in segments if each.manifest.tagger is not None]
    if not taggers:
        return None
    predictions = [counts for each in segments if (counts := live_predictions(each)) is not None]
    return {**taggers[-1], **_sum(predictions)}


def _digest(segments: Sequence[OpenSegment], digests: Sequence[str]) -> str:
    dead = [each.segment.deletions.sha256 if each.segment.deletions else None for each in segments]
    text = json.dumps(list(zip(digests, dead, strict=True)))
    return hashlib.sha256(text.encode()).hexdigest()
