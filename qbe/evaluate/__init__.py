"""Evaluation: measures, the protocols of test collections, significance, published figures, reports.

- `evaluate`, `csfcube_protocol`, `pool_protocol` and `citations_protocol` score a run against qrels;
  `crossed_protocol` and `exploration_protocol` against grades by facet, which `read_facet_grades` reads.
- `compare` tests systems against baselines; `randomization_test`, `t_test` and `holm` are its parts.
- `published_rows` gives figures of the literature.
- `build_report` does all of this from files. `compare_runs` picks a run and its baseline out of a report,
  `outcomes` lists the result of each query, `write_plot` draws the differences.

The names are loaded when they are first used, so that ``qbe evaluate --help`` is fast.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from qbe.evaluate.citations import citations_protocol
    from qbe.evaluate.crossed import crossed_protocol, read_facet_grades
    from qbe.evaluate.evaluation import evaluate
    from qbe.evaluate.exploration import exploration_protocol
    from qbe.evaluate.folds import Folds, load_folds
    from qbe.evaluate.measures import parse_measures
    from qbe.evaluate.plot import write_plot
    from qbe.evaluate.pools import POOL_PROTOCOLS, pool_protocol
    from qbe.evaluate.protocol import csfcube_protocol
    from qbe.evaluate.published import PublishedRow, published_rows
    from qbe.evaluate.queries import Outcome, RunComparison, compare_runs, outcomes
    from qbe.evaluate.report import Report, Scoring, build_report
    from qbe.evaluate.results import CitationResult, Evaluation, ExplorationResult, ProtocolResult
    from qbe.evaluate.significance import Comparison, compare, holm, randomization_test, t_test

_MODULES = {
    "POOL_PROTOCOLS": "pools",
    "CitationResult": "results",
    "Comparison": "significance",
    "Evaluation": "results",
    "ExplorationResult": "results",
    "Folds": "folds",
    "Outcome": "queries",
    "ProtocolResult": "results",
    "PublishedRow": "published",
    "Report": "report",
    "RunComparison": "queries",
    "Scoring": "report",
    "build_report": "report",
    "citations_protocol": "citations",
    "compare": "significance",
    "compare_runs": "queries",
    "crossed_protocol": "crossed",
    "csfcube_protocol": "protocol",
    "evaluate": "evaluation",
    "exploration_protocol": "exploration",
    "holm": "significance",
    "load_folds": "folds",
    "outcomes": "queries",
    "parse_measures": "measures",
    "pool_protocol": "pools",
    "published_rows": "published",
    "randomization_test": "significance",
    "read_facet_grades": "crossed",
    "t_test": "significance",
    "write_plot": "plot",
}

__all__ = [
    "POOL_PROTOCOLS",
    "CitationResult",
    "Comparison",
    "Evaluation",
    "ExplorationResult",
    "Folds",
    "Outcome",
    "ProtocolResult",
    "PublishedRow",
    "Report",
    "RunComparison",
    "Scoring",
    "build_report",
    "citations_protocol",
    "compare",
    "compare_runs",
    "crossed_protocol",
    "csfcube_protocol",
    "evaluate",
    "exploration_protocol",
    "holm",
    "load_folds",
    "outcomes",
    "parse_measures",
    "pool_protocol",
    "published_rows",
    "randomization_test",
    "read_facet_grades",
    "t_test",
    "write_plot",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
