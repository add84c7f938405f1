"""``qbe mcp``: tools for agents over an index."""

import contextlib
import logging
import os
import signal
import sys
import threading

import qbe
from qbe.cli import common
from qbe.cli.parser import parse
from qbe.errors import check_package


def main(arguments: list[str]) -> None:
    options = parse("mcp", arguments)

    http = options.transport == "http"
    os.environ["FASTMCP_ENV_FILE"] = os.devnull  # it would read .env of the working directory
    check_package("fastmcp")

    from qbe.serve.guard import check_access, read_key

    key = read_key(options.api_key_file) if options.api_key_file else None
    check_access(options.host, key)

    from qbe.serve.app import address_of, listen, server_of
    from qbe.serve.mcp import PATH, create_server, http_app
    from qbe.serve.service import SearchService

    for name in ("fastmcp", "mcp", "uvicorn"):  # plain warnings: a server's output may be the protocol
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [common.log_handler()], False
        logger.setLevel(logging.WARNING)
    # To end at once is no failure, and nothing could be left half written. A KeyboardInterrupt would not do:
    # a thread that waits for standard input cannot be told to end. Over HTTP uvicorn takes both signals,
    # answers what is under way, and passes them on.
    ending = (signal.SIGINT, signal.SIGTERM)
    for number in ending:
        signal.signal(number, lambda *_: os._exit(0))
    if not http:
        # Python would see a signal that comes just before it waits for a message with that message alone.
        received, sent = os.pipe()
        os.set_blocking(sent, False)
        signal.set_wakeup_fd(sent)

        def end_at_signal() -> None:
            while os.read(received, 1)[0] not in ending:
                pass
            os._exit(0)

        threading.Thread(target=end_at_signal, name="qbe-signals", daemon=True).start()
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(listen(options.host, options.port)) if http else None
        index = stack.enter_context(qbe.open_index(options.index, threads=options.threads))
        service = stack.enter_context(SearchService(index, rerank=options.rerank))
        server = create_server(service)
        warming = threading.Thread(target=service.warm, name="qbe-warming", daemon=True)
        stack.callback(warming.join)
        warming.start()  # a server answers at once, and its first search is fast
        if listening is None:
            server.run("stdio", show_banner=False)
        else:
            print(f"{len(index):,} papers for agents at {address_of(listening, PATH)}", file=sys.stderr)
            server_of(http_app(server, listening.getsockname()[0], key)).run(sockets=[listening])
