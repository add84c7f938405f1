"""``qbe serve``: a page to search with, and the same for programs over HTTP."""

from __future__ import annotations

from qbe import _cli
from qbe.serve.options import OPTIONS, PROGRAM, parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from qbe.index.index import Index

__all__ = ["OPTIONS", "PROGRAM", "main", "parser"]


def main(arguments: list[str]) -> None:
    """Parse the options, open the index, and answer requests until told to end."""
    run(parser().parse_args(arguments))


def run(options: argparse.Namespace, open_index: Callable[..., Index] | None = None) -> None:
    """Serve as the options say; ``open_index`` opens the index in another place than this process."""
    import contextlib
    import logging
    import signal

    from qbe.errors import check_package

    for package in ("fastapi", "prometheus_client", "uvicorn"):
        check_package(package)

    from qbe.network.access import read_key
    from qbe.network.listening import address_of, listen
    from qbe.serve.settings import settings_for

    key = read_key(options.api_key_file) if options.api_key_file else None
    settings = settings_for(
        options.host,
        key,
        tuple(options.allow_host),
        tuple(options.allow_origin),
        log_queries=options.log_queries,
        root_path=options.root_path,
    )
    threads = _cli.threads(options.threads)

    from qbe.index.opening import open_index as open_here
    from qbe.network.server import server_of
    from qbe.serve.app import create_app
    from qbe.service.service import SearchService

    logging.getLogger("qbe.serve").setLevel(logging.INFO)
    listening = listen(options.host, options.port)
    with (
        listening,
        (open_index or open_here)(options.index, threads=threads) as index,
        SearchService(index, rerank=options.rerank) as service,
    ):

        def started() -> None:
            print(f"serving {options.index} ({len(index):,} papers) at {address_of(listening)}", flush=True)

        # uvicorn ends in order at either signal, and passes it on then: for a server that is no failure.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            server_of(create_app(service, settings), started).run(sockets=[listening])


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
