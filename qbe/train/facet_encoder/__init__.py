"""The facet encoder: a sentence encoder out of the weights of trained facet rerankers."""
