"""Observers of a build's progress."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from qbe.types import Paper

ShareRead = Callable[[], float | None]
"""Gives the share of a corpus that has been read; None where it is not known."""


class Progress(Protocol):
    """An observer of a build's progress; the command line shows bars, a library stays silent."""

    def papers(self, papers: Iterable[Paper], share_read: ShareRead) -> Iterator[Paper]:
        """Pass the corpus through while it is read; ``share_read`` says how much of it has been."""

    def steps(
        self, name: str, unit: str, total: int
    ) -> contextlib.AbstractContextManager[Callable[[int], Any]]:
        """A context, for a stage of ``total`` items, that gives a function to call with the number of items
        just finished.
        """

    def stage(self, name: str) -> None:
        """A stage without steps begins."""


class Silent:
    """A `Progress` that shows nothing.

    >>> with Silent().steps("encoding", "papers", total=2) as advance:
    ...     advance(1)
    >>> list(Silent().papers(["a paper"], lambda: None))
    ['a paper']
    """

    def papers(self, papers: Iterable[Paper], share_read: ShareRead) -> Iterator[Paper]:  # noqa: ARG002
        """Pass the corpus through."""
        return iter(papers)

    def steps(
        self,
        name: str,  # noqa: ARG002
        unit: str,  # noqa: ARG002
        total: int,  # noqa: ARG002
    ) -> contextlib.AbstractContextManager[Callable[[int], Any]]:
        """A function that does nothing."""
        return contextlib.nullcontext(lambda _: None)

    def stage(self, name: str) -> None:
        """Nothing is shown."""
