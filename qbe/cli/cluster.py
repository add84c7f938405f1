"""``qbe cluster``: index, search or serve on a Ray cluster."""

from __future__ import annotations

import argparse

from qbe.cli import common, index, search, serve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from qbe.cluster.index import ClusterIndex
    from qbe.index.source import Execution
    from qbe.index.store import Manifest

PROGRAM = "qbe cluster"
ADDRESS = """\
# of the cluster (needs qbe[cluster])
--address ADDRESS!  local (one of this machine's processors), auto, or HOST:PORT of a Ray cluster, whose nodes
  see the files under the same paths
"""
SHARDS = """\
--shards N  ordinary indexes, OUTPUT/1, OUTPUT/2, ..., that are searched as one (default: one for each
  processor of the cluster)
"""
HOLDERS = """\
--replicas N (1)  processes that hold each index
--deadline SECONDS (60)  wait at most so long for indexes
"""
PARSER = common.commands_parser(
    PROGRAM,
    "Index, search or serve on a Ray cluster.",
    {
        "index": ("build an index on a cluster", "", index.OPTIONS + ADDRESS + SHARDS),
        "search": ("search an index that a cluster holds", "", search.OPTIONS + ADDRESS + HOLDERS),
        "serve": ("serve an index that a cluster holds", "", serve.OPTIONS + ADDRESS + HOLDERS),
    },
)


def main(arguments: list[str]) -> None:
    options = PARSER.parse_args(arguments)

    def command(_: list[str]) -> None:
        if options.command == "index":
            _index(options)
            return
        from functools import partial

        from qbe.cluster.ray_runtime import require_ray

        require_ray()
        module = search if options.command == "search" else serve
        module.run(options, partial(_open, options))

    common.run(f"{PROGRAM} {options.command}", command, [])


def _index(options: argparse.Namespace) -> None:
    def build(output: Any, corpus: Any, settings: Any, *, execution: Execution, **named: Any) -> Manifest:
        from qbe.cluster.build import build_on_cluster
        from qbe.cluster.ray_runtime import connected

        with connected(options.address, execution.threads) as ray:
            return build_on_cluster(
                ray, output, corpus, settings, options.shards, execution=execution, **named
            )

    index.run(options, build)


def _open(options: argparse.Namespace, folders: list[str], **named: Any) -> ClusterIndex:
    """Open indexes on the cluster."""
    from qbe.cluster.index import indexes_in, open_index

    inside = [each for folder in folders for each in indexes_in(folder)]
    return open_index(inside, options.address, replicas=options.replicas, deadline=options.deadline, **named)
