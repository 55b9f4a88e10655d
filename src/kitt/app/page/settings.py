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
    token: str | None = None  # the secret that every request must bring
    max_connections: int = 200  # open at the same time; more are closed at once
    head_seconds: float = 10.0  # until the head of a request is there
    body_seconds: float = 120.0  # until its body is
    decoding_bytes: int = 600_000_000  # memory for unpacking and reading a compressed file
    decoding_seconds: float = 30.0
