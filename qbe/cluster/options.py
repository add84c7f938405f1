"""Options of ``qbe cluster``: those of a command of qbe, and those of a cluster."""

from __future__ import annotations

from qbe import _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    CommandParser = Callable[[str], argparse.ArgumentParser]

PROGRAM = "qbe cluster"
OPTIONS = {"cluster": "--address"}

COMMANDS = {
    "index": "build an index on a cluster",
    "search": "search an index that a cluster holds",
    "serve": "serve an index that a cluster holds",
}


def parser() -> argparse.ArgumentParser:
    """The command's options.

    >>> parser().parse_args(["search", "--index=x", "--paper=p1", "--address=local"]).address
    'local'
    """
    return outer_parser(command_parser)


def outer_parser(command_parser: CommandParser | None = None) -> argparse.ArgumentParser:
    """The parser with the names of COMMANDS alone, or with their parsers by name."""
    whole = _cli.parser(PROGRAM, "Index, search or serve on a Ray cluster.")
    whole.epilog = f"{PROGRAM} COMMAND --help shows the options of a command."
    _cli.add_commands(whole, COMMANDS, command_parser)
    return whole


def command_parser(name: str) -> argparse.ArgumentParser:
    """The parser of one of COMMANDS."""
    if name == "index":
        from qbe.index.options import parser as parser_of_command
    elif name == "search":
        from qbe.search.options import parser as parser_of_command
    else:
        from qbe.serve.__main__ import parser as parser_of_command
    parser = parser_of_command()
    parser.prog = f"{PROGRAM} {name}"
    group = parser.add_argument_group("of the cluster (needs qbe[cluster])")
    group.add_argument(
        "--address",
        required=True,
        help="local (one of this machine's processors), auto, or HOST:PORT of a Ray cluster, whose nodes see "
        "the files under the same paths",
    )
    if name == "index":
        _add_building(group)
    else:
        _add_searching(group)
    return parser


def _add_building(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--parts",
        type=int,
        metavar="P",
        help="parts that are encoded apart (default: two for each processor of the cluster); with --shards a "
        "multiple of them",
    )
    group.add_argument(
        "--storage",
        metavar="ADDRESS",
        help="keep finished parts at an address such as s3://bucket/parts (default: beside --output, which "
        "all nodes must see)",
    )


def _add_searching(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--replicas", type=int, default=1, metavar="N", help="processes that hold each shard (default: 1)"
    )
    group.add_argument(
        "--partial",
        action="store_true",
        help="answer without shards that no process holds at the moment, and say which (default: wait)",
    )
    group.add_argument(
        "--deadline",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="wait at most so long for shards (default: 60)",
    )
    group.add_argument(
        "--hedge",
        type=float,
        metavar="SECONDS",
        help="ask another replica where one has not answered for so long (default: never)",
    )
