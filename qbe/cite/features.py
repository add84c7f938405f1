"""What a candidate is judged by: features of a query and its candidates, each a column of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.search.fusion import z_normalize

Doubles = NDArray[np.float64]

SCORES = ("bm25", "sentences", "whole", "citation")
"""Scores of the first stage, z-normalized over the candidates."""

TEXT = (*SCORES, "age", "recency", "new")
"""Features that need nothing but the papers."""

LINKS = ("citations", "neighbours", "cited_neighbours")
"""Features that need the citations among papers of the index."""

SEEDS = ("seed_mean", "seed_best", "seed_sentences_mean", "seed_sentences_best", "seed_sentences_two")
"""Features that need papers which the query is known to cite."""

SEED_LINKS = (
    *("cocitations", "cocitation_cosines", "cited_by_seeds", "citing_seeds"),
    *("seed_walks", "rare_seed_walks"),
)
"""Features that need both."""

NEW_YEARS = 1
LONGEST_AGE = 20


class Known(NamedTuple):
    """What is known beside the papers' texts: citations in the index, and papers that the query cites.

    >>> Known(links=True, seeds=False).names[-3:], Known(links=True, seeds=False).key
    (('citations', 'neighbours', 'cited_neighbours'), 'links')
    """

    links: bool
    seeds: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The features that there are."""
        both = SEED_LINKS if self.links and self.seeds else ()
        return (*TEXT, *(LINKS if self.links else ()), *(SEEDS if self.seeds else ()), *both)

    @property
    def key(self) -> str:
        """A name: ``text``, ``links``, ``seeds`` or ``links+seeds``."""
        return "+".join(name for name in self._fields if getattr(self, name)) or "text"


EVERY_KNOWN = tuple(Known(links, seeds) for seeds in (False, True) for links in (False, True))


def text_features(scores: Mapping[str, Doubles], ages: Doubles) -> dict[str, Doubles]:
    """The features of TEXT, each (candidates,).

    ``scores`` has those of SCORES; ``ages`` (candidates,) are the years from a candidate to the query, NaN
    where either year is not known.

    >>> scores = dict.fromkeys(SCORES, np.array([1.0, 3.0]))
    >>> features = text_features(scores, np.array([0.0, 40.0]))
    >>> features["bm25"].tolist(), features["age"].tolist(), features["new"].tolist()
    ([-1.0, 1.0], [0.0, 2.0], [1.0, 0.0])
    """
    years = np.clip(ages, 0, LONGEST_AGE)
    new = np.where(np.isnan(years), np.nan, years <= NEW_YEARS)
    normalized = {name: z_normalize(scores[name]) for name in SCORES}
    return {**normalized, "age": years / 10, "recency": -np.log1p(years), "new": new}


def columns(features: Mapping[str, Doubles], names: Sequence[str]) -> Doubles:
    """Features as a matrix (candidates, names).

    >>> columns({"age": np.array([0.5]), "new": np.array([0.0])}, ["new", "age"]).tolist()
    [[0.0, 0.5]]
    """
    return np.stack([features[name] for name in names], axis=1)
