"""The models of a build: its encoder, and its tagger, which is opened only where papers need it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from qbe.encode.encoder import Encoder
from qbe.errors import IndexBuildError, UsageError
from qbe.index.building.settings import BuildSettings
from qbe.index.labels import without_labels
from qbe.models.encoder_files import resolve_encoder
from qbe.tag.tagger import Tagger
from qbe.tag.tagging import LABEL_SOURCES, TaggingEncoder
from qbe.types import Paper

Identity = dict[str, str]


class BuildModels:
    """The encoder of a build, None without vectors, and which of its papers are tagged, by which tagger."""

    def __init__(
        self, settings: BuildSettings, threads: int, expected_tagger: Identity | None = None
    ) -> None:
        """Load the encoder. ``expected_tagger`` is the identity that the tagger must have, if one is needed.

        Raises UsageError for unknown ``facets``, and what `qbe.encode.encoder.Encoder` does.
        """
        if settings.facets not in LABEL_SOURCES:
            raise UsageError(f"expected `facets` {' or '.join(LABEL_SOURCES)}, found {settings.facets!r}")
        self._settings, self._expected_tagger = settings, expected_tagger
        self.encoder: Encoder | None = None
        if settings.dense:
            files = resolve_encoder(settings.encoder, settings.precision)
            self.encoder = Encoder(files, threads, settings.device)

    @property
    def encoder_identity(self) -> dict[str, Any] | None:
        """What tells the encoder from another; None without vectors."""
        return None if self.encoder is None else self.encoder.files.identity

    @cached_property
    def _tagger(self) -> Tagger:
        tagger = Tagger.open(self._settings.tagger)
        expected = self._expected_tagger
        if expected is not None and expected != tagger.identity:
            raise IndexBuildError(
                f"expected the tagger {expected['name']} ({expected['sha256'][:12]}) that labelled "
                f"the index's papers, found {tagger.metadata.name} ({tagger.identity['sha256'][:12]}); give "
                "that one as `tagger`, or build the index again"
            )
        return tagger

    def prepare(self, papers: Iterable[Paper]) -> Iterator[Paper]:
        """Papers as the index is to store them: without given labels where all are predicted.

        At the first paper to be tagged the tagger is opened: raises ModelError when there is none,
        IndexBuildError when it is not the expected one, before the long work begins.
        """
        drops_labels = self._settings.dense and self._settings.facets == "predicted"
        for paper in papers:
            kept = without_labels(paper) if drops_labels else paper
            if self._settings.dense and not kept.labelled:
                _ = self._tagger  # opened once
            yield kept

    def tagger_identity(self, predicted: int) -> Identity | None:
        """What tells the tagger from another; None where no papers are predicted."""
        return self._tagger.identity if predicted else None

    def tagging_encoder(self, tagger: Identity | None) -> TaggingEncoder:
        """The encoder, with the tagger of that identity, or with none.

        Raises IndexBuildError where the tagger was exchanged since an unfinished build began.
        """
        assert self.encoder is not None
        if tagger is None:
            return TaggingEncoder(self.encoder, None)
        current = self._tagger.identity
        if current != tagger:
            raise IndexBuildError(
                f"expected the tagger {tagger['name']} ({tagger['sha256'][:12]}) as when the build "
                f"began, found {current['name']} ({current['sha256'][:12]}); put that one back, or "
                "discard the build with `overwrite` alone"
            )
        return TaggingEncoder(self.encoder, self._tagger)
