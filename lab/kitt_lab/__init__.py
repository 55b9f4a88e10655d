"""Code that only research needs: simulated data, training, calibration, compared methods, the benchmark."""
