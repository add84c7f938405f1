"""The model card of distilled facet rerankers."""

from __future__ import annotations

from qbe.train.reranker.card import describe as describe
