"""From sentences to facets: a small network on the encoder's own token states."""
