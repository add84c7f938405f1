"""qbe: find papers like this one, for its problem, its method or its findings.

The public interface is ``qbe.__all__``; its names are loaded when first used, so that importing qbe costs
nothing.

>>> import qbe
>>> qbe.Facet.METHOD.value
'method'
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from qbe.adapters.pyterrier import from_transformer
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
    from qbe.index.opening import Index, build_index, open_index
    from qbe.query import Aspect, Query, Topic
    from qbe.run import Run
    from qbe.search.filters import PaperFilter
    from qbe.search.pipeline import Pipeline
    from qbe.search.request import SearchRequest
    from qbe.search.session import SearchSession
    from qbe.search.stages import (
        BM25,
        CrossEncoder,
        Dense,
        Fused,
        Grades,
        Matching,
        Projections,
        Stages,
        default_stages,
    )
    from qbe.shapes import SHAPES
    from qbe.text.papers import paper_from_text
    from qbe.topics import read_topics
    from qbe.trec import read_qrels
    from qbe.types import Facet, Hit, Match, Paper, Sentence

    __version__: str

_HOMES = {
    "Aspect": "qbe.query",
    "BM25": "qbe.search.stages",
    "BuildSettings": "qbe.index.building.settings",
    "CiteConfig": "qbe.cite.config",
    "CiteRequest": "qbe.cite.recommender",
    "CorpusError": "qbe.errors",
    "CrossEncoder": "qbe.search.stages",
    "DatasetError": "qbe.errors",
    "Dense": "qbe.search.stages",
    "EncoderMismatchError": "qbe.errors",
    "Facet": "qbe.types",
    "FacetNotFoundError": "qbe.errors",
    "FileFormatError": "qbe.errors",
    "Fused": "qbe.search.stages",
    "Grades": "qbe.search.stages",
    "Hit": "qbe.types",
    "Index": "qbe.index.opening",
    "IndexBuildError": "qbe.errors",
    "IndexFormatError": "qbe.errors",
    "JavaError": "qbe.errors",
    "Match": "qbe.types",
    "Matching": "qbe.search.stages",
    "MissingDependencyError": "qbe.errors",
    "ModelError": "qbe.errors",
    "OutputError": "qbe.errors",
    "Paper": "qbe.types",
    "PaperFilter": "qbe.search.filters",
    "PaperNotFoundError": "qbe.errors",
    "Pipeline": "qbe.search.pipeline",
    "Projections": "qbe.search.stages",
    "QbeError": "qbe.errors",
    "Query": "qbe.query",
    "Reading": "qbe.corpus.reading",
    "Recommender": "qbe.cite.recommender",
    "RecordError": "qbe.errors",
    "Run": "qbe.run",
    "RunError": "qbe.errors",
    "SHAPES": "qbe.shapes",
    "SearchRequest": "qbe.search.request",
    "SearchSession": "qbe.search.session",
    "Sentence": "qbe.types",
    "Stages": "qbe.search.stages",
    "Topic": "qbe.query",
    "UsageError": "qbe.errors",
    "build_index": "qbe.index.opening",
    "default_stages": "qbe.search.stages",
    "from_transformer": "qbe.adapters.pyterrier",
    "open_index": "qbe.index.opening",
    "paper_from_text": "qbe.text.papers",
    "read_qrels": "qbe.trec",
    "read_topics": "qbe.topics",
}
"""The module of each public name."""

__all__ = [
    "BM25",
    "SHAPES",
    "Aspect",
    "BuildSettings",
    "CiteConfig",
    "CiteRequest",
    "CorpusError",
    "CrossEncoder",
    "DatasetError",
    "Dense",
    "EncoderMismatchError",
    "Facet",
    "FacetNotFoundError",
    "FileFormatError",
    "Fused",
    "Grades",
    "Hit",
    "Index",
    "IndexBuildError",
    "IndexFormatError",
    "JavaError",
    "Match",
    "Matching",
    "MissingDependencyError",
    "ModelError",
    "OutputError",
    "Paper",
    "PaperFilter",
    "PaperNotFoundError",
    "Pipeline",
    "Projections",
    "QbeError",
    "Query",
    "Reading",
    "Recommender",
    "RecordError",
    "Run",
    "RunError",
    "SearchRequest",
    "SearchSession",
    "Sentence",
    "Stages",
    "Topic",
    "UsageError",
    "__version__",
    "build_index",
    "default_stages",
    "from_transformer",
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
