"""The published numbers from one commit: `make results`, or `python -m kitt_lab.bench.results`.

The steps run one after the other. Those of `kitt bench` write JSON lines to the folder `--out` and resume where they were,
so that this may be stopped at any time; what a step prints is kept there too, as text, and a step that ended with the
present commit is not run again, unless files differ from it. `--only` runs some of the steps. With `--publish`, the new
lines take the place of those in lab/results that measure the same, if all new ones are of the present commit, and the
tables that docs/notebook/tables.py makes of them are written again, each with the commits of its lines. Published lines
are short: numbers have eight digits, and fields that no table reads are left out. What steps without lines printed goes to
lab/results/printed, with its command and commit; tables that were typed from it must be typed again.
`--list` shows the commands, with about the hours that each takes on one core of a laptop.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kitt_lab.bench.runner import Line, identity, read, versions

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "lab" / "results"
DIGITS = 8  # of a published number
UNREAD = frozenset(  # fields of a result that no table or figure reads
    ("details", "fit_cpu_seconds", "predict_cpu_seconds", "random_state", "gradient")
)
QUICK = "rbf-ard,rbf-ard-botorch,matern52-ard,matern52-ard-botorch,sklearn-gp,gradient-boosting,ahgp,deep-kernel,\
spectral-mixture,kitt"
SLOW = "tree-search:seconds=900,nkn:starts=3"  # over five minutes on some of the UCI tables


@dataclass(frozen=True)
class Step:
    """One command; {data} is the folder of the tables, {out} that of the lines, {python} the interpreter."""

    name: str  # of the text that it prints, and of its lines
    hours: float
    command: str
    lines: str = ""  # file of JSON lines in {out}, if it writes one; several steps may write one file

    def arguments(self, places: Mapping[str, str]) -> list[str]:
        start = "{python} -m kitt.app.cli " if self.command.startswith(("bench ", "model")) else ""
        end = f" --out {{out}}/{self.lines}.jsonl" if self.lines else ""
        return shlex.split((start + self.command + end).format_map(places))


STEPS: tuple[Step, ...] = (  # the pages of docs/notebook and the README
    Step(
        "atlas",
        0.5,
        "bench atlas --data {data}/atlas --rows 200 --methods botorch,kitt,kitt:effort=quick,kitt-random,kitt-matern32,"
        "kitt-rbf,kitt-one,best-bic,gradient-boosting-noise,random-forest",
        "atlas-200",
    ),
    Step(
        "atlas-fresh",
        0.2,
        "bench atlas --data {data}/atlas --rows 200 --splits 6 --methods botorch,kitt,kitt-random",
        "atlas-200-fresh",
    ),
    Step(
        "atlas-1000",
        0.4,
        "bench atlas --data {data}/atlas --rows 1000 --limit 25 "
        "--methods kitt,kitt:effort=quick,kitt:captions=once,kitt-random",
        "atlas-1000",
    ),
    Step(
        "atlas-1000-botorch",
        0.1,
        "bench atlas --data {data}/atlas --rows 1000 --limit 4 --methods botorch",
        "atlas-1000",
    ),
    Step("evidence", 0.5, "bench evidence --data {data}", "evidence"),
    Step("evidence-180", 0.0, "bench evidence --data {data} --least-rows 180", "evidence"),
    Step("weights", 0.1, "{python} -m kitt_lab.bench.weights --data {data}/atlas"),
    Step("starts", 0.1, "bench starts --data {data} --tables 24", "starts"),
    Step("claims", 1.3, "bench claims --first 600 --count 200", "claims"),
    Step("statements", 1.5, "bench statements --data {data}/atlas --count 200", "statements"),
    Step("columns", 0.1, "bench columns", "columns"),
    *(
        Step(
            f"simulators-{rows}",
            0.1,
            f"bench simulators --data {{data}}/simulators --rows {rows} --splits 2 "
            "--methods kitt,kitt:effort=quick,botorch,sklearn-rbf",
            "simulators",
        )
        for rows in (15, 30, 100)
    ),
    Step("calibration", 0.2, "bench calibration --batches 100 --tables {data}/atlas/table", "calibration"),
    Step("calibration-simulated", 0.1, "bench calibration --batches 60", "calibration-simulated"),
    Step("capture", 0.4, "bench capture --data {data}/atlas --rows 200", "capture"),
    Step("regret", 0.2, "bench regret --data {data} --rows 200 --splits 3-5", "regret"),
    Step("regret-tuned-on", 0.2, "bench regret --data {data} --rows 200 --splits 0-2", "regret"),
    Step("hindsight", 0.1, "bench hindsight {out}/capture.jsonl --data {data}/atlas"),
    Step(
        "series", 0.1, "bench atlas --data {data}/atlas --kind series --methods seasonal-naive,kitt-forecast", "series"
    ),
    Step("series-rivals", 0.2, "lab/kitt_lab/bench/rivals/run.sh {data}/atlas {out}/series.jsonl"),
    Step("series-kinds", 0.1, "{python} -m kitt_lab.bench.forecasts kinds --count 50 --seed 1"),
    Step("series-speed", 0.1, "{python} -m kitt_lab.bench.forecasts speed"),
    Step("many-series", 0.1, "{python} -m kitt_lab.bench.many_series --count 60"),
    Step("bo", 1.2, "bench bo --seeds 10", "bo"),
    Step("bo-step", 0.1, "{python} -m kitt_lab.bench.optimisation_step"),
    Step("network", 0.1, "model"),
    Step("noise", 0.1, "{python} -m kitt_lab.bench.noise"),
    Step("noise-77", 0.1, "{python} -m kitt_lab.bench.noise --seed 77"),
    Step("naming", 0.1, "{python} -m kitt_lab.bench.naming"),
    Step(
        "recovery",
        0.1,
        "bench recovery --kinds words --priors paper --sizes 400,800 --dimensions 4 --readings quick,careful,all "
        "--repeats 1",
        "recovery",
    ),
    Step("uci", 1.0, f"bench uci --data {{data}} --splits 3-9 --methods {QUICK}", "uci"),
    Step(
        "uci-thorough",
        0.3,
        "bench uci --data {data} --splits 3-5 --tables boston,concrete,energy,yacht --methods kitt:effort=thorough",
        "uci",
    ),
    Step("uci-slow", 4.0, f"bench uci --data {{data}} --splits 3-5 --methods {SLOW}", "uci"),
    Step("latency", 0.1, "bench latency --data {data} --repeats 5", "latency"),
    Step("ablation", 0.2, "{python} -m kitt_lab.bench.ablation --seconds 100", "ablation"),
    Step("realism", 0.1, "bench realism --data {data}/atlas"),
    Step("losses", 1.5, "bench losses --data {data}/atlas --first 30000 --count 1233 --out {out}/losses"),
    Step(
        "losses-large",
        1.0,
        "bench losses --data {data}/atlas --first 40000 --count 748 --least-rows 160 --out {out}/losses",
    ),
    Step("advice", 0.2, "bench advice {out}/losses --data {data}/atlas"),
    Step("likelihood", 0.1, "{python} -m kitt_lab.bench.likelihood --repeats 5"),
    Step("large-table", 0.1, "{python} -m kitt_lab.bench.large_table --rows 50000 --columns 6 --without-svgp"),
    Step("large-table-3000", 0.1, "{python} -m kitt_lab.bench.large_table --rows 3000 --columns 6 --without-svgp"),
    Step(
        "large-table-deadline",
        0.1,
        "{python} -m kitt_lab.bench.large_table --rows 1000000 --columns 6 --without-svgp --deadline 30",
    ),
)


def run(step: Step, arguments: list[str], out: Path) -> int:
    """Run a step in the root of the repository, with what it prints both here and in a file."""
    folders = (str(ROOT / "src"), str(ROOT / "lab"), os.environ.get("PYTHONPATH"))
    path = os.pathsep.join(folder for folder in folders if folder)
    environment = os.environ | {"PYTHONPATH": path, "PYTHON": sys.executable}
    process = subprocess.Popen(arguments, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with (out / f"{step.name}.txt").open("w", encoding="utf-8") as file:
        for line in process.stdout:
            print(line, end="", flush=True)
            file.write(line)
    return process.wait()


def publish(out: Path, commit: str, steps: Sequence[Step]) -> None:
    """Put the lines of these steps, and what those without lines printed, into lab/results, and write the tables again."""
    names = sorted({step.lines for step in steps if step.lines and (out / f"{step.lines}.jsonl").exists()})
    new = {name: read(out / f"{name}.jsonl") for name in names}
    if not is_known(commit):
        sys.exit(
            "files differ from the last commit, or there is none: commit them, run the steps again, and publish then"
        )
    commits = {name: {line.get("versions", {}).get("commit") or "unknown" for line in new[name]} for name in names}
    if mixed := {name: theirs - {commit} for name, theirs in commits.items() if theirs - {commit}}:
        told = "; ".join(f"{name} has lines of {', '.join(sorted(others))}" for name, others in mixed.items())
        sys.exit(f"not all lines are of {commit}: {told}. Move them away and run the steps again, and publish then")
    for name in names:
        path = RESULTS / f"{name}.jsonl"
        lines = merged(read(path), new[name])
        print(f"{name}: {len(new[name])} new lines, {len(lines) - len(new[name])} earlier ones stay")
        path.write_text("".join(f"{shortened(line)}\n" for line in lines), encoding="utf-8")
    for step in steps:
        if not step.lines and (text := printed(out, step, commit)):
            (RESULTS / "printed" / f"{step.name}.txt").write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, ROOT / "docs" / "notebook" / "tables.py"], check=True)


def printed(out: Path, step: Step, commit: str) -> str:
    """What a step printed, below its command and commit; nothing if it has not ended with this commit."""
    if not has_ended(out, step, commit):
        return ""
    text = (out / f"{step.name}.txt").read_text(encoding="utf-8")
    command = shlex.join(step.arguments({"data": "DIR", "out": "OUT", "python": "python"}))
    return f"$ {command}\n# commit {commit}\n\n{text.strip()}\n" if text.strip() else ""


def stamp(out: Path, step: Step) -> Path:
    """The file with the commit with which a step ran to its end."""
    return out / f"{step.name}.commit"


def has_ended(out: Path, step: Step, commit: str) -> bool:
    """Whether a step ran to its end with this commit; what differs from a commit may differ again."""
    ended = stamp(out, step)
    return is_known(commit) and ended.exists() and ended.read_text(encoding="utf-8") == commit


def is_known(commit: str) -> bool:
    return bool(commit) and not commit.endswith("-dirty")


def merged(old: Iterable[Line], new: Iterable[Line]) -> list[Line]:
    """Lines of both, in the order of the old ones; of two that measure the same, the new one, unless it is a failure."""
    lines = {_measured(line): line for line in old}
    lines |= {key: line for line in new if (key := _measured(line)) not in lines or line.get("status", "ok") == "ok"}
    return list(lines.values())


def shortened(line: Line) -> str:
    """A line as it is published: what a table or a reader needs of it, in numbers of eight digits."""
    short: Line = {name: _rounded(line[name]) for name in ("status", "error", "cpu_seconds") if name in line}
    if "result" in line:
        short["result"] = {name: _rounded(value) for name, value in line["result"].items() if name not in UNREAD}
    commit = line.get("versions", {}).get("commit", "")
    return json.dumps({"key": line["key"], **short, "versions": {"commit": commit}}, separators=(",", ":"))


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _measured(line: Line) -> str:
    """What a line measures: its key, without the state of the network."""
    return identity({name: value for name, value in line["key"].items() if name != "network"})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder with uci/ and atlas/"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "results")
    parser.add_argument("--list", action="store_true", help="show the commands and their hours, and run nothing")
    parser.add_argument("--only", nargs="+", metavar="STEP", help="run these steps only, by their names")
    parser.add_argument(
        "--publish", action="store_true", help="replace the published lines, and write their tables again"
    )
    asked = parser.parse_args()
    out = asked.out.resolve()
    places = {"data": str(asked.data.resolve()), "out": str(out), "python": sys.executable}
    steps, commit = STEPS, versions()["commit"]
    if unknown := sorted(set(asked.only or ()) - {step.name for step in steps}):
        parser.error(f"no step is called {', '.join(unknown)}; the steps are {', '.join(step.name for step in steps)}")
    steps = tuple(step for step in steps if not asked.only or step.name in asked.only)
    print(f"{len(steps)} steps, about {sum(step.hours for step in steps):.1f} hours on one core in all", flush=True)
    for number, step in enumerate(steps, 1):
        arguments = step.arguments(places)
        print(f"[{number}/{len(steps)}] {step.name}, about {step.hours:g} h: {shlex.join(arguments)}", flush=True)
        if asked.list:
            continue
        out.mkdir(parents=True, exist_ok=True)
        if has_ended(out, step, commit):
            print("    has ended already", flush=True)
            continue
        stamp(out, step).unlink(missing_ok=True)  # what it prints takes the place of what it printed
        began = time.monotonic()
        if code := run(step, arguments, out):
            print(f"this step ended with {code}; run the command again to resume", file=sys.stderr)
            return code
        if is_known(commit):
            stamp(out, step).write_text(commit, encoding="utf-8")
        print(f"    {(time.monotonic() - began) / 3600:.2f} h", flush=True)
    if asked.publish and not asked.list:
        publish(out, commit, steps)
    return 0


if __name__ == "__main__":
    sys.exit(main())
