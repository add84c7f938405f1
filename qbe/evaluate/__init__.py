"""Evaluation: measures, the CSFCube protocol, significance, published rows, reports.

``evaluate``, ``csfcube_protocol`` and ``pool_protocol`` take judgements and a run, ``compare`` tests their
results against a baseline's, ``published_rows`` gives the literature's figures, ``build_report`` does all
from files. ``facing`` picks a run and its baseline out of a report, ``outcomes`` says what became of each
query, and ``write_plot`` draws it.
"""

from qbe.evaluate.evaluation import evaluate
from qbe.evaluate.folds import Folds, load_folds
from qbe.evaluate.measures import parse_measures
from qbe.evaluate.plot import write_plot
from qbe.evaluate.pools import POOL_PROTOCOLS, pool_protocol
from qbe.evaluate.protocol import csfcube_protocol
from qbe.evaluate.published import PublishedRow, published_rows
from qbe.evaluate.queries import Outcome, RunComparison, facing, outcomes
from qbe.evaluate.report import Report, build_report
from qbe.evaluate.results import Evaluation, ProtocolResult
from qbe.evaluate.significance import Comparison, compare, holm, randomization_test, t_test

__all__ = [
    "POOL_PROTOCOLS",
    "Comparison",
    "Evaluation",
    "Folds",
    "Outcome",
    "ProtocolResult",
    "PublishedRow",
    "Report",
    "RunComparison",
    "build_report",
    "compare",
    "csfcube_protocol",
    "evaluate",
    "facing",
    "holm",
    "load_folds",
    "outcomes",
    "parse_measures",
    "pool_protocol",
    "published_rows",
    "randomization_test",
    "t_test",
    "write_plot",
]
