"""qbe: find papers like this one, for its problem, its method or its findings.

The public interface is ``qbe.__all__``; its names are loaded when first used, so that importing qbe costs
nothing.

>>> import qbe
>>> qbe.Facet.METHOD.value
'method'
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from qbe.cite.config import CiteConfig
    from qbe.cite.recommender import CiteRequest, Recommender
    from qbe.corpus.reading import Reading
    from qbe.errors import (
        CorpusError,
        DatasetError,
        EncoderMismatchError,
        FacetNotFoundError,
        FileFormatError,
        IndexBuildError,
        IndexFormatError,
        JavaError,
        MissingDependencyError,
        ModelError,
        OutputError,
        PaperNotFoundError,
        QbeError,
        RecordError,
        RunError,
        UsageError,
    )
    from qbe.index.building.settings import BuildSettings
    from qbe.index.index import Index
    from qbe.index.opening import build_index, open_index
    from qbe.query import Aspect, Query, Topic
    from qbe.run import Run
    from qbe.search.config import SearchConfig
    from qbe.search.filters import PaperFilter
    from qbe.search.pipeline import Pipeline
    from qbe.shapes import SHAPES
    from qbe.text.papers import paper_from_text
    from qbe.topics import read_topics
    from qbe.trec import read_qrels
    from qbe.types import Facet, Hit, Match, Paper, Sentence

    __version__: str

_HOMES = {
    "Aspect": "qbe.query",
    "BuildSettings": "qbe.index.building.settings",
    "CiteConfig": "qbe.cite.config",
    "CiteRequest": "qbe.cite.recommender",
    "CorpusError": "qbe.errors",
    "DatasetError": "qbe.errors",
    "EncoderMismatchError": "qbe.errors",
    "Facet": "qbe.types",
    "FacetNotFoundError": "qbe.errors",
    "FileFormatError": "qbe.errors",
    "Hit": "qbe.types",
    "Index": "qbe.index.index",
    "IndexBuildError": "qbe.errors",
    "IndexFormatError": "qbe.errors",
    "JavaError": "qbe.errors",
    "Match": "qbe.types",
    "MissingDependencyError": "qbe.errors",
    "ModelError": "qbe.errors",
    "OutputError": "qbe.errors",
    "Paper": "qbe.types",
    "PaperFilter": "qbe.search.filters",
    "PaperNotFoundError": "qbe.errors",
    "Pipeline": "qbe.search.pipeline",
    "QbeError": "qbe.errors",
    "Query": "qbe.query",
    "Reading": "qbe.corpus.reading",
    "Recommender": "qbe.cite.recommender",
    "RecordError": "qbe.errors",
    "Run": "qbe.run",
    "RunError": "qbe.errors",
    "SHAPES": "qbe.shapes",
    "SearchConfig": "qbe.search.config",
    "Sentence": "qbe.types",
    "Topic": "qbe.query",
    "UsageError": "qbe.errors",
    "build_index": "qbe.index.opening",
    "open_index": "qbe.index.opening",
    "paper_from_text": "qbe.text.papers",
    "read_qrels": "qbe.trec",
    "read_topics": "qbe.topics",
}
"""The module of each public name."""

__all__ = [
    "SHAPES",
    "Aspect",
    "BuildSettings",
    "CiteConfig",
    "CiteRequest",
    "CorpusError",
    "DatasetError",
    "EncoderMismatchError",
    "Facet",
    "FacetNotFoundError",
    "FileFormatError",
    "Hit",
    "Index",
    "IndexBuildError",
    "IndexFormatError",
    "JavaError",
    "Match",
    "MissingDependencyError",
    "ModelError",
    "OutputError",
    "Paper",
    "PaperFilter",
    "PaperNotFoundError",
    "Pipeline",
    "QbeError",
    "Query",
    "Reading",
    "Recommender",
    "RecordError",
    "Run",
    "RunError",
    "SearchConfig",
    "Sentence",
    "Topic",
    "UsageError",
    "__version__",
    "build_index",
    "open_index",
    "paper_from_text",
    "read_qrels",
    "read_topics",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("qbe")
    if name not in _HOMES:
        raise AttributeError(f"module 'qbe' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
