"""The facet encoder: what the rerankers' training made of the sentence encoder."""
