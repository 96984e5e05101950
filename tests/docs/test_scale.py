"""docs/scale.md: its job file has the fields of a RayJob, and its commands are ours."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay.cli.group import cli

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
POD = {"spec": {"containers": [{"name": str, "image": str, "env": list, "resources": dict,
                                "volumeMounts": list}],
                "volumes": list}}  # fmt: skip
GROUP: dict[str, Any] = {"rayStartParams": {None: str}, "template": POD}
WORKERS = {**GROUP, "groupName": str, "replicas": int, "minReplicas": int, "maxReplicas": int}
RAY_JOB = {
    "apiVersion": str,
    "kind": str,
    "metadata": {"name": str},
    "spec": {
        "entrypoint": str,
        "submissionMode": str,
        "backoffLimit": int,
        "activeDeadlineSeconds": int,
        "shutdownAfterJobFinishes": bool,
        "ttlSecondsAfterFinished": int,
        "rayClusterSpec": {
            "rayVersion": str,
            "headGroupSpec": GROUP,
            "workerGroupSpecs": [WORKERS],
        },
    },
}
"""Fields of KubeRay's v1 API, as far as evaluations need them, with their types."""
REQUIRED = {
    "spec.rayClusterSpec": {"headGroupSpec"},
    "spec.rayClusterSpec.headGroupSpec": {"rayStartParams", "template"},
    "spec.rayClusterSpec.workerGroupSpecs.0": {
        *("groupName", "minReplicas", "maxReplicas", "rayStartParams", "template"),
    },
}


def job() -> dict[str, Any]:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def problems(value: Any, kind: Any, where: str = "") -> list[str]:
    """Say what does not fit; a key of None stands for any name."""
    if isinstance(kind, type):
        return [] if type(value) is kind else [f"{where}: {value!r} is not {kind.__name__}"]
    if isinstance(kind, list):
        pairs = enumerate(value)
        return [said for n, each in pairs for said in problems(each, kind[0], f"{where}.{n}")]
    found = [f"{where}: {name} is missing" for name in REQUIRED.get(where[1:], set()) - set(value)]
    for name, each in value.items():
        if name not in kind and None not in kind:
            found.append(f"{where}: there is no field {name}")
        else:
            found += problems(each, kind.get(name, kind.get(None)), f"{where}.{name}")
    return found


def test_the_job_has_the_fields_of_a_ray_job() -> None:
    assert (job()["apiVersion"], job()["kind"]) == ("ray.io/v1", "RayJob")
    assert problems(job(), RAY_JOB) == []
    assert job()["spec"]["submissionMode"] in ("K8sJobMode", "HTTPMode", "InteractiveMode")


@pytest.mark.parametrize("path", ["spec.entryPoint", "spec.rayClusterSpec.workers"])
def test_a_wrong_field_is_noticed(path: str) -> None:
    wrong = job()
    *parents, name = path.split(".")
    place = wrong
    for parent in parents:
        place = place[parent]
    place[name] = "x"
    assert problems(wrong, RAY_JOB)


def test_the_version_of_ray_is_the_pinned_one() -> None:
    pins = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    version = job()["spec"]["rayClusterSpec"]["rayVersion"]
    assert f"ray>={version.rpartition('.')[0]}," in pins


def test_the_commands_have_these_options() -> None:
    shell = "".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
    lines = [line for line in shell.splitlines() if line.startswith("assay ")]
    assert len(lines) == 2
    for line in [*lines, job()["spec"]["entrypoint"]]:
        _, name, *words = shlex.split(line)
        command = cli.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= known
