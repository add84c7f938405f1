"""``qbe serve``: a page to search with, and the same for programs over HTTP."""

import argparse
import contextlib
import logging
import os
import signal
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import qbe
from qbe.cli import common
from qbe.cli.common import refuse, searched
from qbe.cli.parser import parse
from qbe.errors import OutputError, check_count, check_package
from qbe.util.files import lock
from qbe.util.work import available_threads, thread_count

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from qbe.serve.guard import ServeSettings


def main(arguments: list[str]) -> None:
    run(parse("serve", arguments, searched))


def run(options: argparse.Namespace, open_index: "Callable[..., qbe.Index] | None" = None) -> None:
    """Serve as the options say; ``open_index`` may open the index elsewhere than in this process."""
    together = "expected --pairs to grade together with a folder for --labels, found one of them"
    refuse(bool(options.pairs) != bool(options.labels), together)
    check_count("workers", options.workers)
    on_cluster = open_index is not None
    refuse(on_cluster and options.workers > 1, "a cluster searches with one of --workers; use --replicas")
    for package in ("starlette", "prometheus_client", "uvicorn"):
        check_package(package)

    from qbe.serve.app import address_of, listen, serve_with_workers, server_of
    from qbe.serve.guard import SHARED_METRICS

    _settings(options)  # before anything is opened
    if options.index is None:
        from qbe.cli.demo import open_demo_index

        with open_demo_index(common.note) as index:
            options.index = [str(index.folder)]
    with contextlib.ExitStack() as stack, contextlib.ExitStack() as opened:
        listening = stack.enter_context(listen(options.host, options.port))
        if options.labels and not stack.enter_context(lock(Path(options.labels, ".lock"))):
            told = "another server keeps grades there; choose another `labels`"
            raise OutputError(f"cannot write {options.labels}: {told}")
        app, index = _app(options, opened, open_index)
        address = address_of(listening)
        serving = f"serving {', '.join(options.index)} ({len(index):,} papers) at {address}"
        if options.open:
            page = f"{address.removesuffix('/')}{(options.root_path or '').rstrip('/')}/"
            threading.Thread(target=webbrowser.open, args=[page], daemon=True).start()
        if options.workers > 1:
            opened.close()  # what is wrong for all workers has been said once
            os.environ[SHARED_METRICS] = stack.enter_context(tempfile.TemporaryDirectory(prefix="qbe-"))
            print(f"{serving} with {options.workers} workers", flush=True)
            serve_with_workers(partial(worker_app, options), options.workers, listening)
            return
        print(serving, flush=True)
        # uvicorn ends in order at either signal, and passes it on then: for a server that is no failure.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            server_of(app).run(sockets=[listening])


def worker_app(options: argparse.Namespace) -> "ASGIApp":
    """The application of a worker, which is warm; what goes wrong ends all of them."""
    from uvicorn.config import STARTUP_FAILURE

    apps: list[ASGIApp] = []

    def open_app(_: list[str]) -> None:
        logging.getLogger("qbe").handlers = [common.log_handler("[%(process)d] %(message)s")]
        apps.append(_app(options, contextlib.ExitStack(), is_warm=True)[0])  # closed by the worker's end

    with contextlib.suppress(SystemExit):
        common.run("qbe serve", open_app, [])
    if not apps:
        sys.exit(STARTUP_FAILURE)
    return apps[0]


def _settings(options: argparse.Namespace) -> "tuple[ServeSettings, int]":
    from qbe.serve.guard import read_key, settings_for

    settings = settings_for(
        options.host,
        read_key(options.api_key_file) if options.api_key_file else None,
        tuple(options.allow_host or ()),
        tuple(options.allow_origin or ()),
        log_queries=options.log_queries,
        root_path=options.root_path or "",
    )
    if options.threads is None and options.workers > 1:
        return settings, max(1, available_threads() // options.workers)
    return settings, thread_count(options.threads)


def _app(
    options: argparse.Namespace,
    stack: contextlib.ExitStack,
    open_index: "Callable[..., qbe.Index] | None" = None,
    *,
    is_warm: bool = False,
) -> "tuple[ASGIApp, qbe.Index]":
    from qbe.feeds.watches import Watcher
    from qbe.label.grading import HandGrades
    from qbe.label.pairs import papers_of, read_pairs
    from qbe.serve.app import create_app
    from qbe.serve.service import SearchService

    settings, threads = _settings(options)
    logging.getLogger("qbe.serve").setLevel(logging.INFO)
    index = stack.enter_context((open_index or qbe.open_index)(options.index, threads=threads))
    service = stack.enter_context(SearchService(index, rerank=options.rerank))
    watcher = Watcher(options.watches, index) if options.watches else None
    hands = None
    if options.pairs:
        pairs = read_pairs(options.pairs)
        papers_of(index, pairs)  # all are there
        hands = HandGrades(pairs, Path(options.labels))
    if is_warm:
        service.warm()
    return create_app(service, settings, watcher, hands, is_warm=is_warm), index
