"""qbe: find papers like this one, for its problem, its method or its findings.

The public interface is ``qbe.__all__``; its names are loaded when first used, so that importing qbe costs
nothing.

>>> import qbe
>>> qbe.Facet.METHOD.value
'method'
"""

# ruff: noqa: I001 (sorted imports would have a line for each name that is exported by `as`)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from qbe.cite.recommender import CiteConfig as CiteConfig, CiteRequest as CiteRequest
    from qbe.cite.recommender import Recommender as Recommender
    from qbe.corpus.records import Reading as Reading
    from qbe.errors import CorpusError as CorpusError, FacetNotFoundError as FacetNotFoundError
    from qbe.errors import FileFormatError as FileFormatError, IndexFormatError as IndexFormatError
    from qbe.errors import ModelError as ModelError, PaperNotFoundError as PaperNotFoundError
    from qbe.errors import QbeError as QbeError, UsageError as UsageError
    from qbe.index.source import BuildSettings as BuildSettings
    from qbe.search.pipeline import Index as Index, Pipeline as Pipeline, build_index as build_index
    from qbe.search.pipeline import open_index as open_index

    open, build = open_index, build_index
    from qbe.search.pipeline import from_transformer as from_transformer
    from qbe.query import SHAPES as SHAPES, Aspect as Aspect, Query as Query, Topic as Topic
    from qbe.query import Variety as Variety
    from qbe.evaluate.run import Run as Run
    from qbe.search.filters import PaperFilter as PaperFilter
    from qbe.search.paper_file import paper_from_file as paper_from_file
    from qbe.search.queries import paper_from_question as paper_from_question
    from qbe.search.request import SearchRequest as SearchRequest
    from qbe.search.session import SearchSession as SearchSession
    from qbe.search.stages import BM25 as BM25, CrossEncoder as CrossEncoder, Dense as Dense, Fused as Fused
    from qbe.search.stages import Grades as Grades, LanguageModel as LanguageModel, Matching as Matching
    from qbe.search.stages import Projections as Projections, Stages as Stages
    from qbe.search.stages import default_stages as default_stages
    from qbe.corpus.records import paper_from_text as paper_from_text
    from qbe.runs import read_pools as read_pools, read_qrels as read_qrels, read_topics as read_topics
    from qbe.types import Facet as Facet, Hit as Hit, Match as Match, Paper as Paper, Sentence as Sentence

    __version__: str

_NAMES = {
    "qbe.cite.recommender": "CiteConfig CiteRequest Recommender",
    "qbe.corpus.records": "Reading paper_from_text",
    "qbe.errors": (
        "CorpusError FacetNotFoundError FileFormatError IndexFormatError ModelError PaperNotFoundError "
        "QbeError UsageError"
    ),
    "qbe.index.source": "BuildSettings",
    "qbe.query": "Aspect Query SHAPES Topic Variety",
    "qbe.evaluate.run": "Run",
    "qbe.search.filters": "PaperFilter",
    "qbe.search.pipeline": "Index Pipeline build_index from_transformer open_index",
    "qbe.search.session": "SearchSession",
    "qbe.search.paper_file": "paper_from_file",
    "qbe.search.queries": "paper_from_question",
    "qbe.search.request": "SearchRequest",
    "qbe.search.stages": (
        "BM25 CrossEncoder Dense Fused Grades LanguageModel Matching Projections Stages default_stages"
    ),
    "qbe.runs": "read_pools read_qrels read_topics",
    "qbe.types": "Facet Hit Match Paper Sentence",
}
"""The public names of each module."""

_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

_ALSO = {"open": "open_index", "build": "build_index"}
"""Short names, which ``from qbe import *`` leaves alone, as `open` is a function of Python."""

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("qbe")
    from importlib import import_module

    name = _ALSO.get(name, name)
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name.endswith("Error") and hasattr(errors := import_module("qbe.errors"), name):
        import warnings

        warnings.warn(f"qbe.{name} is now qbe.errors.{name}", DeprecationWarning, stacklevel=2)
        return getattr(errors, name)
    raise AttributeError(f"module 'qbe' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
