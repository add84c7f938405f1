"""Tagging a file of papers record by record; other fields of a record stay as they are."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from qbe.corpus import paper_to_record, parse_paper, read_records
from qbe.corpus.jsonl import dump_record
from qbe.errors import UsageError, file_error
from qbe.files import Unfinished, atomic_file, lock, sync, write_text
from qbe.parallel import ordered_map
from qbe.tag.tagger import TaggingEncoder
from qbe.text.split import split_sentences
from qbe.types import Paper

Record = dict[str, Any]
Watch = Callable[[Iterable[tuple[str, Record]]], Iterable[tuple[str, Record]]]
"""A function that passes records through and may show progress."""

WRITTEN = ("abstract", "pred_labels", "sentence_offsets")
"""Fields that tagging adds or replaces."""

STATE = "tagging.json"
RECORDS = "records.jsonl"
"""In the hidden folder of an unfinished call: what shapes its records, and those that are finished."""


def tagged_records(
    records: Iterable[tuple[str, Record]], tagging: TaggingEncoder, *, probabilities: bool = False
) -> Iterator[Record]:
    """Records (with their places) with ``abstract`` as sentences and ``pred_labels`` as in CSFCube.

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

    papers = ((record, parse_paper(record, where, split_sentences)) for where, record in records)
    return ordered_map(tag, papers, tagging.encoder.threads)


def tag_file(
    source: str, output: Path, tagging: TaggingEncoder, watch: Watch, *, probabilities: bool, resume: bool
) -> int:
    """Tag a file of papers into another and return their number.

    The output appears whole or not at all. An interrupted call leaves its finished records in a hidden folder
    beside the output, and the same call with ``resume`` continues with them; without, they are discarded. A
    failed call leaves nothing.
    An existing output that is not a regular file (a pipe, ``/dev/null``) is written to directly.
    Raises CorpusError for what `read_records` and `parse_paper` refuse, UsageError where finished records
    belong to another input, or were made by another tagger or with other options, and where another process
    writes the same output, and OutputError when the output cannot be written.
    """
    if output.exists() and not output.is_file():
        with atomic_file(output) as stream:
            return tag_stream(source, stream, tagging, watch, probabilities=probabilities)
    output = Path(os.path.realpath(output))  # a symbolic link stays
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with lock(output.with_name(f".{output.name}.lock")) as is_only_writer:
            if not is_only_writer:
                raise UsageError(f"{output} is being written by another process; wait until it ends")
            return _tag_records(source, output, tagging, watch, probabilities, resume)
    except OSError as error:
        raise file_error(error, output) from error


def _tag_records(
    source: str, output: Path, tagging: TaggingEncoder, watch: Watch, probabilities: bool, resume: bool
) -> int:
    """Tag a file into another by way of the hidden folder."""
    folder = output.with_name(f".{output.name}.tagging")
    settings = _settings(tagging, probabilities)
    records = iter(watch(read_records(source)))
    done = _pass_finished(folder, settings, records) if resume else 0
    try:
        if not done:
            shutil.rmtree(folder, ignore_errors=True)
            write_text(folder / STATE, json.dumps(settings, indent=1))
        with (folder / RECORDS).open("ab" if done else "wb") as stream:
            for record in tagged_records(records, tagging, probabilities=probabilities):
                stream.write(dump_record(record))
                done += 1
            stream.flush()
            os.fsync(stream.fileno())
        (folder / RECORDS).replace(output)
        sync(output.parent)
    except KeyboardInterrupt:
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder)
    return done


def tag_stream(
    source: str, stream: IO[bytes], tagging: TaggingEncoder, watch: Watch, *, probabilities: bool
) -> int:
    """Tag a file of papers into an open stream and return their number."""
    done = 0
    for record in tagged_records(watch(read_records(source)), tagging, probabilities=probabilities):
        stream.write(dump_record(record))
        done += 1
    return done


def _settings(tagging: TaggingEncoder, probabilities: bool) -> dict[str, Any]:
    """All that shapes a tagged record beside the record itself, as JSON values."""
    return {
        "tagger": None if tagging.tagger is None else tagging.tagger.identity,
        "encoder": tagging.encoder.files.identity,
        "facets": tagging.facets,
        "probabilities": probabilities,
        "version": version("qbe"),
    }


def _pass_finished(folder: Path, settings: dict[str, Any], records: Iterator[tuple[str, Record]]) -> int:
    """Skip the records that an interrupted call finished, cut the last line of its file if it is incomplete,
    and count.
    """
    unfinished = Unfinished(folder, STATE, "tagging", "the options", UsageError)
    before, partial = unfinished.read_state(), folder / RECORDS
    if before is None or not partial.exists():
        return 0
    if changed := [name for name in settings if before.get(name) != settings[name]]:
        raise UsageError(
            f"expected the settings of the unfinished tagging in {folder}, found other {', '.join(changed)}; "
            "repeat the command as it was, or without `resume`, which discards that"
        )
    complete_bytes = count = 0
    with partial.open("r+b") as stream:
        for line in stream:
            if not line.endswith(b"\n"):
                break
            _, record = next(records, ("", {}))
            finished_id = _paper_id(line)
            if finished_id is None or finished_id != record.get("paper_id"):
                raise UsageError(
                    f"expected {partial} to hold the beginning of the same input, found another paper at "
                    f"line {count + 1}; repeat it without `resume`"
                )
            complete_bytes, count = complete_bytes + len(line), count + 1
        stream.truncate(complete_bytes)
    return count


def _paper_id(line: bytes) -> object:
    try:
        return json.loads(line)["paper_id"]
    except (ValueError, TypeError, KeyError):
        return None
