"""The configuration of docs/many-machines.md, read by the packages that it is for: dask-jobqueue, dask-kubernetes and Ray.

Runs in an environment of its own, `make clusters-check`. Nothing is submitted to Slurm or Kubernetes.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import dask
import dask_kubernetes
import yaml
from dask_jobqueue import SLURMCluster
from jsonschema import Draft202012Validator

PAGE = Path(__file__).parents[2] / "docs" / "many-machines.md"


def blocks(heading: str, language: str) -> list[str]:
    """The blocks of code in a section of the page."""
    section = PAGE.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    found = re.findall(r"^```(\w*)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    return [text for kind, text in found if kind == language]


def check_slurm() -> None:
    """The script that would be given to sbatch has every setting of the page."""
    settings = yaml.safe_load(blocks("Slurm", "yaml")[0])
    dask.config.update(dask.config.config, settings)
    with SLURMCluster(scheduler_options={"dashboard_address": None}) as cluster:
        script = cluster.job_script()
    wanted = settings["jobqueue"]["slurm"]
    lines = wanted["job-script-prologue"]
    expected = [
        "#SBATCH -t 02:00:00",
        "#SBATCH --cpus-per-task=8",
        "--nthreads 1",
        "--nworkers 8",
        "--lifetime 110m",
        *lines,
    ]
    missing = [text for text in expected if text not in script]
    assert not missing, f"{missing} is not in\n{script}"
    assert dask.config.get("distributed.scheduler.allowed-failures") == 0
    ast.parse(blocks("Slurm", "")[0])
    print("Slurm: the job script has every setting")


def check_kubernetes() -> None:
    """The resource conforms to the schema of the operator, which knows every field in it."""
    resource = yaml.safe_load(blocks("Kubernetes", "yaml")[0])
    folder = Path(dask_kubernetes.__file__).parent / "operator/deployment/helm/dask-kubernetes-operator/crds"
    definition: Any = yaml.safe_load((folder / "daskcluster.yaml").read_text(encoding="utf-8"))
    version = next(v for v in definition["spec"]["versions"] if resource["apiVersion"].endswith("/" + v["name"]))
    schema = version["schema"]["openAPIV3Schema"]
    Draft202012Validator(closed(schema)).validate(resource["spec"] and {"spec": resource["spec"]})
    assert resource["kind"] == definition["spec"]["names"]["kind"]
    print("Kubernetes: the resource conforms to the schema of the operator")


def closed(schema: Any) -> Any:
    """A schema in which an object has only the fields that it names, as the server of Kubernetes drops others."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    is_open = "x-kubernetes-preserve-unknown-fields" in schema or "additionalProperties" in schema
    return (
        {**inner, "additionalProperties": False}
        if isinstance(schema.get("properties"), dict) and not is_open
        else inner
    )


def check_ray() -> None:
    """Ray's scheduler runs a graph of dask, with a function of the standard library in the place of a forecast."""
    import ray
    from ray.util.dask import ray_dask_get

    ast.parse(blocks("Ray", "")[0])
    ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR")
    try:
        made = dask.compute(*(dask.delayed(max)(values) for values in ([1, 2], [5, 3])), scheduler=ray_dask_get)
    finally:
        ray.shutdown()
    assert made == (2, 5)
    print("Ray: its scheduler ran a graph")


if __name__ == "__main__":
    for check in (check_slurm, check_kubernetes, check_ray):
        check()
