"""``qbe cluster``: index, search or serve on a Ray cluster."""

from typing import TYPE_CHECKING, Any

from qbe.cli import index, search, serve
from qbe.cli.parser import parse
from qbe.errors import check_package

if TYPE_CHECKING:
    from qbe.cluster.index import ClusterIndex
    from qbe.index.source import Execution
    from qbe.index.store import Manifest


def main(arguments: list[str]) -> None:
    options = parse("cluster", arguments)
    if options.command == "index":

        def build(output: Any, corpus: Any, settings: Any, *, execution: Execution, **named: Any) -> Manifest:
            from qbe.cluster.index import build_on_cluster, connected

            with connected(options.address, execution.threads) as ray:
                named |= {"shards": options.shards, "execution": execution}
                return build_on_cluster(ray, output, corpus, settings, **named)

        index.run(options, build)
        return

    check_package("ray")

    def open_index(folders: list[str], **named: Any) -> ClusterIndex:
        from qbe.cluster.index import open_index

        asked = {"replicas": options.replicas, "deadline": options.deadline}
        return open_index(folders, options.address, **asked, **named)

    module = search if options.command == "search" else serve
    module.run(options, open_index)
