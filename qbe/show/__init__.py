"""Papers of an index, each as a whole."""
