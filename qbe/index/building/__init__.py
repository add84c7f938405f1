"""Building an index in one go: stages that are recorded, resumed and put in place together."""
