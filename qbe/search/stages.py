"""The stages of a search as dataclasses, whose fields make checks, JSON and the command line's grammar."""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

from qbe.errors import UsageError, did_you_mean
from qbe.models.session import DEVICES
from qbe.query import MAX_WEIGHT

if TYPE_CHECKING:
    from qbe.index.index import Index

TITLE_FACET, FACET, TITLE, TITLE_ABSTRACT = "title+facet", "facet", "title", "abstract"
KEY_TERMS, TELLING_WORDS = "keyterms", "words"
BM25_QUERIES = (TITLE_FACET, FACET, TITLE, TITLE_ABSTRACT, KEY_TERMS, TELLING_WORDS)
SIMILARITIES = ("bm25", "tfidf")
COMPONENTS = ("bm25", "sentences", "facet", "whole")  # scores that the fused first stage weighs

# Those of ASPIRE (Mysore et al., 2022), and the mean of best matches.
MATCHINGS = ("transport", "attention", "single-match", "mean-max")

# Chosen on graded pairs: papers that BM25 and vectors each bring to the fusion, papers that are reranked, and
# the best of these, which a cross-encoder reads; the share of the reranker, or of grades, in the score; how
# much similarity to the query's background lowers scores by method and result.
FUSED_DEPTH, RERANK_DEPTH, JOINT_DEPTH = 300, 100, 20
RERANK_WEIGHT, GRADES_WEIGHT, BACKGROUND_PENALTY = 0.5, 0.75, 0.35


def _parameter(default: Any, kind: str, text: str, choices: tuple[str, ...] = ()) -> Any:
    """Make a field of a stage; ``kind`` is one of KINDS, which says how values are checked."""
    return field(default=default, metadata={"kind": kind, "help": text, "choices": choices})


def _weights(text: str) -> dict[str, float]:
    pairs = [part.split(":") for part in text.split("+")]
    weights = {name: float(weight) for name, weight in pairs}
    if len(weights) < len(pairs):
        raise ValueError("a component is there twice")
    return weights


def _is_right(kind: str, value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "count":
            return type(value) is int and value >= 1
        case "share":
            return is_number and 0 <= value <= 1
        case "positive":
            return is_number and 0 < value <= 1e300
        case "weights":
            if not isinstance(value, Mapping) or set(value) - set(COMPONENTS) or not any(value.values()):
                return False
            return all(isinstance(each, int | float) and 0 <= each <= MAX_WEIGHT for each in value.values())
        case "text":
            return isinstance(value, str | os.PathLike)
    if callable(getattr(value, "transform", None)) and not hasattr(value, "batch_search"):
        return False  # a transformer of PyTerrier, which is callable, too
    return isinstance(value, str | os.PathLike) or callable(value) or hasattr(value, "batch_score")


# Kinds of parameters: what errors call their values, and what reads one from text.
KINDS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "count": ("a whole number of at least 1", int),
    "share": ("a number from 0 to 1", float),
    "positive": ("a number above 0", float),
    "weights": (f"numbers to {MAX_WEIGHT:g}, not all 0, of {', '.join(COMPONENTS)}", _weights),
    "choice": ("one of these", str),
    "text": ("a text or a folder", str),
    "model": (
        "a name, a folder, an object with batch_score, or a function of an aspect and papers, such as "
        "qbe.from_transformer makes",
        str,
    ),
}

_DEPTH = (RERANK_DEPTH, "count", "papers of the first stage to rerank")
_WEIGHT = (RERANK_WEIGHT, "share", "the reranker's share of the score, 0 to 1")
_LOWERS = "by method or result: lowers papers on the query's own problem, 0 to 1"
_PENALTY = (BACKGROUND_PENALTY, "share", _LOWERS)


@dataclass(frozen=True, slots=True)
class _Stage:
    name: ClassVar[str]

    def __new__(cls, *_: Any, **named: Any) -> Self:
        known = [each.name for each in dataclasses.fields(cls)]
        if wrong := [name for name in named if name not in known]:
            raise TypeError(f"expected parameters of {cls.__name__} of {', '.join(known)}, found {wrong[0]}")
        return object.__new__(cls)

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            value, choices = getattr(self, each.name), each.metadata["choices"]
            kind, needed = each.metadata["kind"], value is not None or each.default is not None
            wanted = f"one of {', '.join(choices)}" if choices else KINDS[kind][0]
            if needed and not (value in choices if choices else _is_right(kind, value)):
                raise UsageError(f"expected `{each.name}` as {wanted}, found {value!r:.60}")

    def to_json(self) -> dict[str, Any]:
        """Return name and parameters as JSON; raises TypeError for a model that is an object."""
        parameters = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        record: dict[str, Any] = json.loads(json.dumps({"stage": self.name, **parameters}, default=os.fspath))
        return record

    def __rshift__(self, reranker: Any) -> "Stages":
        return Stages(self, reranker)


@dataclass(frozen=True, slots=True)
class BM25(_Stage):
    """Ranks by BM25 over title and abstract, exactly as Pyserini does.

    ``query``: ``title+facet`` (title and the aspect's sentences), ``facet`` (these alone), ``title``,
    ``abstract`` (title and all of it), ``keyterms`` (the five most telling words of the title, and of the
    abstract) or ``words`` (typical of the facet). ``similarity`` tfidf is Lucene's over the same postings.
    """

    name: ClassVar[str] = "bm25"
    query: str = _parameter(TITLE_FACET, "choice", "words of the query", BM25_QUERIES)
    similarity: str = _parameter(SIMILARITIES[0], "choice", "how words are weighed", SIMILARITIES)


@dataclass(frozen=True, slots=True)
class Dense(_Stage):
    """Ranks by sentence vectors: the mean over the query's sentences of each one's best match in a paper.

    With the ``match`` ``single`` it is the best match of any, as in TSASPIRE (Mysore et al., 2022).
    """

    name: ClassVar[str] = "dense"
    nprobe: int | None = _parameter(None, "count", "lists of an approximate index that are read")
    match: str = _parameter(
        "mean-max", "choice", "what counts: all best matches, or one", ("mean-max", "single")
    )


@dataclass(frozen=True, slots=True)
class Fused(_Stage):
    """Ranks by the weighted mean of the z-normalized scores of BM25 and vectors, over what either proposes.

    Each component is a score by name; ``weights`` None weighs them equally.
    """

    name: ClassVar[str] = "fused"
    bm25_query: str = _parameter(TITLE_FACET, "choice", "words of the BM25 query", BM25_QUERIES)
    nprobe: int | None = _parameter(None, "count", "lists of an approximate index that are read")
    weights: Mapping[str, float] | None = _parameter(
        None, "weights", "of bm25, sentences, facet, whole, as in bm25:1+whole:0.5; those left out get 0"
    )
    depth: int = _parameter(FUSED_DEPTH, "count", "papers that BM25 and vectors each bring")
    background_penalty: float = _parameter(*_PENALTY)


@dataclass(frozen=True, slots=True)
class Grades(_Stage):
    """Reranks by learned grades from 0 to 3, out of stored vectors and words: tens of milliseconds a query.

    Takes queries by facet. The ``joint`` best are graded again by a cross-encoder: seconds a query.
    """

    name: ClassVar[str] = "grades"
    depth: int = _parameter(*_DEPTH)
    weight: float = _parameter(GRADES_WEIGHT, "share", "the grades' share of the score, 0 to 1")
    diversity: float = _parameter(
        0.0, "share", "how much papers are put lower that resemble those above them, 0 to 1"
    )
    joint: int | None = _parameter(
        None, "count", "papers with the best grades that a cross-encoder grades again, such as 50"
    )


@dataclass(frozen=True, slots=True)
class Projections(_Stage):
    """Reranks by stored sentence vectors, projected for the facet: milliseconds a query; facets only.

    ``model`` None is what ships for the index's encoder.
    """

    name: ClassVar[str] = "projections"
    model: str | None = _parameter(None, "text", "folder written by qbe train facet-projections")
    depth: int = _parameter(*_DEPTH)
    weight: float = _parameter(*_WEIGHT)
    background_penalty: float = _parameter(*_PENALTY)


@dataclass(frozen=True, slots=True)
class CrossEncoder(_Stage):
    """Reranks by a model that reads query and candidate together: seconds a query.

    ``background``, ``method`` and ``result`` are models of queries by these facets, ``model`` is of all
    others: a name, a folder or hub name (None: joint grades, by facet only), an object with
    ``batch_score`` (`qbe.search.rank.Reranker`), or a function ``(aspect, papers) -> scores``.
    """

    name: ClassVar[str] = "cross-encoder"
    model: Any = _parameter(None, "model", "name, folder, or hub name of a pair model; None: joint grades")  # noqa: RUF009
    depth: int = _parameter(*_DEPTH)
    weight: float = _parameter(*_WEIGHT)
    background_penalty: float | None = _parameter(
        None, "share", f"{_LOWERS}; None: {BACKGROUND_PENALTY} with joint grades alone, else 0"
    )
    device: str | None = _parameter(None, "choice", "what runs a pair model; None: the CPU", DEVICES)
    background: Any = _parameter(None, "model", "the model of queries by background; None: model")  # noqa: RUF009
    method: Any = _parameter(None, "model", "the model of queries by method; None: model")  # noqa: RUF009
    result: Any = _parameter(None, "model", "the model of queries by result; None: model")  # noqa: RUF009

    def __post_init__(self) -> None:
        _Stage.__post_init__(self)
        models = (self.model, self.background, self.method, self.result)
        if self.device is not None and not all(isinstance(each, str | os.PathLike | None) for each in models):
            raise UsageError("`device` is of a named `model`, found an object or a function; drop it")


@dataclass(frozen=True, slots=True)
class Matching(_Stage):
    """Reranks by another matching of stored sentence vectors: those of ASPIRE (Mysore et al., 2022)."""

    name: ClassVar[str] = "matching"
    kind: str = _parameter("transport", "choice", "how sentence vectors are matched", MATCHINGS)
    depth: int = _parameter(*_DEPTH)
    weight: float = _parameter(1.0, "share", "the matching's share of the score, 0 to 1")
    temperature: float | None = _parameter(
        None,
        "positive",
        "the higher, the more evenly sentences weigh (transport: 0.5, 5000 for abstracts; attention: 1)",
    )
    regularization: float | None = _parameter(
        None, "positive", "transport: the higher, the sparser the plan (20)"
    )

    def __post_init__(self) -> None:
        _Stage.__post_init__(self)
        for name in ("temperature", "regularization"):
            kinds = ("transport", "attention") if name == "temperature" else ("transport",)
            if getattr(self, name) is not None and self.kind not in kinds:
                raise UsageError(f"`{name}` is not read with `kind` {self.kind}; drop it or choose transport")


@dataclass(frozen=True, slots=True)
class LanguageModel(_Stage):
    """Reranks by the grades, 0 to 3, that a language model behind an OpenAI-compatible endpoint gives.

    ``endpoint`` None is ``$QBE_LLM_ENDPOINT``; the key, if any, is ``$QBE_LLM_KEY``. The first stage orders
    equal grades.
    """

    name: ClassVar[str] = "llm"
    model: str | None = _parameter(None, "text", "name of the model at the endpoint; required")
    endpoint: str | None = _parameter(None, "text", "such as http://127.0.0.1:8080/v1; or $QBE_LLM_ENDPOINT")
    depth: int = _parameter(20, "count", "papers of the first stage to rerank, a request each")
    weight: float = _parameter(0.9, "share", "the grades' share of the score, 0 to 1")
    parallel: int = _parameter(4, "count", "requests under way at a time")

    def __post_init__(self) -> None:
        _Stage.__post_init__(self)
        if not self.model:
            raise UsageError("expected the name of a model as in llm:model=NAME, found none")


FIRST_STAGES: Mapping[str, type[_Stage]] = {stage.name: stage for stage in (BM25, Dense, Fused)}
RERANKERS: Mapping[str, type[_Stage]] = {
    stage.name: stage for stage in (Grades, Projections, CrossEncoder, Matching, LanguageModel)
}


@dataclass(frozen=True, slots=True)
class Stages:
    """A first stage, or an object with ``batch_search``; a reranker, as `CrossEncoder` takes it, or None."""

    first_stage: Any = field(default_factory=Fused)
    reranker: Any = None

    def __post_init__(self) -> None:
        first = self.first_stage
        if not isinstance(first, BM25 | Dense | Fused) and not callable(getattr(first, "batch_search", None)):
            raise TypeError(
                f"expected a first stage such as qbe.Fused(), found {first!r:.60} ({type(first).__name__})"
            )
        if self.reranker is not None and not isinstance(self.reranker, tuple(RERANKERS.values())):
            object.__setattr__(self, "reranker", CrossEncoder(self.reranker))

    def __rshift__(self, reranker: Any) -> "Stages":
        if self.reranker is not None:
            both = f"{self.reranker.name} and {getattr(reranker, 'name', reranker)!s:.50}"
            raise UsageError(f"expected one reranker, found {both}; drop one")
        return Stages(self.first_stage, reranker)

    @property
    def run_tag(self) -> str:
        """Return the tag of runs: ``qbe-``, the first stage, and ``+`` with the reranker."""
        first = self.first_stage.name if isinstance(self.first_stage, _Stage) else "first-stage"
        if self.reranker is None:
            return f"qbe-{first}"
        second = self.reranker.kind if isinstance(self.reranker, Matching) else self.reranker.name
        joint = getattr(self.reranker, "joint", None)
        return f"qbe-{first}+{second}" + (f":joint={joint}" if joint else "")

    def to_json(self) -> dict[str, Any]:
        """Return the stages with all parameters as JSON; raises TypeError for models that are objects."""
        first, second = self.first_stage.to_json(), self.reranker and self.reranker.to_json()
        return {"first_stage": first, "reranker": second}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Make stages of a record of `to_json`; raises UsageError for another one."""
        kinds = {**FIRST_STAGES, **RERANKERS}
        try:
            parts = [dict(record[name] or {}) for name in ("first_stage", "reranker")]
            return cls(*(kinds[part.pop("stage")](**part) if part else None for part in parts))
        except (KeyError, TypeError) as error:
            raise UsageError(f"expected a record of stages, found another ({error})") from None


def parse_first_stage(text: str) -> Any:
    """Parse a first stage: a name, and parameters after a colon; raises UsageError."""
    name, _, parameters = text.partition(":")
    if name not in FIRST_STAGES:
        hint = did_you_mean(name, FIRST_STAGES, "choose one of these")
        raise UsageError(f"expected `first_stage` of {', '.join(FIRST_STAGES)}, found {name!r}; {hint}")
    return _parsed(FIRST_STAGES[name], parameters, "first_stage")


def parse_reranker(text: str, expected: str = "") -> Any:
    """Parse ``none``, a reranker's name or model's folder, and parameters; errors name the ``expected``."""
    name, _, parameters = text.partition(":")
    if text == "none":
        return None
    if name in RERANKERS:
        return _parsed(RERANKERS[name], parameters, "rerank")
    folder, colon, rest = text.rpartition(":")
    folder, parameters = (folder, f",{rest}") if colon and "=" in rest else (text, "")
    if not (os.sep in folder or os.path.isdir(folder)):  # noqa: PTH112
        hint = "check it" if expected else did_you_mean(folder, RERANKERS, "check it")
        expected = expected or f"`rerank` of none, {', '.join(RERANKERS)}, or the folder of a model"
        raise UsageError(f"expected {expected}, found {text!r}; {hint}")
    of_projections = os.path.isfile(os.path.join(folder, "facet-projections.json"))  # noqa: PTH113, PTH118
    return _parsed(Projections if of_projections else CrossEncoder, f"model={folder}{parameters}", "rerank")


def _parsed(stage: type[_Stage], parameters: str, option: str) -> Any:
    kinds = {each.name: each.metadata["kind"] for each in dataclasses.fields(stage)}
    values: dict[str, Any] = {}
    for part in parameters.split(",") if parameters else ():
        name, sign, value = part.partition("=")
        if not sign or name not in kinds or name in values:
            raise UsageError(
                f"expected parameters of {stage.name} as in {stage.name}:{next(iter(kinds))}=..., each "
                f"once, of {', '.join(kinds)}, found {part!r}; check `{option}`"
            )
        try:
            values[name] = KINDS[kinds[name]][1](value)
        except ValueError:
            values[name] = value  # which the stage refuses
    try:
        return stage(**values)
    except UsageError as error:
        raise UsageError(f"{error}; check `{option}`") from None


def describe_stages(stages: Mapping[str, type[_Stage]]) -> str:
    lines = []
    for name, stage in stages.items():
        lines.append(f"{name}: {(stage.__doc__ or '').partition(chr(10))[0]}")
        for each in dataclasses.fields(stage):
            choices = f" ({', '.join(each.metadata['choices'])})" if each.metadata["choices"] else ""
            default = "" if each.default is None else f" (default: {each.default})"
            lines.append(f"  {each.name}  {each.metadata['help']}{choices}{default}")
    return "\n".join(lines)


def default_stages(index: "Index") -> Stages:
    """Choose the stages for an index, the same in every front end."""
    dense = index.manifest.dense
    if dense is None:
        return BM25() >> CrossEncoder()
    from qbe.models.cards import Storage, shipped_model

    first = Dense() if index.manifest.lucene is None else Fused()
    if shipped_model(dense["encoder"]):
        return first >> Grades(joint=JOINT_DEPTH)
    projected = Storage("projection", "facet-projections").shipped_for(dense["encoder"])
    return first >> (Projections() if projected else CrossEncoder())
