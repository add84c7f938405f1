"""Writes the sections of commands in ``docs/cli.md`` out of their parsers, by ``python -m scripts.cli_page``.

What stands above the mark in that page is written by hand, and stays.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from qbe.__main__ import COMMANDS
from qbe.cli.parser import parser_of

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
MARK = "<!-- from here on written by scripts/cli_page.py -->\n"
# The pages that commands are explained in.
SUBJECTS = {
    "index": "indexing.md",
    "harvest": "watching.md#arxiv-every-day",
    "pack": "indexing.md#sharing-an-index",
    "pull": "indexing.md#sharing-an-index",
    "search": "searching.md",
    "list": "searching.md#filters",
    "show": "searching.md#names-of-papers",
    "cite": "citing.md",
    "watch": "watching.md",
    "evaluate": "evaluation.md",
    "tag": "models.md#the-facet-tagger",
    "datasets": "evaluation.md",
    "label": "labelling.md",
    "train": "models.md",
    "export": "models.md",
    "serve": "serve.md",
    "mcp": "serve.md#agents",
    "cluster": "cluster.md",
    "doctor": "indexing.md#damage",
}


def page(text: str) -> str:
    """The page, with the sections of all commands in place of those of a ``text``."""
    table = "".join(f"| [`qbe {name}`](#qbe-{name}) | {line} |\n" for name, line in COMMANDS.items())
    commands = "".join(part for name in COMMANDS for part in _section(parser_of(name), name))
    return f"{text.partition(MARK)[0]}{MARK}\n| command | purpose |\n|---|---|\n{table}{commands}"


def _section(parser: argparse.ArgumentParser, command: str = "") -> Iterator[str]:
    on_cluster = parser.prog.startswith("qbe cluster ")
    plain = parser.prog.replace(" cluster", "")
    inherited = f"Takes the options of [`{plain}`](#{plain.replace(' ', '-')}) and those below."
    about = inherited if on_cluster else _plain(parser.description or "")
    yield f"\n{'##' if command else '###'} {parser.prog}\n\n{about}"
    yield f" More in [{subject}]({subject}).\n" if (subject := SUBJECTS.get(command)) else "\n"
    nested: list[argparse.ArgumentParser] = []
    for group in parser._action_groups:
        rows = []
        if on_cluster and not str(group.title).startswith("of the cluster"):
            continue
        for action in group._group_actions:
            if isinstance(action, argparse._SubParsersAction):
                nested += action.choices.values()
            elif action.dest != "help":
                rows.append(_row(action, parser._get_formatter()))
        if rows:
            named = group.title not in ("options", "positional arguments")
            title = f"{group.title[:1].upper()}{group.title[1:]}:\n\n" if named and group.title else ""
            yield f"\n{title}| option | meaning |\n|---|---|\n{''.join(rows)}"
    if parser.epilog and "\n" in parser.epilog and not on_cluster:
        yield f"\n```text\n{parser.epilog}```\n"
    for each in nested:
        yield from _section(each)


def _row(action: argparse.Action, formatter: argparse.HelpFormatter) -> str:
    value = "|".join(map(str, action.choices)) if action.choices else str(action.metavar or action.dest)
    words = [*action.option_strings[-1:], *([value] * {0: 0, 2: 2}.get(action.nargs, 1))]
    several = " ..." if action.nargs in ("+", "*") else ""
    meaning = _plain(formatter._expand_help(action))
    if action.required and action.option_strings:
        meaning += "; required"
    cells = [cell.replace("|", r"\|") for cell in (f"`{' '.join(words)}{several}`", meaning)]
    return f"| {cells[0]} | {cells[1]} |\n"


def _plain(text: str) -> str:
    return re.sub(r"([*<])", r"\\\1", text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
