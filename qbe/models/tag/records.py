"""Tagging a file of papers record by record; other fields of a record stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import IO, Any

from qbe.corpus import paper_to_record, parse_paper, read_records
from qbe.corpus.records import dump_record
from qbe.corpus.sentences import split_sentences
from qbe.models.tag.tagger import TaggingEncoder
from qbe.types import Paper
from qbe.util.parallel import ordered_map

Record = dict[str, Any]
Watch = Callable[[Iterable[tuple[str, Record]]], Iterable[tuple[str, Record]]]
"""A function that passes records through and may show progress."""

WRITTEN = ("abstract", "pred_labels", "sentence_offsets")
"""Fields that tagging adds or replaces."""


def tag_stream(
    source: str, stream: IO[bytes], tagging: TaggingEncoder, watch: Watch, *, probabilities: bool
) -> None:
    """Tag a file of papers into an open stream: ``abstract`` as sentences and ``pred_labels`` as in CSFCube.

    An abstract that was one string gets ``sentence_offsets`` into it, one that is a list stays as split.
    A record with labels stays as it is unless ``tagging`` predicts all. ``probabilities`` adds
    ``pred_probabilities``: a list of five numbers a sentence, in the order background, objective, method,
    result, other, where they were predicted.
    Raises CorpusError for records that are no papers.
    """

    def tag(item: tuple[Record, Paper]) -> Record:
        record, paper = item
        if not tagging.wants(paper):
            return record
        tagged = tagging.encode_paper(paper)[0]
        fields = paper_to_record(tagged)
        record = {**record, **{name: fields[name] for name in WRITTEN if name in fields}}
        record.pop("pred_probabilities", None)  # of labels that are replaced
        if probabilities:
            rows = (sentence.probabilities or () for sentence in tagged.sentences)
            record["pred_probabilities"] = [[round(share, 4) for share in row] for row in rows]
        return record

    records = watch(read_records(source))
    papers = ((record, parse_paper(record, where, split_sentences)) for where, record in records)
    for record in ordered_map(tag, papers, tagging.encoder.threads):
        stream.write(dump_record(record))
