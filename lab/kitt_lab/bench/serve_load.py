"""Load on the local page: concurrent calls of /api/suggest on loopback; errors, percentiles of time, and memory.

python -m kitt_lab.bench.serve_load --calls 200 --concurrent 50
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import psutil


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def table(rows: int, columns: int) -> str:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (rows, columns))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=rows)
    names = ",".join([*(f"x{i}" for i in range(columns)), "y"])
    return names + "\n" + "\n".join(",".join(f"{v:.4f}" for v in row) for row in np.column_stack([X, y]))


def wait_for(url: str) -> None:
    for _ in range(1200):
        try:
            httpx.get(url)
            return
        except httpx.TransportError:
            time.sleep(0.1)
    raise SystemExit(f"no answer at {url}")


def rounds(url: str, memory: psutil.Process, options: argparse.Namespace) -> int:
    """Rounds of concurrent calls, a line for each; the number of errors."""
    content, errors = table(options.rows, options.columns), 0

    def one(_: int) -> tuple[float, bool]:
        began = time.perf_counter()
        answer = httpx.post(f"{url}/api/suggest", files={"file": ("t.csv", content)}, timeout=600)
        return time.perf_counter() - began, answer.status_code == 200

    for number in range(max(1, options.calls // options.concurrent)):
        began = time.perf_counter()
        with ThreadPoolExecutor(options.concurrent) as pool:
            seconds, good = zip(*pool.map(one, range(options.concurrent)), strict=True)
        spent, failed = time.perf_counter() - began, good.count(False)
        errors += failed
        p50, p95 = np.percentile(seconds, [50, 95])
        print(
            f"round {number}: {len(good)} calls at once, {failed} errors, p50 {p50:.2f} s, p95 {p95:.2f} s, "
            f"{len(good) / spent:.1f} calls/s, memory {memory.memory_info().rss / 2**20:.0f} MB",
            flush=True,
        )
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--concurrent", type=int, default=50)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--columns", type=int, default=4)
    options = parser.parse_args()
    port = free_port()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {options.rows} rows, {options.columns} inputs")
    server = subprocess.Popen([sys.executable, "-m", "kitt.app.cli", "serve", "--port", str(port)])
    try:
        wait_for(f"http://127.0.0.1:{port}/api/limits")
        errors = rounds(f"http://127.0.0.1:{port}", psutil.Process(server.pid), options)
    finally:
        server.terminate()
        server.wait()
    raise SystemExit(min(errors, 1))


if __name__ == "__main__":
    main()
