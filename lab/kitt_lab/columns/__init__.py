"""How the network that says what each column does is trained: random functions, labels by computation, a corpus, training."""
