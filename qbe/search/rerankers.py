"""Rerankers made of models: cross-encoders, joint grades, a language model, and functions of the user."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError, UsageError
from qbe.models.cards import (
    DEFAULT_ENCODER,
    DEFAULT_RERANKER,
    JOINT_GRADER,
    JOINT_GRADES,
    JOINT_INPUTS,
    JOINT_MODEL,
    JOINT_OUTPUT,
    PAIR_INPUTS,
    SCORE,
    RerankerFiles,
    read_card,
    verify_digest,
)
from qbe.models.folders import joint_folder, resolve_encoder, resolve_reranker
from qbe.models.pooling import EncodedAspect
from qbe.models.session import AUTO, CPU, HALF, check_precision, chosen_device, open_session, usual_precision
from qbe.models.tokenizer import pair_input
from qbe.query import Aspect
from qbe.search.rank import Progress, Reranker, RerankRequest, RerankScore
from qbe.types import Facet, Paper
from qbe.util.work import Memo, Workers

if TYPE_CHECKING:
    from qbe.models.language_model import Answer
    from qbe.models.language_model import Grader as LanguageModelGrader
    from qbe.models.tokenizer import PaperTokenizer, SpecialTokens

log = logging.getLogger("qbe.search")

Scoring = Callable[[Aspect, Sequence[Paper]], Sequence[float]]
"""Scores papers, more is better, for an aspect of a query."""


class FunctionReranker:
    """A function of an aspect and papers as a reranker, called for the papers of one aspect at a time.

    >>> from qbe.types import Sentence
    >>> papers = [Paper(name, "", (Sentence(name),)) for name in ("rivers", "seas")]
    >>> longest = FunctionReranker(lambda aspect, papers: [len(paper.abstract) for paper in papers])
    >>> ((first, second),) = longest.batch_score([RerankRequest(EncodedAspect.of(Aspect(papers[0])), papers)])
    >>> first.score, second.score
    (6.0, 4.0)
    """

    needs_vectors = False
    takes_whole_abstracts = True

    def __init__(self, function: Scoring) -> None:
        self._function = function
        self.name = getattr(function, "__name__", type(function).__name__)

    def batch_score(
        self, requests: Sequence[RerankRequest], progress: Progress | None = None
    ) -> list[list[RerankScore]]:
        """Raises ModelError for another number of scores than papers, and for other values than numbers."""
        results = []
        for query, papers in requests:
            given: Any = self._function(query.aspect, papers) if papers else []
            if isinstance(given, Iterable) and not isinstance(given, Mapping | str):
                given = list(given)
            try:
                scores = [float(score) for score in given] if isinstance(given, list) else None
            except (TypeError, ValueError):
                scores = None
            if scores is None:
                raise ModelError(
                    f"expected a list of numbers of the reranker {self.name}, one for each paper, found "
                    f"{given!r:.60}; return one"
                )
            if len(scores) != len(papers):
                raise ModelError(
                    f"expected {len(papers)} scores of the reranker {self.name}, one for each paper, found "
                    f"{len(scores)}; return one for each"
                )
            results.append([RerankScore(score) for score in scores])
            if progress and papers:
                progress(len(papers))
        return results


def query_text(aspect: Aspect) -> str:
    """Join the title of an aspect's paper and the sentences that it selects.

    >>> from qbe.types import Facet, Sentence
    >>> sentences = (Sentence("Stone is hard.", Facet.BACKGROUND), Sentence("We cut it.", Facet.METHOD))
    >>> query_text(Aspect(Paper("1", "On stone", sentences, labelled=True), Facet.METHOD))
    'On stone. We cut it.'
    """
    return _joined(aspect.paper.title, " ".join(aspect.paper.texts(aspect.selected_positions())))


def paper_text(paper: Paper) -> str:
    """Join title and abstract of a candidate."""
    return _joined(paper.title, paper.abstract)


def _joined(title: str, text: str) -> str:
    return f"{title.rstrip('. ')}. {text}" if title.strip() else text


def scoring_of(model: Any) -> Scoring | None:
    """Return a function that scores by a model of sentence-transformers, None for other objects.

    A cross-encoder (with ``predict``) reads `query_text` and `paper_text` as a pair; an encoder (with
    ``encode``) one by one, and the score is the cosine of their vectors.
    """
    if callable(getattr(model, "predict", None)):

        def by_pairs(aspect: Aspect, papers: Sequence[Paper]) -> list[float]:
            query = query_text(aspect)
            return [float(score) for score in model.predict([(query, paper_text(each)) for each in papers])]

        return by_pairs
    if callable(getattr(model, "encode", None)):

        def by_vectors(aspect: Aspect, papers: Sequence[Paper]) -> list[float]:
            texts = [query_text(aspect), *map(paper_text, papers)]
            query, *candidates = model.encode(texts, normalize_embeddings=True)
            return [float(query @ candidate) for candidate in candidates]

        return by_vectors
    return None


_BATCH_TOKENS = 1 << 15
"""Tokens of a batch, padding included, in fp16."""

SIDE_TOKENS = 256
"""Tokens of query and of candidate that are read, special ones included (Nogueira et al., 2020, sec. 4)."""


class Pair(NamedTuple):
    """Token ids, and for each its side: 0 up to the first [SEP], 1 after it."""

    ids: list[int]
    types: list[int]


class CrossEncoder:
    """Scores ``[CLS] query title. query sentences [SEP] candidate title. abstract [SEP]`` in one pass of any
    exported BERT-family classifier of pairs (Nogueira et al., 2020, section 4).

    The query's sentences are those of its aspect, in the order of the abstract. One pair is one call of a
    single-threaded session, and the workers score several pairs at a time (why: `qbe.models.encoder`).
    In fp16, which is for GPUs, pairs of similar length are scored in batches. Scores have no match.
    """

    needs_vectors = False
    takes_whole_abstracts = True

    def __init__(self, files: RerankerFiles, workers: Workers | None = None, device: str = CPU) -> None:
        """Load model and tokenizer, the model on one of `qbe.models.session.DEVICES`.

        Raises ModelError when a file is missing or damaged, UsageError for int8 on a GPU,
        MissingDependencyError for a device that cannot be used, and for fp16 without onnx.
        """
        from qbe.models.gpu import pair_batches
        from qbe.models.tokenizer import PaperTokenizer

        metadata = files.metadata
        device, self._batched = chosen_device(device), files.precision == HALF
        check_precision(files.precision, device)
        files.verify()
        self.name = metadata.name
        self._workers = workers or Workers()
        tokens = min(SIDE_TOKENS, metadata.max_tokens // 2)
        self._query_tokens = metadata.query_tokens or tokens
        self._candidate_tokens = metadata.candidate_tokens or tokens
        self._inputs = PAIR_INPUTS if metadata.token_types else PAIR_INPUTS[:-1]
        model = pair_batches(files) if self._batched else files.model
        self._session = open_session(model, device, inputs=self._inputs, outputs=[SCORE])
        self._tokenizer = PaperTokenizer(files.tokenizer)

    def batch_score(
        self, requests: Sequence[RerankRequest], progress: Progress | None = None
    ) -> list[list[RerankScore]]:
        queries = [query_side(self._tokenizer, each.query, self._query_tokens) for each in requests]
        pairs = [(number, paper) for number, request in enumerate(requests) for paper in request.papers]
        candidates = Memo[Paper, list[int]](
            lambda paper: candidate_side(self._tokenizer, paper, self._candidate_tokens)
        )

        def row(place: int) -> Pair:
            number, paper = pairs[place]
            return pair(queries[number], candidates(paper), self._tokenizer.special)

        if self._batched:
            computed = self._in_batches([row(place) for place in range(len(pairs))], progress)
        else:
            # The longest first, so that no thread is left alone with a long one at the end.
            lengths = [len(paper.title) + len(paper.abstract) for _, paper in pairs]
            order = sorted(range(len(pairs)), key=lambda place: -lengths[place])
            computed = [0.0] * len(pairs)
            scored = self._workers.map(lambda place: self._run([row(place)])[0], order)
            for place, score in zip(order, scored, strict=True):
                computed[place] = score
                if progress:
                    progress(1)
        in_order = map(RerankScore, computed)
        return [list(islice(in_order, len(request.papers))) for request in requests]

    def _in_batches(self, pairs: Sequence[Pair], progress: Progress | None) -> list[float]:
        from qbe.models.gpu import batches, padded

        scores = [0.0] * len(pairs)
        for places in batches([len(each.ids) for each in pairs], _BATCH_TOKENS):
            some = [pairs[place] for place in places]
            for place, score in zip(places, self._run(some, padded(len(some[0].ids))), strict=True):
                scores[place] = score
            if progress:
                progress(len(places))
        return scores

    def _run(self, pairs: Sequence[Pair], length: int | None = None) -> list[float]:
        """Score pairs in one call, padded to a length, by default the first one's."""
        length = len(pairs[0].ids) if length is None else length
        arrays = {name: np.zeros((len(pairs), length), np.int64) for name in PAIR_INPUTS}
        arrays["input_ids"].fill(self._tokenizer.pad)
        for row, (ids, types) in enumerate(pairs):
            for name, values in zip(PAIR_INPUTS, (ids, [1] * len(ids), types), strict=True):
                arrays[name][row, : len(ids)] = values
        (scores,) = self._session.run([SCORE], {name: arrays[name] for name in self._inputs})
        computed: list[float] = scores.tolist()
        return computed


def query_side(tokenizer: PaperTokenizer, query: EncodedAspect, tokens: int) -> list[int]:
    """The token ids of a query: title and sentences, cut to ``tokens`` less [CLS] and [SEP]."""
    texts = query.aspect.paper.texts(sorted(query.positions))
    title = tokenizer.ids(closed(query.aspect.paper.title))
    return side(title, [tokenizer.ids(text) for text in texts], tokens - 2)


def candidate_side(tokenizer: PaperTokenizer, paper: Paper, tokens: int) -> list[int]:
    """The token ids of a candidate: title and abstract, cut to ``tokens`` less [SEP]."""
    texts = paper.texts(range(len(paper.sentences)))
    return side(tokenizer.ids(closed(paper.title)), [tokenizer.ids(text) for text in texts], tokens - 1)


def closed(title: str) -> str:
    """End a title as a sentence.

    >>> closed("On stone"), closed("Why stone?")
    ('On stone.', 'Why stone?')
    """
    title = title.rstrip()
    return title if not title or title[-1] in ".?!:" else f"{title}."


def side(title: Sequence[int], sentences: Sequence[Sequence[int]], room: int) -> list[int]:
    """Join title and sentences, cut at the end to ``room`` tokens, so that the title is cut last."""
    ids = list(title)
    for sentence in sentences:
        ids.extend(sentence)
    return ids[:room]


def pair(query: Sequence[int], candidate: Sequence[int], special: SpecialTokens) -> Pair:
    """Join both sides with special tokens."""
    first, second = [special.cls, *query, special.sep], [*candidate, special.sep]
    return Pair(first + second, [0] * len(first) + [1] * len(second))


TITLE_TOKENS, PAPER_TOKENS = 96, 208
"""How many tokens of a title, and of a title and an abstract together, joint grades read."""

KEPT = 4096
"""Pairs whose joint grades are cached."""


def paper_ids(tokenizer: PaperTokenizer, paper: Paper) -> list[int]:
    """The token ids of a paper's title and sentences, as far as joint grades read them."""
    sentences = [tokenizer.ids(sentence.text) for sentence in paper.sentences]
    return side(tokenizer.ids(paper.title)[:TITLE_TOKENS], sentences, PAPER_TOKENS)


class JointGrader:
    """A cross-encoder that grades pairs of papers in background, method and result, each from 0 (unrelated)
    to 3 (near identical).

    A call of a single-threaded session grades one pair, and the workers make several calls at a time, so that
    grades depend neither on other pairs nor on threads. The KEPT last grades are cached. Threads may share
    it.

    >>> with Workers(2) as workers:
    ...     grader = JointGrader(workers=workers)
    ...     near, far = grader.grade(index.paper("s036"), [index.paper("s036"), index.paper("s051")])
    >>> bool((near > far).all()), bool((near > 2).all())
    (True, True)
    """

    def __init__(self, folder: Path = JOINT_GRADES, workers: Workers | None = None) -> None:
        """Raise ModelError where a file is missing or damaged."""
        from qbe.models.tokenizer import PaperTokenizer

        self.card = read_card(folder, JOINT_GRADER)
        tokenizer = resolve_encoder(DEFAULT_ENCODER).tokenizer
        for path in (folder / JOINT_MODEL, tokenizer):
            verify_digest(path, self.card.files.get(path.name), "install qbe again, or train it again")
        self._session = open_session(folder / JOINT_MODEL, inputs=JOINT_INPUTS, outputs=[JOINT_OUTPUT])
        self._tokenizer, self._workers = PaperTokenizer(tokenizer), workers or Workers()
        self._kept: OrderedDict[Hashable, NDArray[np.float64]] = OrderedDict()
        self._keeping = threading.Lock()

    def grade(
        self, paper: Paper, candidates: Sequence[Paper], progress: Progress | None = None
    ) -> NDArray[np.float64]:
        """Grade candidates by a paper, (candidates, 3)."""
        query, keys = _content(paper), [_content(each) for each in candidates]
        missing: dict[Hashable, Paper] = {}
        found: dict[Hashable, NDArray[np.float64]] = {}
        with self._keeping:
            for key, candidate in zip(keys, candidates, strict=True):
                if (query, key) in self._kept:
                    self._kept.move_to_end((query, key))
                    found[key] = self._kept[query, key]
                else:
                    missing[key] = candidate
        first = paper_ids(self._tokenizer, paper) if missing else []
        graded = self._workers.map(lambda each: self._pair(first, each), missing.values())
        if progress and len(keys) > len(missing):
            progress(len(keys) - len(missing))
        for key, grades in zip(missing, graded, strict=True):
            found[key] = grades
            if progress:
                progress(1)
        with self._keeping:
            for key in missing:
                self._kept[query, key] = found[key]
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return np.array([found[key] for key in keys], np.float64).reshape(-1, 3)

    def _pair(self, first: Sequence[int], candidate: Paper) -> NDArray[np.float64]:
        special = self._tokenizer.special
        inputs = pair_input(first, paper_ids(self._tokenizer, candidate), special.cls, special.sep)
        (grades,) = self._session.run([JOINT_OUTPUT], dict(zip(JOINT_INPUTS, inputs, strict=True)))
        # Rounded, so that kinds of processors seldom rank differently.
        rounded: NDArray[np.float64] = grades[0].astype(np.float64).round(4)
        return rounded


def _content(paper: Paper) -> Hashable:
    return paper.title, tuple(each.text for each in paper.sentences)


class JointReranker:
    """Scores a candidate by its joint grade in the facet of the query, without a match of sentences."""

    name = DEFAULT_RERANKER
    needs_vectors = False
    takes_whole_abstracts = False

    def __init__(self, folder: Path = JOINT_GRADES, workers: Workers | None = None) -> None:
        """Errors are those of `JointGrader`."""
        self._grader = JointGrader(folder, workers)

    def batch_score(
        self, requests: Sequence[RerankRequest], progress: Progress | None = None
    ) -> list[list[RerankScore]]:
        scores = []
        for request in requests:
            aspect = request.query.aspect
            assert aspect.facet is not None
            grades = self._grader.grade(aspect.paper, request.papers, progress)
            column = grades[:, list(Facet).index(aspect.facet)]
            scores.append([RerankScore(float(grade)) for grade in column])
        return scores


class LanguageModelReranker:
    """Scores candidates by the grades, from 0 to 3, that a language model behind an endpoint gives them: that
    of an aspect's facet, for an abstract or picked sentences the mean of all three.

    A candidate that is not graded gets the mean of the others' scores, so that the first stage places it, and
    a warning says so.
    """

    needs_vectors = False
    takes_whole_abstracts = True

    def __init__(self, grader: LanguageModelGrader) -> None:
        self._grader = grader
        self.name = grader.client.endpoint.model

    def batch_score(
        self, requests: Sequence[RerankRequest], progress: Progress | None = None
    ) -> list[list[RerankScore]]:
        """Raises ModelError where no candidate is graded, and what the grader's ``grade`` does."""
        from qbe.models.language_model import PaperPair

        shown = [_shown(each.query.aspect) for each in requests]
        pairs = [
            PaperPair(query, paper)
            for query, request in zip(shown, requests, strict=True)
            for paper in request.papers
        ]
        outcome = self._grader.grade(pairs, progress)
        if outcome.problems:
            place, problem = min(outcome.problems.items())
            if not any(outcome.answers):
                raise ModelError(f"{self.name} grades none of the papers: {problem}; choose another `rerank`")
            count = len({pairs[place].candidate.paper_id for place in outcome.problems})
            log.warning(
                "%s does not grade %s, such as %s (%s): the first stage places what has no grade",
                *(self.name, "1 paper" if count == 1 else f"{count} papers"),
                *(pairs[place].candidate.paper_id, problem),
            )
        answers = iter(outcome.answers)
        return [
            _scores(request.query.aspect.facet, list(islice(answers, len(request.papers))))
            for request in requests
        ]


def _shown(aspect: Aspect) -> Paper:
    """The paper of an aspect as the language model sees it: with picked sentences alone, if any are."""
    if aspect.positions is None:
        return aspect.paper
    picked = tuple(aspect.paper.sentences[position] for position in aspect.selected_positions())
    return dataclasses.replace(aspect.paper, sentences=picked, offsets=None)


def _scores(facet: Facet | None, answers: Sequence[Answer | None]) -> list[RerankScore]:
    def score(answer: Answer) -> float:
        grades = answer.grades if facet is None else [answer.grades[list(Facet).index(facet)]]
        return sum(grades) / len(grades)

    known = [score(answer) for answer in answers if answer is not None]
    middle = sum(known) / len(known) if known else 0.0
    return [
        RerankScore(middle)
        if answer is None
        else RerankScore(score(answer), grades=dict(zip(map(str, Facet), answer.grades, strict=True)))
        for answer in answers
    ]


def open_reranker(
    name: str = DEFAULT_RERANKER,
    *,
    precision: str | None = None,
    workers: Workers | None = None,
    device: str = CPU,
) -> Reranker:
    """Open the cross-encoder of a registry name, folder or hub name (`qbe.models.cards`).

    ``workers`` score as many candidates at a time as they have threads (by default one). ``device``, one of
    `qbe.models.session.DEVICES`, runs a pair cross-encoder, on a GPU by default in fp16 and in batches; joint
    grades run on the CPU, in int8. Raises UsageError for a precision or device that the reranker does not
    have; ModelError when it cannot be found, verified or loaded; MissingDependencyError for a device that
    cannot be used.
    """
    joint = joint_folder(name)
    device = CPU if joint and device == AUTO else chosen_device(device)
    if joint is None:
        return CrossEncoder(resolve_reranker(name, precision or usual_precision(device)), workers, device)
    if device != CPU or precision not in (None, "int8"):
        raise UsageError(
            f"{name}: expected `device` {CPU} and `precision` int8, in which joint grades run, found "
            f"{device} and {precision or 'int8'}; drop it, or give a pair cross-encoder"
        )
    return JointReranker(joint, workers)


def describe_reranker(name: str = DEFAULT_RERANKER, precision: str = "int8") -> dict[str, str]:
    """The SHA-256 of a reranker's files by name; errors are those of `open_reranker`.

    >>> sorted(describe_reranker())
    ['model.int8.onnx', 'tokenizer.json']
    """
    joint = joint_folder(name)
    card = resolve_reranker(name, precision).metadata if joint is None else read_card(joint, JOINT_GRADER)
    return dict(card.files)


class DeferredReranker:
    """`open_reranker`, called when something is scored: never, if no query of a search has a facet.

    >>> deferred = DeferredReranker()
    >>> deferred.name, deferred.takes_whole_abstracts
    ('joint-grades', False)
    """

    needs_vectors = False

    def __init__(
        self, name: str = DEFAULT_RERANKER, *, workers: Workers | None = None, device: str = CPU
    ) -> None:
        self.takes_whole_abstracts = joint_folder(name) is None
        self.name = resolve_reranker(name).metadata.name if self.takes_whole_abstracts else DEFAULT_RERANKER
        self._model, self._workers, self._device = name, workers, device
        self._opening = threading.Lock()
        self._opened: Reranker | None = None

    def batch_score(
        self, requests: Sequence[RerankRequest], progress: Progress | None = None
    ) -> list[list[RerankScore]]:
        with self._opening:
            if self._opened is None:
                self._opened = open_reranker(self._model, workers=self._workers, device=self._device)
        return self._opened.batch_score(requests, progress)
