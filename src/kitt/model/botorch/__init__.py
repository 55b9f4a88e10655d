"""A model as a BoTorch model: the whole mixture, or one kernel as a `SingleTaskGP`."""
