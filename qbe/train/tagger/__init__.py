"""The facet tagger: a head on the encoder's token states, learned from CSAbstruct."""
