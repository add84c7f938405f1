"""From a paper to vectors: one for each sentence, contextualized by title and abstract, one for the whole."""
