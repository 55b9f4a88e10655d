"""All settings of the server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    host: str = "127.0.0.1"
    port: int = 8765
    network: str = "default"  # its checkpoint
    jobs: int = 1  # fits that run at the same time
    max_bytes: int = 20_000_000  # largest size of a request
    max_rows: int = 20_000
    max_columns: int = 1000
    max_queue: int = 20  # largest number of waiting jobs
    max_deadline: float = 3600.0  # seconds for the fits of a job
    abandon_after: float = 60.0  # seconds without a request, after which a waiting or running job stops
    expire_after: float = 1800.0  # seconds after which a finished job is forgotten
