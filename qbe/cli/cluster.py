"""``qbe cluster``: index, search or serve on a Ray cluster."""

from functools import partial
from typing import Any

from qbe.cli.parser import parse
from qbe.errors import check_package


def main(arguments: list[str]) -> None:
    options = parse("cluster", arguments)

    from qbe.cli import index, search, serve

    def build(output: Any, corpus: Any, settings: Any, *, execution: Any, **named: Any) -> Any:
        from qbe.cluster import build_on_cluster, connected

        with connected(options.address, execution.threads) as ray:
            named |= {"shards": options.shards, "execution": execution}
            return build_on_cluster(ray, output, corpus, settings, **named)

    if options.command == "index":
        index.run(options, build)
        return
    check_package("ray")

    from qbe.cluster import open_index

    asked = {"cluster": options.address, "replicas": options.replicas, "deadline": options.deadline}
    opened: Any = partial(open_index, **asked)
    (search.run if options.command == "search" else serve.run)(options, opened)
