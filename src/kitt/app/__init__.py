"""What users see: the estimator, the command line, the report and the page."""
