"""The options of ``qbe label``."""

from __future__ import annotations

import os

from qbe.cli import common as _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

PROGRAM = "qbe label"
OPTIONS = {"folder": "--index"}

EPILOG = """\
Candidates of 20 papers of an index, to be graded by hand (qbe serve --pairs):
  qbe label --index DIR --sample 20 --output pairs.tsv
The same, graded by a model of a server on this machine; repeated after an interrupt, it asks for the rest:
  qbe label --index DIR --sample 20 --output graded.tsv --endpoint http://127.0.0.1:8080/v1 --model NAME
"""


def parser() -> argparse.ArgumentParser:
    """The command's parser."""
    parser = _cli.parser(
        PROGRAM,
        "Make pairs of papers that are graded from 0 to 3 for background, method and result, by a language "
        "model behind an OpenAI-compatible endpoint; or compare two files of grades.",
    )
    parser.epilog = EPILOG
    parser.add_argument("--output", metavar="FILE", help="the pairs, tab-separated, with their grades")
    _pairs(parser)
    _model(parser)
    compared = parser.add_argument_group("agreement")
    compared.add_argument(
        "--agreement", nargs=2, metavar="FILE", help="print how far two files of graded pairs agree, and end"
    )
    compared.add_argument("--format", choices=("table", "json"), help="of the agreement (default: table)")
    return parser


def _pairs(parser: argparse.ArgumentParser) -> None:
    pairs = parser.add_argument_group("pairs")
    pairs.add_argument("--index", metavar="DIR", help="an index that holds the papers, built by qbe index")
    source = pairs.add_mutually_exclusive_group()
    source.add_argument(
        "--queries",
        metavar="FILE",
        help="ids of query papers, one a line; - is standard input (default: all of the index)",
    )
    source.add_argument(
        "--pairs",
        metavar="FILE",
        help="pairs to grade: tab-separated, with the columns query_id and paper_id",
    )
    pairs.add_argument("--sample", type=int, metavar="N", help="so many query papers, or pairs, at random")
    pairs.add_argument("--candidates", type=int, metavar="N", help="of each query paper (default: 16)")
    pairs.add_argument("--random-seed", type=int, metavar="N", help="of what is drawn (default: 0)")
    pairs.add_argument(
        "--merge",
        nargs="+",
        default=[],
        metavar="G:G",
        help="grades that count as other ones, as in 3:2; of --pairs without a model: of their own grades",
    )


def _model(parser: argparse.ArgumentParser) -> None:
    model = parser.add_argument_group("the model; without --model pairs are written without grades")
    model.add_argument("--model", metavar="NAME", help="its name at the endpoint")
    model.add_argument(
        "--endpoint",
        metavar="URL",
        help="such as http://127.0.0.1:8080/v1 (default: $QBE_LLM_ENDPOINT); its key is that of $QBE_LLM_KEY",
    )
    model.add_argument(
        "--guideline", metavar="FILE", help="what the model is told of facets and grades (default: qbe's own)"
    )
    model.add_argument(
        "--answers", metavar="FILE", help="where answers are kept (default: --output and .answers.sqlite)"
    )
    model.add_argument(
        "--budget-requests", type=int, metavar="N", help="requests at most, earlier ones included"
    )
    model.add_argument("--budget-tokens", type=int, metavar="N", help="tokens at most, earlier ones included")
    model.add_argument(
        "--price", metavar="IN:OUT", help="of a million tokens of requests and of answers, for the estimate"
    )
    model.add_argument("--dry-run", action="store_true", help="print what is left to ask, and ask nothing")
    model.add_argument(
        "--parallel",
        type=int,
        metavar="N",
        help="requests under way at a time (default: 4)",
    )
    model.add_argument(
        "--response-format",
        choices=("json_schema", "json_object", "none"),
        help="how the endpoint is asked for JSON (default: $QBE_LLM_RESPONSE_FORMAT, else json_schema)",
    )
    model.add_argument("--timeout", type=float, metavar="SECONDS", help="for an answer (default: 120)")


_BUDGET = ("budget_requests", "budget_tokens", "price")
_OF_A_MODEL = ("endpoint", "guideline", "answers", *_BUDGET, "parallel", "response_format", "timeout")
_DEFAULTS = {"random_seed": 0, "parallel": 4, "timeout": 120.0}


def check(options: argparse.Namespace) -> None:
    """Raise UsageError for options that do not go together; numbers that are not given get their defaults."""
    from qbe.errors import UsageError

    if options.agreement:
        given = ("output", "index", "queries", "pairs", "sample", "candidates", "random_seed", "model")
        flags = ["dry_run"] if options.dry_run else []
        _refuse(options, (*given, *_OF_A_MODEL, *flags), "has no effect with `agreement`; drop it")
        return
    _refuse(options, ("format",), "is that of an agreement; drop it")
    if not options.output:
        raise UsageError("expected an `output` for the pairs, or two files of `agreement`, found neither")
    if options.pairs and options.candidates is not None:
        raise UsageError("`candidates` are found for query papers; drop it, or give `queries`")
    if not options.model:
        _refuse(options, _OF_A_MODEL, "says something of a model; give `model`, or drop it")
        if options.dry_run:
            raise UsageError("`dry_run` estimates the requests to a model; give `model`, or drop it")
        if bool(options.pairs) != bool(options.merge):
            raise UsageError(
                "expected `model` for grades, or `pairs` with `merge` to merge theirs, or neither for "
                f"candidates alone, found {'pairs' if options.pairs else 'merge'} alone"
            )
        if options.merge:
            _refuse(options, ("index", "sample", "random_seed"), "has no effect on `merge`; drop it")
    if not options.index and (options.model or not options.pairs):
        raise UsageError("expected an `index` of the papers, found none; give one")
    if options.answers and os.path.realpath(options.answers) == os.path.realpath(options.output):
        raise UsageError(
            f"expected `answers` in another file than the `output`, found {options.answers} as both"
        )
    for name in ("budget_requests", "budget_tokens", "parallel"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UsageError(f"expected `{name}` of at least 1, found {value}")
    for name, value in _DEFAULTS.items():
        if getattr(options, name) is None:
            setattr(options, name, value)


def _refuse(options: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    from qbe.errors import UsageError

    for name in names:
        if getattr(options, name) is not None:
            raise UsageError(f"`{name}` {why}")


def prices_of(text: str | None) -> tuple[float, float] | None:
    """The prices that an option states; raises UsageError.

    >>> prices_of("0.15:0.6")
    (0.15, 0.6)
    """
    if text is None:
        return None
    from qbe.errors import UsageError

    try:
        prices = [float(part) for part in text.split(":")]
        if len(prices) == 2 and all(0 <= price < float("inf") for price in prices):
            return prices[0], prices[1]
    except ValueError:
        pass
    raise UsageError(f"expected a `price` as in 0.15:0.6, found {text!r}")
