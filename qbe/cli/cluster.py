"""``qbe cluster``: index, search or serve on a Ray cluster."""

from __future__ import annotations

from qbe.cli import common as _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from qbe.cluster.index import ClusterIndex
    from qbe.index.source import Execution
    from qbe.index.store import Manifest

PROGRAM = "qbe cluster"
OPTIONS = {"cluster": "--address"}

COMMANDS = {
    "index": "build an index on a cluster",
    "search": "search an index that a cluster holds",
    "serve": "serve an index that a cluster holds",
}


def parser(only_help: bool = False) -> argparse.ArgumentParser:
    """The command's options, with ``only_help`` no more than the names of its commands."""
    about = "Index, search or serve on a Ray cluster."
    return _cli.commands_parser(PROGRAM, about, COMMANDS, None if only_help else command_parser)


def command_parser(name: str) -> argparse.ArgumentParser:
    """The parser of one of COMMANDS."""
    if name == "index":
        from qbe.cli.index_options import parser as parser_of_command
    elif name == "search":
        from qbe.cli.search_options import parser as parser_of_command
    else:
        from qbe.cli.serve import parser as parser_of_command
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
        group.add_argument(
            "--shards",
            type=int,
            metavar="N",
            help="ordinary indexes, OUTPUT/1, OUTPUT/2, ..., that are searched as one (default: one for each "
            "processor of the cluster)",
        )
        return parser
    group.add_argument(
        "--replicas", type=int, default=1, metavar="N", help="processes that hold each index (default: 1)"
    )
    group.add_argument(
        "--deadline",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="wait at most so long for indexes (default: 60)",
    )
    return parser


def main(arguments: list[str]) -> None:
    """Carry out one of COMMANDS: it has the options of qbe's command of this name, and those of a cluster."""
    name = arguments[0] if arguments else ""
    if name == "index":
        from qbe.cli.index import OPTIONS as OF_COMMAND
    elif name == "search":
        from qbe.cli.search_options import OPTIONS as OF_COMMAND
    elif name == "serve":
        from qbe.cli.serve import OPTIONS as OF_COMMAND
    else:
        parser(only_help=True).parse_args(arguments)
        return
    command = {"index": _index, "search": _search, "serve": _serve}[name]
    _cli.run(f"{PROGRAM} {name}", command, {**OF_COMMAND, **OPTIONS}, arguments[1:])


def _index(arguments: list[str]) -> None:
    """Build an index."""
    options = command_parser("index").parse_args(arguments)

    def build(output: Path, execution: Execution) -> Manifest:
        from qbe.cli import index_options
        from qbe.cluster.build import build_on_cluster
        from qbe.cluster.ray_runtime import connected

        settings, reading = index_options.build_settings(options), index_options.reading(options)
        with connected(options.address, execution.threads) as ray:
            return build_on_cluster(
                ray,
                output,
                options.corpus,
                settings,
                options.shards,
                reading=reading,
                overwrite=options.overwrite,
                resume=options.resume,
                execution=execution,
            )

    from qbe.cli.index import run

    run(options, build)


def _search(arguments: list[str]) -> None:
    """Search an index."""
    from qbe.cli.search import run

    options = command_parser("search").parse_args(arguments)
    run(options, _opener(options))


def _serve(arguments: list[str]) -> None:
    """Serve an index."""
    from qbe.cli.serve import run

    options = command_parser("serve").parse_args(arguments)
    run(options, _opener(options))


def _opener(options: argparse.Namespace) -> Callable[..., ClusterIndex]:
    """Return what opens indexes on the cluster."""
    from qbe.cluster.index import indexes_in, open_index
    from qbe.cluster.ray_runtime import require_ray

    require_ray()

    def opened(folders: list[str], **named: Any) -> ClusterIndex:
        inside = [each for folder in folders for each in indexes_in(folder)]
        return open_index(
            inside, options.address, replicas=options.replicas, deadline=options.deadline, **named
        )

    return opened


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
