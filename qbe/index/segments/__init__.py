"""An index of several segments, read as one: which there are by a commit, and each side over all of them."""
