"""The local page and its HTTP API: `kitt serve`. Nothing here fits anything; worker processes run the pipeline."""
