"""Several fitted kernels as one model (paper, Inference, step 6), and the file of it."""
