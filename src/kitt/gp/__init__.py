"""What a kernel predicts: exact and sparse Gaussian processes."""
