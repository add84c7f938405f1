"""``qbe serve``: a page to search with, and the same for programs over HTTP."""

from __future__ import annotations

from qbe.cli import common
from qbe.cli.common import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    import contextlib
    import socket
    from collections.abc import Callable
    from typing import Any

    from starlette.types import ASGIApp

    from qbe.index.index import Index
    from qbe.label.by_hand import HandGrades
    from qbe.serve.guard import ServeSettings

PROGRAM = "qbe serve"
EPILOG = """\
The page is at the address that is printed; programs find a description of the interface under /openapi.json.
Changes of the index are noticed while it is served. Ctrl-C, or SIGTERM, ends it once requests under way are
answered. docs/serve.md says how to serve others than oneself, and what workers share.
"""


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        PROGRAM, "Serve an index: a page to search with, and the same for programs over HTTP.", EPILOG
    )
    parser.options({"--index DIR...": "the index to serve, or several as one"}, required=True)
    options = {
        "--host HOST (127.0.0.1)": "address to listen at (default: 127.0.0.1, this machine only)",
        "--port N (8765)": "port to listen at, 0 for any free one",
        "--api-key-file FILE": "a file with a key that requests must bring; needed to listen beyond this "
        "machine",
        "--allow-host NAME...": "names under which a server in front of this one is reached",
        "--allow-origin ORIGIN...": "origins of other pages, such as https://example.org, that may ask "
        "(default: none)",
        "--root-path PATH": "what a server in front of this one puts before all paths, such as /qbe",
        "--log-queries": "log what is searched for, pasted texts too",
        "--watches FILE": "where searches are kept, of qbe watch: the page keeps some too, and shows what is "
        "new for them",
        "--pairs FILE": "pairs to grade by hand on the page label.html: tab-separated, with query_id and "
        "paper_id",
        "--labels DIR": "with --pairs: the folder for the grades, a file for each assessor",
        **common.RERANK,
        "--workers N (1)": "processes that answer requests; SIGHUP replaces them without a gap",
        "--threads N": "of each worker (default: all processors, divided among the workers)",
    }
    parser.options(options)
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
    import signal

    from qbe.errors import UsageError, check_package

    if bool(options.pairs) != bool(options.labels):
        raise UsageError("expected `pairs` to grade together with a folder for `labels`, found one of them")
    if options.workers < 1:
        raise UsageError(f"expected `workers` of at least 1, found {options.workers}")
    if open_index is not None and options.workers > 1:
        raise UsageError("expected one of `workers` where a cluster searches, found more; use `replicas`")

    for package in ("fastapi", "prometheus_client", "uvicorn"):
        check_package(package)

    from qbe.serve.workers import address_of, listen, server_of

    settings, threads = _settings(options), _threads(options)  # before anything is opened

    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(listen(options.host, options.port))
        if options.labels:
            _lock_grades(options.labels, stack)
        if options.workers > 1:
            _serve_with_workers(options, listening, stack)
            return
        app, index = _app(options, settings, threads, stack, open_index, open_reranker)

        print(
            f"serving {', '.join(options.index)} ({len(index):,} papers) at {address_of(listening)}",
            flush=True,
        )
        # uvicorn ends in order at either signal, and passes it on then: for a server that is no failure.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            server_of(app).run(sockets=[listening])


def _serve_with_workers(
    options: argparse.Namespace, listening: socket.socket, stack: contextlib.ExitStack
) -> None:
    import os
    import tempfile
    from functools import partial

    from qbe.cli import serve as command  # by the name under which workers import it
    from qbe.serve.guard import SHARED_METRICS
    from qbe.serve.workers import address_of, serve_with_workers

    os.environ[SHARED_METRICS] = stack.enter_context(tempfile.TemporaryDirectory(prefix="qbe-"))

    def started() -> None:
        address = address_of(listening)
        print(f"serving {', '.join(options.index)} at {address} with {options.workers} workers", flush=True)

    serve_with_workers(partial(command.worker_app, options), options.workers, listening, started)


def worker_app(options: argparse.Namespace) -> ASGIApp:
    """The application of a worker, which is warm; what goes wrong ends the process as it ends the command."""
    import contextlib
    import logging
    import signal

    opened: list[ASGIApp] = []

    def open_app(_: list[str]) -> None:
        parser()  # errors name its options
        logging.getLogger("qbe").handlers = [common.log_handler("[%(process)d] %(message)s")]
        # The worker's end releases what is open.
        stack = contextlib.ExitStack()
        opened.append(_app(options, _settings(options), _threads(options), stack, is_warm=True)[0])

    # Until requests are answered nothing has to be finished.
    signals = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.signal(each, signal.SIG_DFL) for each in signals]
    try:
        common.run(PROGRAM, open_app, [])
    except SystemExit as end:
        if end.code:
            raise
    for each, handler in zip(signals, handlers, strict=True):
        signal.signal(each, handler)
    return opened[0]


def _app(
    options: argparse.Namespace,
    settings: ServeSettings,
    threads: int,
    stack: contextlib.ExitStack,
    open_index: Callable[..., Index] | None = None,
    open_reranker: Callable[..., Any] | None = None,
    *,
    is_warm: bool = False,
) -> tuple[ASGIApp, Index]:
    """The application over an index, and the index; the stack closes both."""
    import logging

    from qbe.feeds.reports import Watcher
    from qbe.index import several
    from qbe.serve.app import create_app
    from qbe.serve.service import SearchService, stages_of

    logging.getLogger("qbe.serve").setLevel(logging.INFO)
    index = stack.enter_context((open_index or several.open_index)(options.index, threads=threads))
    stages = stages_of(index, options.rerank)
    service = stack.enter_context(SearchService(index, stages, open_reranker=open_reranker))
    watcher = Watcher(options.watches, index) if options.watches else None
    hands = _hands(options, index) if options.pairs else None
    if is_warm:
        service.warm()
    return create_app(service, settings, watcher, hands, is_warm=is_warm), index


def _settings(options: argparse.Namespace) -> ServeSettings:
    from qbe.serve.guard import read_key, settings_for

    return settings_for(
        options.host,
        read_key(options.api_key_file) if options.api_key_file else None,
        tuple(options.allow_host or ()),
        tuple(options.allow_origin or ()),
        log_queries=options.log_queries,
        root_path=options.root_path or "",
    )


def _threads(options: argparse.Namespace) -> int:
    """Threads of this process, which is one of the workers."""
    if options.threads is None and options.workers > 1:
        from qbe.util.work import available_threads

        return max(1, available_threads() // int(options.workers))
    return common.threads(options.threads)


def _lock_grades(folder: str, stack: contextlib.ExitStack) -> None:
    """Have no other server keep grades in a folder until the stack is closed."""
    from pathlib import Path

    from qbe.errors import OutputError
    from qbe.util.files import lock

    if not stack.enter_context(lock(Path(folder, ".lock"))):
        raise OutputError(
            f"cannot write {folder}: another server keeps grades there; choose another `labels`"
        )


def _hands(options: argparse.Namespace, index: Index) -> HandGrades:
    """What keeps grades by hand."""
    from pathlib import Path

    from qbe.label.by_hand import HandGrades
    from qbe.label.candidates import papers_of
    from qbe.label.pairs import read_pairs

    pairs = read_pairs(options.pairs)
    papers_of(index, pairs)  # all are there
    return HandGrades(pairs, Path(options.labels))
