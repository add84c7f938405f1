"""docs/papers.md: each row of its tables has a command that qbe takes, or says why there is none."""

import re
import shlex
from pathlib import Path

import pytest

from qbe.__main__ import COMMANDS, command_parser
from qbe.search.stages import parse_first_stage, parse_reranker

TEXT = (Path(__file__).parent.parent / "docs" / "papers.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line[1:-1].split(" | ")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith("| what |")
]
COMMAND_LINES = sorted({text for row in ROWS for text in re.findall(r"`(qbe [^`]+)`", row[2])})


def test_every_row_has_a_command_or_says_why_there_is_none():
    for row in ROWS:
        assert len(row) == 4, row
        what, _, command, standing = row
        assert what, row
        assert standing, row
        assert command.startswith("`") or standing.startswith("not run: "), row


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_each_command_is_taken(line):
    for part in line.replace("\\|", "|").split(" && "):
        _, command, *arguments = shlex.split(part)
        assert command in COMMANDS
        options = command_parser(command).parse_args(arguments)
        if command == "search":
            assert options.first_stage is None or parse_first_stage(options.first_stage)
            assert options.rerank is None or parse_reranker(options.rerank)
