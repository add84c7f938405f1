"""``qbe cluster``: index, search or serve on a Ray cluster."""

from __future__ import annotations

from qbe.cli import common
from qbe.cli.common import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from qbe.cluster.index import ClusterIndex
    from qbe.index.source import Execution
    from qbe.index.store import Manifest
    from qbe.search.rank import Reranker

PROGRAM = "qbe cluster"
COMMANDS = {
    "index": "build an index on a cluster",
    "search": "search an index that a cluster holds",
    "serve": "serve an index that a cluster holds",
}


def parser(only_help: bool = False) -> Parser:
    """The command's options, with ``only_help`` no more than the names of its commands."""
    about = "Index, search or serve on a Ray cluster."
    return common.commands_parser(PROGRAM, about, COMMANDS, None if only_help else command_parser)


def command_parser(name: str) -> Parser:
    """The parser of one of COMMANDS: that of qbe's command of this name, with the options of a cluster."""
    module = __import__(f"qbe.cli.{name}", fromlist=("parser",))
    parser: Parser = module.parser()
    parser.prog = f"{PROGRAM} {name}"
    group = "of the cluster (needs qbe[cluster])"
    address = {
        "--address ADDRESS": "local (one of this machine's processors), auto, or HOST:PORT of a Ray cluster, "
        "whose nodes see the files under the same paths"
    }
    parser.options(address, group, required=True)
    if name == "index":
        parser.options(
            {
                "--parts N": "parts that are encoded apart (default: two for each processor of the cluster); "
                "with --shards a multiple of them",
                "--shards N": "segments of like size, which several machines can hold",
            },
            group,
        )
        return parser
    parser.options(
        {
            "--replicas N (1)": "processes that hold each shard",
            "--deadline SECONDS (60)": "wait at most so long for shards",
        },
        group,
    )
    return parser


def main(arguments: list[str]) -> None:
    """Carry out one of COMMANDS."""
    name = arguments[0] if arguments else ""
    if name not in COMMANDS:
        parser(only_help=True).parse_args(arguments)
        return
    module = __import__(f"qbe.cli.{name}", fromlist=("run",))

    def command(given: list[str]) -> None:
        options = command_parser(name).parse_args(given)
        module.run(options, *([_builder(options)] if name == "index" else _openers(options)))

    common.run(f"{PROGRAM} {name}", command, arguments[1:])


def _builder(options: argparse.Namespace) -> Callable[[Path, Execution], Manifest]:
    def build(output: Path, execution: Execution) -> Manifest:
        from qbe.cli.index import build_settings, reading
        from qbe.cluster.build import ClusterBuild, build_on_cluster
        from qbe.cluster.ray_runtime import connected

        with connected(options.address, execution.threads) as ray:
            return build_on_cluster(
                ray,
                output,
                options.corpus,
                build_settings(options),
                ClusterBuild(options.parts, options.shards),
                reading=reading(options),
                overwrite=options.overwrite,
                resume=options.resume,
                execution=execution,
            )

    return build


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
