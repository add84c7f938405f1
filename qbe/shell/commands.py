"""The commands: their names, their arguments, and what they do in one line."""

from __future__ import annotations

from typing import NamedTuple

FORMATS = ("bibtex", "ris", "csv", "markdown", "json")
"""Formats of exports."""

SEEDS = "seeds"
"""What stands for the papers that are searched with."""


class Command(NamedTuple):
    """A command's arguments, and what it does."""

    arguments: str
    help: str


COMMANDS = {
    "paper": Command("ID ...", "search for papers like one of the index, or several"),
    "text": Command("[TITLE]", "search with an abstract: paste it, and end with an empty line or a dot"),
    "facet": Command("background|method|result|all", "what hits should have in common with it"),
    "like": Command("FACET[:WEIGHT] ...", "several facets to have in common"),
    "unlike": Command("FACET[:WEIGHT] ...", "after like: facets in which hits should differ"),
    "explore": Command(
        "SHAPE", "same-problem-other-method, same-method-other-problem or competitors, in place of both"
    ),
    "sentences": Command("0,2", "search with these sentences alone; show has their positions"),
    "year": Command("2015-2019", "only papers of these years; also 2015-, -2019, 2018, all"),
    "category": Command("NAME ...", "only papers of these categories, such as cs.CL, or cs; all: any"),
    "k": Command("N", "hits at a time"),
    "more": Command("", "the next hits"),
    "why": Command("N", "the sentences of the query and of hit N that are closest"),
    "show": Command(
        "[N|ID]", "the abstract of a hit or a paper with its facets; alone: what is searched with"
    ),
    "seed": Command("N ...", "search with these hits too"),
    "not": Command("N ...", "what is like these hits comes later"),
    "seen": Command("N ...", "leave these hits out from the next search on"),
    "seeds": Command("", "what is searched with at the moment"),
    "cite": Command("", "papers that it should cite"),
    "export": Command(
        "FORMAT FILE [N ...|seeds]",
        "write all hits shown, these, or the seeds, as bibtex, ris, csv, markdown or json",
    ),
    "rerank": Command("on|off", "whether hits are reranked, which can take seconds"),
    "reset": Command("", "begin anew"),
    "help": Command("[COMMAND]", "this list"),
    "quit": Command("", "end; so does Ctrl-D"),
}
