"""The facet tagger's networks: a head on token states, a teacher with its encoder; and their abstracts."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from qbe.corpus.identity import TitleIndex, normalized_title
from qbe.corpus.json_formats import read_jsonl, read_records
from qbe.corpus.sentences import split_sentences, unsplit
from qbe.errors import CorpusError
from qbe.models.encoding import Floats
from qbe.types import Facet, FacetProbabilities, Paper, Sentence

LABELS = FacetProbabilities._fields
SPLITS = ("train", "dev", "test")
MIN_SENTENCES, MAX_SENTENCES = 3, 20  # shorter abstracts have no structure; longer ones are mostly none


class LabelledAbstract(NamedTuple):
    """An abstract's sentences, their labels (positions in LABELS), shares of annotators' votes for each."""

    sentences: tuple[str, ...]
    labels: tuple[int, ...]
    confidences: tuple[float, ...]

    def paper(self) -> Paper:
        return Paper("", "", tuple(map(Sentence, self.sentences)))


def read_csabstruct(folder: Path) -> Mapping[str, list[LabelledAbstract]]:
    """Read the abstracts of CSAbstruct's train.jsonl, dev.jsonl and test.jsonl in a folder, by split."""
    splits: dict[str, list[LabelledAbstract]] = {}
    numbered = {label: number for number, label in enumerate(LABELS)}
    remedy = "give the folder of CSAbstruct's release"
    for split in SPLITS:
        path = folder / f"{split}.jsonl"
        splits[split] = []
        for where, record in read_records(path):
            try:
                sentences = tuple(record["sentences"])
                numbers = tuple(map(numbered.__getitem__, record["labels"]))
                confidences = tuple(map(float, record.get("confs") or [1.0] * len(numbers)))
            except (KeyError, ValueError, TypeError) as error:
                expected = f"sentences, labels ({', '.join(LABELS)}) and confs"
                raise CorpusError(f"{where}: expected {expected}, found {error!r}; {remedy}") from error
            counts = [len(each) for each in (sentences, numbers, confidences)]
            if len(set(counts)) > 1 or not sentences:
                expected = "one label and one confidence a sentence"
                raise CorpusError(f"{where}: expected {expected}, found {counts}; correct the record")
            splits[split].append(LabelledAbstract(sentences, numbers, confidences))
        if not splits[split]:
            raise CorpusError(f"{path}: expected abstracts, found none; {remedy}")
    return splits


def sample_papers(source: str | Path, evaluated: TitleIndex, count: int, seed: int) -> list[Paper]:
    """Choose papers of a corpus at random, without those that have the title of an ``evaluated`` one; a
    larger sample holds every smaller one of the seed.
    """
    rng, papers = random.Random(seed), list[Paper]()
    for paper in sorted(read_jsonl(source, unsplit), key=lambda _: rng.random()):
        if len(papers) >= count:
            break
        sentences = tuple(map(Sentence, split_sentences(paper.abstract)))
        if MIN_SENTENCES <= len(sentences) <= MAX_SENTENCES and not evaluated.holds(paper.title):
            papers.append(Paper(paper.paper_id, paper.title, sentences))
    if len(papers) < count:
        raise CorpusError(
            f"{source}: expected {count:,} abstracts of {MIN_SENTENCES} to {MAX_SENTENCES} sentences beside "
            f"those left out, found {len(papers):,}; give a larger corpus"
        )
    return papers


def headed_papers(sources: Iterable[Path], evaluated: TitleIndex) -> list[Paper]:
    """Read structured abstracts with methods, each once, whose sentences have the labels of their headings,
    but for papers that have the title of an ``evaluated`` one.
    """
    papers: dict[str, Paper] = {}
    for source in sources:
        for paper in read_jsonl(source, lambda abstract: [abstract]):  # as `unsplit`, but by headings
            parts = paper.sentences
            if Facet.METHOD not in (part.facet for part in parts) or evaluated.holds(paper.title):
                continue
            split = tuple(part._replace(text=text) for part in parts for text in split_sentences(part.text))
            if MIN_SENTENCES <= len(split) <= MAX_SENTENCES:
                papers.setdefault(normalized_title(paper.title), replace(paper, sentences=split))
        if not papers:
            told = "expected structured abstracts (Background:, Methods:), found none; give a larger corpus"
            raise CorpusError(f"{source}: {told}")
    return list(papers.values())


LABEL_COUNT = 5
MAX_POSITION = 32  # sentences further from the beginning (or the end) share a position


class Tokens(NamedTuple):
    """The first window of a paper, with the encoder's hidden states, numbers times scales."""

    ids: NDArray[np.int32]  # (tokens,)
    spans: tuple[tuple[int, int], ...]  # the first token and the end of each sentence that fits
    numbers: NDArray[np.int8]  # (tokens, layers, dimension)
    scales: NDArray[np.float16]  # (tokens, layers, 1)

    @property
    def states(self) -> Floats:
        return self.numbers.astype(np.float32) * self.scales.astype(np.float32)


def _layout(papers: Sequence[Tokens]) -> tuple[Tensor, Tensor]:
    """Masks of each sentence's tokens (papers, sentences, tokens), and of sentences that are no padding."""
    tokens, sentences = (max(len(paper[place]) for paper in papers) for place in (0, 1))
    spans = torch.zeros(len(papers), sentences, tokens, dtype=torch.bool)
    present = torch.zeros(len(papers), sentences, dtype=torch.bool)
    for i, paper in enumerate(papers):
        present[i, : len(paper.spans)] = True
        for j, (begin, end) in enumerate(paper.spans):
            spans[i, j, begin:end] = True
    return spans, present


class Chain(nn.Module):
    """A linear-chain conditional random field over sentence labels (Lafferty et al., 2001)."""

    def __init__(self) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(LABEL_COUNT, LABEL_COUNT))
        self.begin = nn.Parameter(torch.zeros(LABEL_COUNT))
        self.end = nn.Parameter(torch.zeros(LABEL_COUNT))

    def log_marginals(self, scores: Tensor, present: Tensor) -> Tensor:
        """Log marginals (papers, sentences, labels), by the forward-backward algorithm in log space; those of
        padded sentences have no meaning.
        """
        forward = [self.begin + scores[:, 0]]
        for i in range(1, scores.shape[1]):
            step = torch.logsumexp(forward[-1].unsqueeze(2) + self.transitions, 1) + scores[:, i]
            forward.append(torch.where(present[:, i : i + 1], step, forward[-1]))
        last = self.end.expand(len(scores), -1)
        backward = [last]
        for i in range(scores.shape[1] - 1, 0, -1):
            ahead = (scores[:, i] + backward[-1]).unsqueeze(1)
            step = torch.logsumexp(self.transitions + ahead, 2)
            backward.append(torch.where(present[:, i : i + 1], step, last))
        return torch.log_softmax(torch.stack(forward, 1) + torch.stack(backward[::-1], 1), -1)


class Head(nn.Module):
    """Token states to label scores of sentences.

    States are projected and combined with their two neighbours' (for phrases such as *we propose*); tokens
    are pooled by ``pools`` learned attentions and the mean, and sentences contextualized by ``depth`` layers
    (Cohan et al., 2019, with pooled tokens instead of separators; the chain is Jin and Szolovits', 2018).
    """

    def __init__(
        self,
        inputs: int,
        width: int = 192,
        pools: int = 4,
        sentence_width: int = 256,
        depth: int = 2,
        dropout: float = 0.3,
    ) -> None:
        super().__init__()
        self.project = nn.Linear(inputs, width)
        self.mix = nn.Conv1d(width, width, 3, padding=1, groups=width)
        self.token_norm = nn.LayerNorm(width)
        self.attention = nn.Linear(width, pools)
        self.gather = nn.Linear(width * (pools + 1), sentence_width)
        self.from_begin = nn.Embedding(MAX_POSITION, sentence_width)
        self.from_end = nn.Embedding(MAX_POSITION, sentence_width)
        for embedding in (self.from_begin, self.from_end):
            nn.init.normal_(embedding.weight, std=0.02)
        self.context = nn.ModuleList(
            _SentenceLayer(sentence_width, sentence_width // 32, dropout) for _ in range(depth)
        )
        self.sentence_norm = nn.LayerNorm(sentence_width)
        self.dropout = nn.Dropout(dropout)
        self.score = nn.Linear(sentence_width, LABEL_COUNT)
        self.chain = Chain()

    @staticmethod
    def collate(papers: Sequence[Tokens]) -> tuple[Tensor, Tensor, Tensor]:
        """Normalized states (papers, tokens, layers * dimension), padded, and their `_layout`."""
        values = (torch.from_numpy(paper.states) for paper in papers)
        states = [functional.layer_norm(each, each.shape[-1:]).flatten(1) for each in values]
        return nn.utils.rnn.pad_sequence(states, batch_first=True), *_layout(papers)

    def forward(self, states: Tensor, spans: Tensor, present: Tensor) -> Tensor:
        """Scores (papers, sentences, labels) before the chain."""
        return self.contextualized(self.pooled(states, spans), present)

    def pooled(self, states: Tensor, spans: Tensor) -> Tensor:
        """Tokens of each sentence, pooled in several ways (papers, sentences, width)."""
        tokens = functional.gelu(self.project(self.dropout(states)))
        inside = spans.any(1).unsqueeze(2)
        mixed = self.mix((tokens * inside).transpose(1, 2)).transpose(1, 2)
        tokens = self.token_norm(tokens + mixed)
        logits = self.attention(tokens).transpose(1, 2).unsqueeze(1)
        weights = torch.softmax(logits.masked_fill(~spans.unsqueeze(2), -1e4).float(), -1)
        even = spans / spans.sum(-1, keepdim=True).clamp(min=1)
        pooled = torch.cat([weights, even.unsqueeze(2)], 2).to(tokens.dtype)
        papers, sentences, pools, length = pooled.shape
        gathered = torch.bmm(pooled.reshape(papers, sentences * pools, length), tokens)
        return gathered.reshape(papers, sentences, -1)

    def contextualized(self, pooled: Tensor, present: Tensor) -> Tensor:
        """Scores (papers, sentences, labels) before the chain, of pooled tokens."""
        hidden = self.gather(self.dropout(pooled))
        place = torch.arange(pooled.shape[1])
        to_end = (present.sum(1, keepdim=True) - 1 - place).clamp(0, MAX_POSITION - 1)
        hidden = hidden + self.from_begin(place.clamp(max=MAX_POSITION - 1)) + self.from_end(to_end)
        for layer in self.context:
            hidden = layer(hidden, present)
        scores: Tensor = self.score(self.dropout(self.sentence_norm(hidden)))
        return scores


class SentenceLayers(nn.Module):
    """The layers of a head over sentences; what its frozen layers over tokens give is computed once."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.head, self.chain = head, head.chain
        for part in (head.project, head.mix, head.token_norm, head.attention):
            part.requires_grad_(False)

    @torch.no_grad()
    def pool(self, papers: Iterable[Tokens]) -> list[Tokens]:
        """Papers with pooled tokens (sentences, width) in place of states."""
        self.eval()
        inputs = ((paper, self.head.collate([paper])) for paper in papers)
        return [paper._replace(numbers=self.head.pooled(*each[:2])[0].numpy()) for paper, each in inputs]

    @staticmethod
    def collate(papers: Sequence[Tokens]) -> tuple[Tensor, Tensor]:
        """Pooled tokens (papers, sentences, width), padded, and which sentences are there."""
        pooled = [torch.from_numpy(paper.numbers) for paper in papers]
        return nn.utils.rnn.pad_sequence(pooled, batch_first=True), _layout(papers)[1]

    def forward(self, pooled: Tensor, present: Tensor) -> Tensor:
        """Scores (papers, sentences, labels) before the chain."""
        return self.head.contextualized(pooled, present)


class _SentenceLayer(nn.Module):
    """A pre-norm transformer layer over the sentences of a paper, in operations that ONNX knows."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_inner = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner, self.outer = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor, present: Tensor) -> Tensor:
        """Contextualized sentences (papers, sentences, width)."""
        papers, sentences, width = hidden.shape
        shape = (papers, sentences, 3, self.heads, width // self.heads)
        query, key, value = self.inputs(self.before_attention(hidden)).reshape(shape).permute(2, 0, 3, 1, 4)
        logits = query @ key.transpose(2, 3) / (width // self.heads) ** 0.5
        logits = logits.masked_fill(~present[:, None, None, :], -1e4)
        mixed = (torch.softmax(logits, -1) @ value).transpose(1, 2).reshape(papers, sentences, width)
        hidden = hidden + self.dropout(self.output(mixed))
        inner = functional.gelu(self.inner(self.before_inner(hidden)))
        added: Tensor = self.dropout(self.outer(self.dropout(inner)))
        return hidden + added


class Teacher(nn.Module):
    """A head on the states of an encoder whose layers are trained too (its embeddings are frozen)."""

    def __init__(self, folder: Path, layers: Sequence[int]) -> None:
        super().__init__()
        from transformers import AutoModel

        self.trunk: Any = AutoModel.from_pretrained(
            folder, use_safetensors=True, local_files_only=True, attention_probs_dropout_prob=0.0
        )  # dropout on attention takes longer than attention itself, on a CPU
        self.trunk.embeddings.requires_grad_(False)
        self.layers = tuple(layers)
        self.head = Head(len(layers) * self.trunk.config.hidden_size)
        self.chain = self.head.chain

    @staticmethod
    def collate(papers: Sequence[Tokens]) -> tuple[Tensor, Tensor, Tensor]:
        """Papers padded to the longest: ids (papers, tokens) int64, 0 for padding, and their `_layout`."""
        ids = [torch.from_numpy(paper.ids).long() for paper in papers]
        return nn.utils.rnn.pad_sequence(ids, batch_first=True), *_layout(papers)

    def forward(self, ids: Tensor, spans: Tensor, present: Tensor) -> Tensor:
        """Scores (papers, sentences, labels) before the chain."""
        output = self.trunk(input_ids=ids, attention_mask=(ids > 0).long(), output_hidden_states=True)
        chosen = [output.hidden_states[layer].float() for layer in self.layers]
        states = torch.cat([functional.layer_norm(state, state.shape[-1:]) for state in chosen], -1)
        scores: Tensor = self.head(states, spans, present)
        return scores
