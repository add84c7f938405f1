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
                "--shards N": "ordinary indexes, OUTPUT/1, OUTPUT/2, ..., that are searched as one "
                "(default: one "
                "for each processor of the cluster)",
            },
            group,
        )
        return parser
    parser.options(
        {
            "--replicas N (1)": "processes that hold each index",
            "--deadline SECONDS (60)": "wait at most so long for indexes",
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
        module.run(options, _builder(options) if name == "index" else _opener(options))

    common.run(f"{PROGRAM} {name}", command, arguments[1:])


def _builder(options: argparse.Namespace) -> Callable[[Path, Execution], Manifest]:
    def build(output: Path, execution: Execution) -> Manifest:
        from qbe.cli.index import build_settings, reading
        from qbe.cluster.build import build_on_cluster
        from qbe.cluster.ray_runtime import connected

        with connected(options.address, execution.threads) as ray:
            return build_on_cluster(
                ray,
                output,
                options.corpus,
                build_settings(options),
                options.shards,
                reading=reading(options),
                overwrite=options.overwrite,
                resume=options.resume,
                execution=execution,
            )

    return build


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
