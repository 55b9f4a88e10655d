"""Other libraries: exports of kernels, models of BoTorch, and a plug-in for each host."""
