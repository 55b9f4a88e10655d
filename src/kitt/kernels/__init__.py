"""What a kernel is: the grammar of the 34 words, the priors, the formulas, and kernels with parameter values."""
