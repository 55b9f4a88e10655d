"""Training of the network that says what each column does: random functions, labels, a corpus, epochs."""
