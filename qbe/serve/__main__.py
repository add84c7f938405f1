"""``qbe serve``: a page to search with, and the same for programs over HTTP."""

from __future__ import annotations

from qbe import _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    import contextlib
    from collections.abc import Callable
    from typing import Any

    from qbe.index.index import Index
    from qbe.label.by_hand import HandGrades

PROGRAM = "qbe serve"
OPTIONS = {"folder": "--index", "port": "--port", "host": "--host", "key_file": "--api-key-file"}
HOST, PORT = "127.0.0.1", 8765

EPILOG = """\
The page is at the address that is printed; programs find a description of the interface under /openapi.json.
Changes of the index are noticed while it is served. Ctrl-C, or SIGTERM, ends it once requests under way are
answered. docs/serve.md says how to serve others than oneself.
"""


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = _cli.parser(
        PROGRAM, "Serve an index: a page to search with, and the same for programs over HTTP."
    )
    parser.epilog = EPILOG
    parser.add_argument("--index", metavar="DIR", required=True, help="the index to serve")
    parser.add_argument(
        "--host", default=HOST, help=f"address to listen at (default: {HOST}, this machine only)"
    )
    parser.add_argument(
        "--port", type=int, default=PORT, help=f"port to listen at, 0 for any free one (default: {PORT})"
    )
    parser.add_argument(
        "--api-key-file",
        metavar="FILE",
        help="a file with a key that requests must bring; needed to listen beyond this machine",
    )
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        nargs="+",
        default=[],
        help="names under which a server in front of this one is reached",
    )
    parser.add_argument(
        "--allow-origin",
        metavar="ORIGIN",
        nargs="+",
        default=[],
        help="origins of other pages, such as https://example.org, that may ask (default: none)",
    )
    parser.add_argument(
        "--root-path",
        metavar="PATH",
        default="",
        help="what a server in front of this one puts before all paths, such as /qbe",
    )
    parser.add_argument(
        "--log-queries", action="store_true", help="log what is searched for, pasted texts too"
    )
    parser.add_argument(
        "--watches",
        metavar="FILE",
        help="where searches are kept, of qbe watch: the page keeps some too, and shows what is new for them",
    )
    parser.add_argument(
        "--pairs",
        metavar="FILE",
        help="pairs to grade by hand on the page label.html: tab-separated, with query_id and paper_id",
    )
    parser.add_argument(
        "--labels", metavar="DIR", help="with --pairs: the folder for the grades, a file for each assessor"
    )
    _cli.add_rerank(parser)
    parser.add_argument("--threads", type=int, help="default: all processors this process may use")
    return parser


def main(arguments: list[str]) -> None:
    """Parse the options, open the index, and answer requests until told to end."""
    run(parser().parse_args(arguments))


def run(
    options: argparse.Namespace,
    open_index: Callable[..., Index] | None = None,
    open_reranker: Callable[..., Any] | None = None,
) -> None:
    """Serve as the options say; ``open_index`` and ``open_reranker`` open an index and cross-encoders that
    are elsewhere (by default those of this machine).
    """
    import contextlib
    import logging
    import signal

    from qbe.errors import UsageError, check_package

    if bool(options.pairs) != bool(options.labels):
        raise UsageError("expected `pairs` to grade together with a folder for `labels`, found one of them")

    for package in ("fastapi", "prometheus_client", "uvicorn"):
        check_package(package)

    from qbe.network.guard import read_key
    from qbe.network.server import address_of, listen, server_of
    from qbe.serve.guard import settings_for

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

    from qbe.index.index import Index
    from qbe.serve.app import create_app
    from qbe.service.service import SearchService, stages_of
    from qbe.watch.watcher import Watcher

    logging.getLogger("qbe.serve").setLevel(logging.INFO)
    listening = listen(options.host, options.port)
    with (
        listening,
        (open_index or Index)(options.index, threads=threads) as index,
        SearchService(index, stages_of(index, options.rerank), open_reranker=open_reranker) as service,
        contextlib.ExitStack() as stack,
    ):
        watcher = Watcher(options.watches, index) if options.watches else None

        def started() -> None:
            print(f"serving {options.index} ({len(index):,} papers) at {address_of(listening)}", flush=True)

        hands = _hands(options, index, stack) if options.pairs else None
        # uvicorn ends in order at either signal, and passes it on then: for a server that is no failure.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            server_of(create_app(service, settings, watcher, hands), started).run(sockets=[listening])


def _hands(options: argparse.Namespace, index: Index, stack: contextlib.ExitStack) -> HandGrades:
    """What keeps grades by hand; no other server keeps some in the same folder until the stack is closed."""
    from pathlib import Path

    from qbe.errors import OutputError
    from qbe.files import lock
    from qbe.label.by_hand import HandGrades
    from qbe.label.candidates import papers_of
    from qbe.label.pairs import read_pairs

    pairs, folder = read_pairs(options.pairs), Path(options.labels)
    papers_of(index, pairs)  # all are there
    if not stack.enter_context(lock(folder / ".lock")):
        raise OutputError(
            f"cannot write {folder}: another server keeps grades there; choose another `labels`"
        )
    return HandGrades(pairs, folder)


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
