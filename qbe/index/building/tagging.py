"""The tagger of a build: opened once, and only where papers need it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from qbe.encode.encoder import Encoder
from qbe.errors import IndexBuildError, UsageError
from qbe.index.building.settings import BuildSettings
from qbe.index.labels import without_labels
from qbe.tag.tagger import Tagger
from qbe.tag.tagging import FACETS, TaggingEncoder
from qbe.types import Paper

Identity = dict[str, str]


class BuildTagger:
    """Decides which papers of a corpus are tagged, and by what."""

    def __init__(self, settings: BuildSettings, wanted: Identity | None = None) -> None:
        """``wanted`` is the identity that the tagger must have, once one is needed. Raises UsageError for
        unknown ``facets``.
        """
        if settings.facets not in FACETS:
            raise UsageError(f"expected facets {' or '.join(FACETS)}, found {settings.facets!r}")
        self._settings, self._wanted = settings, wanted
        self._drops = settings.dense and settings.facets == "predicted"

    @cached_property
    def _tagger(self) -> Tagger:
        tagger = Tagger.open(self._settings.tagger)
        if self._wanted is not None and self._wanted != tagger.identity:
            raise IndexBuildError(
                f"expected the tagger {self._wanted['name']} ({self._wanted['sha256'][:12]}) that labelled "
                f"the index's papers, found {tagger.metadata.name} ({tagger.identity['sha256'][:12]}); give "
                "that one as --tagger, or build the index again"
            )
        return tagger

    def papers(self, papers: Iterable[Paper]) -> Iterator[Paper]:
        """Papers as the index is to store them: without given labels where all are predicted.

        Raises ModelError at the first paper to be tagged when the tagger cannot be had, IndexBuildError when
        it is not the one wanted: before long work.
        """
        for paper in papers:
            kept = without_labels(paper) if self._drops else paper
            if self._settings.dense and not kept.labelled:
                self._tagger  # noqa: B018  (opened)
            yield kept

    def identity(self, predicted: int) -> Identity | None:
        """What tells the tagger from another; None where no papers are predicted."""
        return self._tagger.identity if predicted else None

    def encoder(self, encoder: Encoder, identity: Identity | None) -> TaggingEncoder:
        """The encoder of the build, with the tagger of that identity, or with none.

        Raises IndexBuildError where the tagger was exchanged since an unfinished build began.
        """
        if identity is None:
            return TaggingEncoder(encoder, None)
        found = self._tagger.identity
        if found != identity:
            raise IndexBuildError(
                f"expected the tagger {identity['name']} ({identity['sha256'][:12]}) as when the build "
                f"began, found {found['name']} ({found['sha256'][:12]}); put that one back, or discard the "
                "build with --overwrite alone"
            )
        return TaggingEncoder(encoder, self._tagger)
