"""The imports of files of Python."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        for parts in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from _statements(getattr(statement, parts, []))


@cache
def import_statements(file: Path) -> list[ast.Import | ast.ImportFrom]:
    """Those anywhere in a file, in functions and for type checking too."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return [each for each in _statements(tree.body) if isinstance(each, ast.Import | ast.ImportFrom)]
