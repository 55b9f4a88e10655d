"""Which kernels to try (paper, Inference, steps 1 to 4): statistics of a table, the network, its checkpoint, captions."""
