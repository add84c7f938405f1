"""``qbe cluster``: index, search or serve on a Ray cluster."""

from __future__ import annotations

from qbe.cli import common as _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from qbe.cli.index import Built
    from qbe.cluster.index import ClusterIndex
    from qbe.index.building.settings import Execution
    from qbe.search.rank import Reranker

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
            "--parts",
            type=int,
            metavar="P",
            help="parts that are encoded apart (default: two for each processor of the cluster); with "
            "--shards a multiple of them",
        )
        return parser
    group.add_argument(
        "--replicas", type=int, default=1, metavar="N", help="processes that hold each shard (default: 1)"
    )
    group.add_argument(
        "--deadline",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="wait at most so long for shards (default: 60)",
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

    def build(output: Path, execution: Execution) -> Built:
        from qbe.cli import index_options
        from qbe.cluster.build import ClusterBuild, build_on_cluster
        from qbe.cluster.ray_runtime import connected

        settings, reading = index_options.build_settings(options), index_options.reading(options)
        with connected(options.address, execution.threads) as ray:
            manifest = build_on_cluster(
                ray,
                output,
                options.corpus,
                settings,
                ClusterBuild(options.parts, options.shards),
                reading=reading,
                overwrite=options.overwrite,
                resume=options.resume,
                execution=execution,
            )
        return manifest.corpus, manifest

    from qbe.cli.index import run

    run(options, build)


def _search(arguments: list[str]) -> None:
    """Search an index."""
    from qbe.cli.search import run

    options = command_parser("search").parse_args(arguments)
    run(options, *_openers(options))


def _serve(arguments: list[str]) -> None:
    """Serve an index."""
    from qbe.cli.serve import run

    options = command_parser("serve").parse_args(arguments)
    run(options, *_openers(options))


def _openers(options: argparse.Namespace) -> tuple[Callable[..., ClusterIndex], Callable[..., Reranker]]:
    """What opens an index on the cluster, and then rerankers there."""
    from qbe.cluster.ray_runtime import require_ray

    require_ray()
    opened: list[ClusterIndex] = []

    def open_index(folder: str | Path, *, threads: int | None = None, **models: Any) -> ClusterIndex:
        from qbe.cluster.index import Fleet, open_index

        fleet = Fleet(options.replicas, threads or 1)
        opened.append(
            open_index(
                folder, options.address, fleet=fleet, deadline=options.deadline, threads=threads, **models
            )
        )
        return opened[-1]

    def open_reranker(**parameters: Any) -> Reranker:
        return opened[-1].open_reranker(**parameters)

    return open_index, open_reranker


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
