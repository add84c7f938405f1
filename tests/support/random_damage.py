"""Indexes damaged over and over, each time opened, searched and read, in a process that a signal may end.

Usage: random_damage.py FOLDER COUNT SEED. FOLDER holds indexes, and of each NAME another one, NAME-other. To
standard error goes each damage before it is done; to standard output, at the end, how often it was told, how
often nothing changed, and what came of each other one.
"""

import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from qbe.errors import IndexFormatError
from qbe.index.index import Index
from qbe.query import Query
from support.searching import first_stage

KINDS = ("emptied", "halved", "lengthened", "exchanged", "flipped")
PAPERS = ("s003", "s020", "s036")


def answers(folder: Path) -> list[Any]:
    """Rankings with scores by each first stage, and all papers."""
    with Index(folder, threads=1) as index:
        queries = [Query(index.paper(paper_id)) for paper_id in PAPERS]
        rankings = []
        for stage in ("bm25", "dense", "fused"):
            with first_stage(index, stage) as pipeline:
                rankings.append([pipeline.search(query, 200) for query in queries])
        return [*rankings, list(index), [len(metadata) for metadata in index.papers.read_metadata()]]


def damaged(content: bytes, kind: str, other: Path, chance: random.Random) -> bytes | None:
    """The content of a damaged file; None where this kind leaves it as it is."""
    if kind == "exchanged":  # for a file of the same length of another index
        changed = other.read_bytes() if other.is_file() else b""
        return changed if len(changed) == len(content) and changed != content else None
    if not content:
        return None
    if kind == "flipped":
        place = chance.randrange(len(content))
        return content[:place] + bytes([content[place] ^ 1 << chance.randrange(8)]) + content[place + 1 :]
    return {"emptied": b"", "halved": content[: len(content) // 2], "lengthened": content + bytes(16)}[kind]


def main(folder: Path, count: int, seed: int) -> None:
    chance, outcomes, wrong = random.Random(seed), Counter[str](), []
    indexes = sorted(path for path in folder.iterdir() if (folder / f"{path.name}-other").is_dir())
    expected = {index: answers(index) for index in indexes}
    files = [
        (index, path.relative_to(index))
        for index in indexes
        for path in sorted(index.rglob("*"))
        if path.is_file()
    ]
    each = [(index, name, kind) for index, name in files for kind in KINDS]
    while sum(outcomes.values()) < count:
        # Every file in every way first, then more bits.
        index, name, kind = (
            each.pop(chance.randrange(len(each))) if each else (*chance.choice(files), "flipped")
        )
        path, content = index / name, (index / name).read_bytes()
        changed = damaged(content, kind, folder / f"{index.name}-other" / name, chance)
        if changed is None:
            continue
        print(index.name, name, kind, file=sys.stderr, flush=True)
        path.write_bytes(changed)
        try:
            outcome = "same" if answers(index) == expected[index] else "another answer"
        except IndexFormatError as error:
            outcome = "told" if "\n" not in str(error) else f"{error!r}"
        except Exception as error:  # what a command would end in
            outcome = f"{error!r}"
        path.write_bytes(content)
        outcomes[outcome if outcome in ("told", "same") else "wrong"] += 1
        if outcome not in ("told", "same"):
            wrong.append(f"{index.name}/{name} {kind}: {outcome}")
    print(json.dumps({**outcomes, "wrong": wrong}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
