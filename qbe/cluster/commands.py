"""The commands of qbe with ``--cluster``: the same commands, over an index that a cluster holds."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from qbe.index.__main__ import Built
    from qbe.index.building.settings import Execution
    from qbe.index.index import Index


SEARCHING = ("qbe search", "qbe serve")
"""Commands that open an index, and can open it on a cluster."""


def on_cluster(program: str, main: Callable[[list[str]], None]) -> Callable[[list[str]], None]:
    """The ``main`` of a command, carried out on the cluster that its options name, if it has them."""
    from importlib import import_module

    if program in SEARCHING:
        return searching(import_module(f"qbe.{program.split()[-1]}.__main__"))
    if program == "qbe index":
        return building(import_module("qbe.index.__main__"))
    return main


def searching(command: Any) -> Callable[[list[str]], None]:
    """The ``main`` of a command that opens an index, which then opens it on a cluster."""

    def main(arguments: list[str]) -> None:
        options = command.parser().parse_args(arguments)
        from qbe.cluster.ray_runtime import require_ray

        require_ray()
        from qbe.index.opening import opened_by

        with opened_by(_opener(options)):
            if command.PROGRAM == "qbe search":
                command.main(arguments, open_session=_session)
            else:
                command.main(arguments)

    return main


def _opener(options: argparse.Namespace) -> Callable[..., Index]:
    from qbe.cluster.actors import Fleet
    from qbe.cluster.calls import Patience
    from qbe.cluster.index import open_index

    deadline = {} if options.deadline is None else {"deadline": options.deadline}
    patience = Patience(hedge=options.hedge, partial=options.partial, **deadline)

    def opener(folder: str | Path, *, threads: int | None = None, **parameters: Any) -> Index:
        fleet = Fleet(replicas=1 if options.replicas is None else options.replicas, threads=threads or 1)
        return open_index(
            folder, options.cluster, fleet=fleet, patience=patience, threads=threads, **parameters
        )

    return opener


def _session(index: Any, stages: Any) -> Any:
    """A session whose cross-encoders run in the processes of the cluster."""
    from qbe.search.session import SearchSession

    return SearchSession(index, stages, open_reranker=index.open_reranker)


def building(command: Any) -> Callable[[list[str]], None]:
    """The ``main`` of ``qbe index``, which then builds on a cluster."""

    def build(output: Path, options: argparse.Namespace, execution: Execution) -> Built:
        from qbe.cluster.build import ClusterBuild, build_on_cluster
        from qbe.cluster.ray_runtime import connected, require_ray
        from qbe.index import options as index_options

        require_ray()
        spread = ClusterBuild(options.parts, options.shards, storage=options.storage)
        settings = index_options.build_settings(options)
        reading = index_options.reading(options)
        with connected(options.cluster, execution.threads) as ray:
            manifest = build_on_cluster(
                ray,
                output,
                options.corpus,
                settings,
                spread,
                reading=reading,
                overwrite=options.overwrite,
                resume=options.resume,
                execution=execution,
            )
        return manifest.corpus, manifest

    return lambda arguments: command.main(arguments, build)
