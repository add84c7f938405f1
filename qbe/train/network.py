"""Networks that trainings share: encoders whose layers are all trained, and late interaction of vectors."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from qbe.errors import ModelError
from qbe.index.vectors import Vectors
from qbe.models.cards import TOKENIZER
from qbe.models.encoding import Window
from qbe.models.export.pytorch import load_encoder, positions, write_tokenizer
from qbe.train.fit import Weights, trainable
from qbe.train.losses import FACETS, PaperVectors
from qbe.types import Facet, Paper

T = TypeVar("T")
WEIGHTS = "model.safetensors"
TERMS, START_WEIGHT = 4, 4.0
LENGTH_MULTIPLE = 16  # of the tokens of a batch, with padding: oneDNN compiles its products for each shape
_LOWEST = -2.0  # less than any cosine
_LAYERS = "encoder.layer."  # before the names of weights of layers


class PaperTable(NamedTuple):
    """Papers as padded tensors, one row a paper."""

    ids: Tensor  # (papers, tokens) of first windows
    lengths: Tensor  # (papers,)
    begins: Tensor  # (papers, sentences) of the tokens of each, 0 for padding
    ends: Tensor
    marked: Tensor  # (papers, sentences, facets) bool; all where a paper has none of a facet

    def to(self, device: torch.device | str) -> "PaperTable":
        return PaperTable(*(part.to(device) for part in self))


def table_of(windows: Sequence[Window], papers: Sequence[Paper] | None = None) -> PaperTable:
    """A table of windows, with the facets of ``papers`` (None: all)."""
    columns = zip(*windows, strict=True)
    ids, spans = ([torch.tensor(each, dtype=torch.int64) for each in column] for column in columns)
    begins, ends = pad_sequence([each.view(-1, 2) for each in spans], batch_first=True).unbind(2)
    marked = torch.zeros(*begins.shape, FACETS, dtype=torch.bool)
    for row, some in enumerate(spans):
        for place, facet in enumerate(Facet):
            of_facet = papers[row].facet_positions(facet)[0] if papers else ()
            inside = [position for position in of_facet if position < len(some)]
            marked[row, inside or slice(0, len(some)), place] = True
    lengths = torch.tensor([len(each) for each in ids])
    return PaperTable(pad_sequence(ids, batch_first=True).int(), lengths, begins, ends, marked)


def pooled(states: Tensor, begins: Tensor, ends: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Means of states (papers, tokens, dimension) over each sentence, and over all tokens of each paper."""
    places = torch.arange(states.shape[1], device=states.device)
    begins = torch.cat([begins, begins.new_zeros(len(begins), 1)], 1)[..., None]
    ends = torch.cat([ends, lengths[:, None].to(ends.dtype)], 1)[..., None]
    inside = ((places >= begins) & (places < ends)).float()
    means = (inside / inside.sum(2, keepdim=True).clamp(min=1)) @ states
    return means[:, :-1], means[:, -1]


class TrainedEncoder(nn.Module):
    """An encoder of transformers whose layers are trained, without dropout, or the ``whole`` of it, with.

    Matrix products run in ``dtype``, all else in single precision. No vector uses a pooler.
    """

    def __init__(self, folder: Path, dtype: torch.dtype = torch.bfloat16, *, whole: bool = False) -> None:
        from transformers.utils.logging import disable_progress_bar

        super().__init__()
        disable_progress_bar()  # type: ignore[no-untyped-call]  # it would take a second
        torch.manual_seed(0)  # for the random weights of a pooler that the folder lacks
        without = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
        settings: dict[str, Any] = {} if whole else {**without, "attn_implementation": None}
        self.bert, self.dtype = load_encoder(folder, "`encoder`", **settings), dtype
        for name, part in self.bert.named_parameters():
            part.requires_grad_("pooler" not in name if whole else name.startswith(_LAYERS))
        if not trainable(self):
            found = f"found {self.bert.config.model_type}; give another"
            raise ModelError(f"{folder}: expected an encoder with layers as BERT's, {found}")

    def states(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Final states (papers, tokens, dimension) float32 of padded token ids (papers, tokens) int64."""
        mask = (torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]).long()
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=self.dtype is torch.bfloat16):
            states: Tensor = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        return states.float()


def write_base(base: Path, weights: Weights, folder: Path) -> None:
    """Write weights, with the configuration and the tokenizer of ``base``, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(base / "config.json", folder / "config.json")
    write_tokenizer(base, folder / TOKENIZER)
    save_file(dict(weights), folder / WEIGHTS, metadata={"format": "pt"})


def with_trained(base: Weights, trained: Weights) -> dict[str, Tensor]:
    """The weights ``base`` of an encoder's files, with the ``trained`` layers of a `TrainedEncoder`."""
    # Files of models with a head have a word such as ``bert.`` before all names.
    names = {name.partition(_LAYERS)[2]: name for name in base if _LAYERS in name}
    layers = {names[name.partition(_LAYERS)[2]]: part for name, part in trained.items() if _LAYERS in name}
    return {**base, **{name: part.cpu().to(base[name].dtype).contiguous() for name, part in layers.items()}}


class GradedEncoder(TrainedEncoder):
    """An encoder with, for each facet, a projection of its vectors and weights of the similarities."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__(folder, dtype)
        self.weights = nn.Parameter(torch.full((FACETS, TERMS), START_WEIGHT))
        self.projections = nn.Parameter(torch.eye(self.bert.config.hidden_size).repeat(FACETS, 1, 1))

    def encode(self, table: PaperTable, rows: Tensor, chunks: int = 1) -> PaperVectors:
        """Vectors of the papers of some rows of a table, in ``chunks`` of similar lengths."""
        order, most = torch.argsort(table.lengths[rows]), int((table.ends[rows] > 0).sum(1).max())
        # Chunks of about equally many tokens: those of longer papers have fewer.
        tokens = torch.cumsum(table.lengths[rows[order]], 0).double().cpu()
        ends = torch.searchsorted(tokens, tokens[-1] * torch.arange(1, chunks) / chunks)
        parts = []
        for some in filter(len, torch.tensor_split(rows[order], ends + 1)):
            longest = int(table.lengths[some[-1]])
            length = min(-(-longest // LENGTH_MULTIPLE) * LENGTH_MULTIPLE, table.ids.shape[1])
            states = self.states(table.ids[some, :length].long(), table.lengths[some])
            places = table.begins[some, :most], table.ends[some, :most]
            parts.append(pooled(states, *places, table.lengths[some]))
        sentences, whole = (torch.cat(same) for same in zip(*parts, strict=True))
        back = torch.argsort(order)
        present = table.ends[rows, :most] > 0
        return PaperVectors(sentences[back], present, whole[back], table.marked[rows, :most])

    def terms(self, queries: PaperVectors, candidates: PaperVectors, *, plain: bool = False) -> Tensor:
        """Similarities (facets, terms, queries, candidates) of `vector_terms`; ``plain`` projects nothing."""
        facets = []
        for facet, matrix in enumerate(self.projections):
            sides = []
            for papers in (queries, candidates):
                there, marked = papers.present, papers.marked[..., facet]
                sentences, whole = papers.sentences[there], papers.whole
                if not plain:
                    sentences, whole = sentences @ matrix.T, whole @ matrix.T
                sides.append(ProjectedPapers.of(sentences, there.nonzero()[:, 0], marked[there], whole))
            facets.append(vector_terms(*sides))
        return torch.stack(facets)

    def scores(self, queries: PaperVectors, candidates: PaperVectors) -> Tensor:
        """Scores (queries, candidates, facets)."""
        return torch.einsum("ft,ftqc->qcf", self.weights, self.terms(queries, candidates))


class CocitationEncoder(TrainedEncoder):
    """A BERT-family encoder that is trained as a whole; ``unit`` scales vectors to length 1."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32, *, unit: bool = False) -> None:
        super().__init__(folder, dtype, whole=True)
        self.unit, self.max_tokens = unit, positions(self.bert)

    def forward(self, table: PaperTable) -> PaperVectors:
        """Vectors of papers, float32."""
        longest = table.ids.shape[1]
        length = min(-(-longest // LENGTH_MULTIPLE) * LENGTH_MULTIPLE, self.max_tokens)
        padded = table._replace(ids=F.pad(table.ids, (0, length - longest)))
        table = padded.to(next(self.parameters()).device)
        states = self.states(table.ids.long(), table.lengths)
        vectors = pooled(states, table.begins, table.ends, table.lengths)
        sentences, whole = (F.normalize(each, dim=-1) if self.unit else each for each in vectors)
        return PaperVectors(sentences, table.ends > 0, whole, table.marked)


def write_pretrained(model: Any, tokenizer: Path, folder: Path, export: Callable[[Path], T]) -> T:
    """Write a model of transformers, its tokenizer and, beside them, what ``export`` writes into a folder."""
    model.save_pretrained(folder)
    (folder / WEIGHTS).chmod(0o644)  # transformers makes it private
    shutil.copyfile(tokenizer, folder / TOKENIZER)
    exported = folder / "exported"
    metadata = export(exported)
    for file in exported.iterdir():
        file.replace(folder / file.name)
    exported.rmdir()
    return metadata


class StoredVectors:
    """Vectors of unit length: of sentences (those of paper i begin at ``starts[i]``) and of whole papers."""

    def __init__(self, sentences: Vectors, whole: Vectors, starts: NDArray[np.int64]) -> None:
        self.sentences, self.whole = (
            F.normalize(torch.tensor(each.astype(np.float32)), dim=-1) for each in (sentences, whole)
        )
        self.starts = torch.tensor(starts)

    def rows(self, papers: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of the papers' sentences, and for each the place of its paper among them."""
        counts = self.starts[papers + 1] - self.starts[papers]
        places = torch.repeat_interleave(torch.arange(len(papers)), counts)
        first = torch.cumsum(counts, 0) - counts
        return (self.starts[papers] - first)[places] + torch.arange(len(places)), places

    def projected(self, papers: Tensor, marked: Tensor, matrix: Tensor) -> "ProjectedPapers":
        """Papers projected by a matrix; of all stored sentences those of the facet are ``marked``."""
        rows, places = self.rows(papers)
        sentences, whole = self.sentences[rows] @ matrix.T, self.whole[papers] @ matrix.T
        return ProjectedPapers.of(sentences, places, marked[rows], whole)


class ProjectedPapers(NamedTuple):
    """Papers as a facet's projection gives them, all vectors of unit length."""

    sentences: Tensor  # (sentences, dimension)
    places: Tensor  # (sentences,) int64, of their papers
    marked: Tensor  # (sentences,) bool, those of the facet
    means: Tensor  # (papers, dimension) of these
    whole: Tensor  # (papers, dimension)

    @classmethod
    def of(cls, sentences: Tensor, places: Tensor, marked: Tensor, whole: Tensor) -> "ProjectedPapers":
        """Scale projected vectors to unit length, and add up those of the facet."""
        sentences, whole = F.normalize(sentences, dim=-1), F.normalize(whole, dim=-1)
        sums = torch.zeros_like(whole).index_add(0, places[marked], sentences[marked])
        return cls(sentences, places, marked, F.normalize(sums, dim=-1), whole)


def vector_terms(queries: ProjectedPapers, candidates: ProjectedPapers) -> Tensor:
    """The similarities (4, queries, candidates) of `qbe.search.projections.Space.terms`."""
    owners, counts = queries.places[queries.marked], (len(queries.whole), len(candidates.whole))
    cosines = queries.sentences[queries.marked] @ candidates.sentences.T
    best = best_within(cosines, candidates.places, counts[1])
    of_facet = best_within(cosines[:, candidates.marked], candidates.places[candidates.marked], counts[1])
    means = [mean_by_paper(each, owners, counts[0]) for each in (best, of_facet)]
    return torch.stack([*means, queries.whole @ candidates.whole.T, queries.means @ candidates.means.T])


def best_within(cosines: Tensor, places: Tensor, papers: int) -> Tensor:
    """The best cosine of each row (m, sentences) within each paper, (m, papers), by the sentences' papers."""
    lowest = cosines.new_full((len(cosines), papers), _LOWEST)
    return lowest.scatter_reduce(1, places.expand(len(cosines), -1), cosines, "amax")


def mean_by_paper(rows: Tensor, places: Tensor, papers: int) -> Tensor:
    """Means of the rows (n, columns) of each paper: (papers, columns)."""
    sums = rows.new_zeros(papers, rows.shape[1]).index_add(0, places, rows)
    return sums / torch.bincount(places, minlength=papers)[:, None]


class Standardization(NamedTuple):
    """The ``mean`` (F,) and the ``scale`` (F,), a standard deviation, of each of F features."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def of(cls, features: NDArray[np.float64]) -> "Standardization":
        """That of features (candidates, F), over those that are known (not NaN)."""
        return cls(np.nanmean(features, axis=0), np.maximum(np.nanstd(features, axis=0), 1e-6))

    def inputs(self, features: NDArray[np.float64]) -> Tensor:
        """Features (candidates, F) brought to mean 0 and deviation 1, float32; one that is NaN becomes 0."""
        return torch.tensor(np.nan_to_num((features - self.mean) / self.scale), dtype=torch.float32)


def as_array(parameter: Tensor) -> NDArray[np.float64]:
    """A copy of a parameter for a `Head`."""
    return parameter.detach().double().numpy().copy()
