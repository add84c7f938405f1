"""qbe: find papers like this one, for its problem, its method or its findings."""
