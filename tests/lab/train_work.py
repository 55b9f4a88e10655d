"""Small training runs for the tests of training."""

from dataclasses import replace

from kitt.network.network import StemConfig
from kitt_lab.train import recipe

SMOKE = replace(recipe("smoke"), log_seconds=1e9, eval_seconds=1e9)  # nothing is written because of the clock
EVERY_STEP = replace(SMOKE, save_seconds=0)
STEM = StemConfig(width=8, heads=2, blocks=1, probe_blocks=1, decoder_width=8, decoder_heads=2, decoder_blocks=1)
