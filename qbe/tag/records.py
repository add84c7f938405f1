"""Tagging a file of papers record by record: what else a record holds stays as it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from qbe.corpus import paper_to_record, parse_paper, read_records
from qbe.corpus.jsonl import dump_record
from qbe.encode.parallel import ordered_map
from qbe.errors import UsageError
from qbe.files import output_error
from qbe.tag.tagging import TaggingEncoder
from qbe.text.split import split_sentences
from qbe.types import Paper

Record = dict[str, Any]
Watch = Callable[[Iterable[tuple[str, Record]]], Iterable[tuple[str, Record]]]
"""Passes records through and may show progress."""

STDOUT = "-"


def tagged_records(
    records: Iterable[tuple[str, Record]], tagging: TaggingEncoder, *, probabilities: bool = False
) -> Iterator[Record]:
    """Records (given with their places) with ``abstract`` as sentences, ``pred_labels`` as CSFCube has them.

    Abstracts that are lists stay as split; labels that a record brings stay unless ``tagging`` predicts
    all. ``probabilities`` adds ``pred_probabilities``: a list of five numbers a sentence, in the order
    background, objective, method, result, other, where they were predicted.
    Raises CorpusError for records that are no papers.
    """

    def tag(item: tuple[Record, Paper]) -> Record:
        record, paper = item
        tagged = tagging.encode_paper(paper)[0] if tagging.wants(paper) else paper
        fields = paper_to_record(tagged)
        record = {**record, "abstract": fields["abstract"], "pred_labels": fields["pred_labels"]}
        if probabilities and tagged.predicted:
            found = (sentence.probabilities or () for sentence in tagged.sentences)
            record["pred_probabilities"] = [[round(share, 4) for share in shares] for shares in found]
        return record

    papers = ((record, parse_paper(record, where, split_sentences)) for where, record in records)
    return ordered_map(tag, papers, tagging.encoder.threads)


def tag_file(
    source: str, output: Path, tagging: TaggingEncoder, watch: Watch, *, probabilities: bool, resume: bool
) -> int:
    """Tag a file of papers into another and return their number.

    The output appears whole or not at all. An interrupted call leaves its finished records in
    ``{output}.partial``, with which the same call with ``resume`` goes on; a failed one leaves nothing.
    Raises CorpusError for what `read_records` and `parse_paper` refuse, UsageError where what is to be
    resumed belongs to another input, and OutputError when the output cannot be written.
    """
    partial = output.with_name(output.name + ".partial")
    records = iter(watch(read_records(source)))
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        done = _pass_finished(partial, records) if resume and partial.exists() else 0
        with partial.open("ab" if done else "wb") as stream:
            for record in tagged_records(records, tagging, probabilities=probabilities):
                stream.write(dump_record(record))
                done += 1
        partial.replace(output)
    except KeyboardInterrupt:
        raise
    except UsageError:
        raise  # the finished records are of use to the call that they belong to
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise output_error(output, error) from error
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return done


def tag_stream(
    source: str, stream: IO[bytes], tagging: TaggingEncoder, watch: Watch, *, probabilities: bool
) -> None:
    """Tag a file of papers into an open stream."""
    for record in tagged_records(watch(read_records(source)), tagging, probabilities=probabilities):
        stream.write(dump_record(record))


def _pass_finished(partial: Path, records: Iterator[tuple[str, Record]]) -> int:
    """Pass over the records that a partial output holds, cut its last line if it is not whole, and count."""
    whole = count = 0
    with partial.open("r+b") as stream:
        for line in stream:
            if not line.endswith(b"\n"):
                break
            _, record = next(records, ("", {}))
            if json.loads(line).get("paper_id") != record.get("paper_id"):
                raise UsageError(
                    f"expected {partial} to hold the beginning of the same input, found another paper at "
                    f"line {count + 1}; repeat the command without --resume"
                )
            whole, count = whole + len(line), count + 1
        stream.truncate(whole)
    return count
