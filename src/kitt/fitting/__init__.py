"""The parameters of one kernel (paper, Inference, step 5)."""
