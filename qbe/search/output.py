"""Results into a file or to standard output; a run of topics can be continued."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from qbe.errors import InputError, OutputError, RunError, file_error
from qbe.search.writers import Result, ResultWriter
from qbe.util.files import atomic_file, lock, write_text

log = logging.getLogger(__name__)


def write_run(
    path: Path | None,
    writer: ResultWriter,
    ids: Sequence[str],
    search: Callable[[Sequence[int]], Iterable[Result]],
    inputs: str | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
) -> None:
    """Write the results of queries to a file, or to standard output for None; ``search`` yields those of the
    queries at some places of ``ids``.

    With ``inputs``, a digest of all that they depend on, finished queries are kept beside the file in
    ``.NAME.part`` until all are there: a line of JSON with the digest, then one a query. ``resume`` continues
    it by query ids, ``overwrite`` discards it. A KeyboardInterrupt says so. Raises RunError where another
    process writes the file, or an unfinished run is in the way or has other inputs; OutputError for what
    cannot be written.
    """
    places = range(len(ids))
    if path is None or inputs is None or (path.exists() and not path.is_file()):
        texts = (
            writer.text(result, place == 0) for place, result in zip(places, search(places), strict=True)
        )
        if path is not None:
            write_text(path, "".join(texts))
        else:
            for text in texts:
                sys.stdout.write(text)
        return
    path = Path(os.path.realpath(path))
    part = path.with_name(f".{path.name}.part")
    with lock(path.with_name(f".{path.name}.lock")) as is_mine:
        if not is_mine:
            raise RunError(f"{path} is being written by another process; wait until it ends")
        done = _finished(part, inputs, resume=resume, overwrite=overwrite) if part.exists() else set()
        missing = [place for place in places if ids[place] not in done]
        try:
            with part.open("a" if done else "w", encoding="utf-8") as stream:
                if not done:
                    stream.write(json.dumps({"inputs": inputs}) + "\n")
                for place, result in zip(missing, search(missing), strict=True):
                    record = {"query_id": ids[place], "text": writer.text(result, place == 0)}
                    stream.write(json.dumps(record) + "\n")
                    stream.flush()
                    done.add(ids[place])
            with part.open("rb") as lines, atomic_file(path) as stream:
                next(lines)
                stream.writelines(json.loads(line)["text"].encode() for line in lines)
            part.unlink()
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                *(["; --resume continues with what is finished"] if done else [])
            ) from None
        except (OSError, InputError, OutputError) as error:
            reason = file_error(error, part) if isinstance(error, OSError) else error
            kept = "; what is finished is kept: continue it with `resume`" if done else ""
            raise type(reason)(f"{reason}{kept}") from error
        finally:
            if not done:
                part.unlink(missing_ok=True)


def _finished(part: Path, inputs: str, *, resume: bool, overwrite: bool) -> set[str]:
    """The ids of the complete queries of an unfinished run; what was cut off behind them is removed."""
    done, size = set(), 0
    with part.open("rb") as lines:
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                break
            if not size:
                former = record.get("inputs")
            else:
                done.add(record["query_id"])
            size += len(line)
    if not done or (overwrite and not resume):
        return set()
    if not resume:
        raise RunError(
            f"{part} holds an unfinished run; continue it with `resume`, or discard it with `overwrite`"
        )
    if former != inputs:
        raise RunError(
            f"{part} holds an unfinished run of another index, other topics or options; repeat the command as "
            "it was, or discard it with `overwrite`"
        )
    os.truncate(part, size)
    log.info("continuing the unfinished run in %s", part)
    return done
