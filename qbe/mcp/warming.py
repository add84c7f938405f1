"""Opening models in the background, so that a server answers at once and its first search is fast."""

from __future__ import annotations

import logging
import threading

from qbe.closing import Closing
from qbe.errors import QbeError
from qbe.service.service import SearchService

log = logging.getLogger("qbe.mcp")


class Warming(Closing):
    """Opens what searches need, in a thread; closing it waits for this."""

    def __init__(self, service: SearchService) -> None:
        self._service = service
        self._thread = threading.Thread(target=self._run, name="qbe-warming", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Wait until everything is open."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self._service.warm()
        except QbeError as error:  # a search will say so as well
            log.warning("not everything could be opened: %s", error)
