"""``qbe cluster``: index, search or serve on a Ray cluster."""

from __future__ import annotations

from qbe import _cli
from qbe.cluster.options import OPTIONS, PROGRAM, command_parser, outer_parser, parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from qbe.cluster.index import ClusterIndex
    from qbe.index.__main__ import Built
    from qbe.index.building.settings import Execution
    from qbe.rerank.reranker import Reranker

__all__ = ["OPTIONS", "PROGRAM", "main", "parser"]


def main(arguments: list[str]) -> None:
    """Carry out one of COMMANDS: it has the options of qbe's command of this name, and those of a cluster."""
    name = arguments[0] if arguments else ""
    if name == "index":
        from qbe.index.__main__ import OPTIONS as OF_COMMAND
    elif name == "search":
        from qbe.search.options import OPTIONS as OF_COMMAND
    elif name == "serve":
        from qbe.serve.__main__ import OPTIONS as OF_COMMAND
    else:
        outer_parser().parse_args(arguments)
        return
    command = {"index": _index, "search": _search, "serve": _serve}[name]
    _cli.run(f"{PROGRAM} {name}", command, {**OF_COMMAND, **OPTIONS}, arguments[1:])


def _index(arguments: list[str]) -> None:
    """Build an index."""
    options = command_parser("index").parse_args(arguments)

    def build(output: Path, execution: Execution) -> Built:
        from qbe.cluster.build import ClusterBuild, build_on_cluster
        from qbe.cluster.ray_runtime import connected
        from qbe.index import options as index_options

        settings, reading = index_options.build_settings(options), index_options.reading(options)
        with connected(options.address, execution.threads) as ray:
            manifest = build_on_cluster(
                ray,
                output,
                options.corpus,
                settings,
                ClusterBuild(options.parts, options.shards, storage=options.storage),
                reading=reading,
                overwrite=options.overwrite,
                resume=options.resume,
                execution=execution,
            )
        return manifest.corpus, manifest

    from qbe.index.__main__ import run

    run(options, build)


def _search(arguments: list[str]) -> None:
    """Search an index."""
    from qbe.search.__main__ import run

    options = command_parser("search").parse_args(arguments)
    run(options, *_openers(options))


def _serve(arguments: list[str]) -> None:
    """Serve an index."""
    from qbe.serve.__main__ import run

    options = command_parser("serve").parse_args(arguments)
    run(options, *_openers(options))


def _openers(options: argparse.Namespace) -> tuple[Callable[..., ClusterIndex], Callable[..., Reranker]]:
    """What opens an index on the cluster, and then rerankers there."""
    from qbe.cluster.ray_runtime import require_ray

    require_ray()
    opened: list[ClusterIndex] = []

    def open_index(folder: str | Path, *, threads: int | None = None, **models: Any) -> ClusterIndex:
        from qbe.cluster.calls import Patience
        from qbe.cluster.index import Fleet, open_index

        fleet = Fleet(options.replicas, threads or 1)
        patience = Patience(options.deadline, options.hedge, options.partial)
        index = open_index(folder, options.address, fleet=fleet, patience=patience, threads=threads, **models)
        opened.append(index)
        return index

    def open_reranker(**parameters: Any) -> Reranker:
        return opened[-1].open_reranker(**parameters)

    return open_index, open_reranker


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
