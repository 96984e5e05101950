"""What a Ray cluster adds to a trial, and how many trials of real agents fit on a machine.

usage: python -m benchmarks.cluster [--trials 40] [--agents FOLDER]
FOLDER is a node_modules folder with Claude Code, Codex, Gemini CLI and OpenCode; without it only
the cluster is measured. The agents are answered by the scripted model, so nothing waits for a
provider.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from assay.testing.model import ScriptedModel
from benchmarks.capture import write_prompts

LOOK_S = 0.05
CALL = {"tool": "shell", "command": "echo made > made.txt"}
SCRIPT = {"steps": [{"calls": [CALL]}, {"text": "It is made."}]}
PROGRAMS = {
    "claude": "@anthropic-ai/claude-code-linux-*/claude",
    "codex": "@openai/codex-linux-*/vendor/*/bin/codex",
    "gemini": ".bin/gemini",
    "opencode": "opencode-linux-*/bin/opencode",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--agents", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        print_overhead(Path(name), options.trials)
        if options.agents:
            print_agents(Path(name), options.agents)


def print_overhead(folder: Path, n: int) -> None:
    """Print wall time and CPU time of a trial of `true` here and on a cluster of this machine."""
    from ray.cluster_utils import Cluster

    prompts, few = (write_prompts(folder / f"{i}.jsonl", i) for i in (n + 1, 1))
    node = {"num_cpus": 8, "object_store_memory": 80 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    print("| where | s for one trial | ms for each more, -j 1 | -j 4 | CPU ms here | on the node |")
    print("|---|---|---|---|---|---|")
    for where in ((), ("--executor", "ray", "--address", cluster.address)):
        _capture(few, 4, where)  # the first workers of a node take seconds to start
        first_s, first_cpu_s = _capture(few, 1, where)
        with _CpuOfWorkers(cluster) as workers:
            one_by_one, cpu_s = _capture(prompts, 1, where)
        four, _ = _capture(prompts, 4, where)
        ms = [(one_by_one - first_s) * 1000 / n, (four - first_s) * 1000 / n]
        ms += [(cpu_s - first_cpu_s) * 1000 / n, workers.seconds * 1000 / n]
        name = "ray" if where else "local"
        print(f"| {name} | {first_s:.1f} | {' | '.join(f'{x:.0f}' for x in ms)} |", flush=True)
    cluster.shutdown()


def _capture(prompts: Path, jobs: int, where: tuple[str, ...]) -> tuple[float, float]:
    """Return wall time and CPU time of a run; the agents of a local one are part of the latter."""
    program = str(Path(sys.executable).parent / "assay")
    out = tempfile.mkdtemp(dir=prompts.parent)
    words = [program, "capture", "-q", str(prompts), "--simple", "true {}", "-j", str(jobs)]
    started_s = time.perf_counter()
    process = subprocess.Popen([*words, "-o", f"{out}/out.jsonl", "--isolate", *where])
    _, process.returncode, usage = os.wait4(process.pid, 0)
    if process.returncode:
        sys.exit("assay failed")
    return time.perf_counter() - started_s, usage.ru_utime + usage.ru_stime


class _CpuOfWorkers:
    """Adds up the CPU time of the node's workers, of the process that each of them keeps for its
    trials, and of what has ended below these. All of them end with the run."""

    def __init__(self, cluster: Any) -> None:
        self._raylet = psutil.Process(cluster.head_node.all_processes["raylet"][0].process.pid)
        self._seen: dict[int, tuple[float, float]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> "_CpuOfWorkers":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def seconds(self) -> float:
        return sum(last - first for first, last in self._seen.values())

    def _look(self) -> None:
        while not self._stop.wait(LOOK_S):
            for worker in self._raylet.children():
                with contextlib.suppress(psutil.Error):
                    for process in (worker, *worker.children()):
                        now = sum(process.cpu_times()[:4])
                        self._seen[process.pid] = self._seen.get(process.pid, (now, now))[0], now


def print_agents(folder: Path, modules: Path) -> None:
    """Print CPU time and memory of one trial of each agent: two model calls and a shell command."""
    print("\n| agent | CPU s a trial | peak MB | s on this machine |")
    print("|---|---|---|---|")
    for agent, pattern in PROGRAMS.items():
        program = next(iter(sorted(modules.glob(pattern))), None)
        if program is not None:
            cpu_s, peak_mb, seconds = _measured(folder, agent, program)
            print(f"| {agent} | {cpu_s:.1f} | {peak_mb:.0f} | {seconds:.1f} |", flush=True)


def _measured(folder: Path, agent: str, program: Path) -> tuple[float, float, float]:
    prompts = write_prompts(folder / f"{agent}.jsonl", 1)
    with ScriptedModel(SCRIPT) as model:
        variables, words = _settings(agent, model.url)
        assay = str(Path(sys.executable).parent / "assay")
        command = [assay, "capture", "-q", str(prompts), "-s", f"{agent}:{program}", "--isolate"]
        command += [*words, "-o", str(folder / f"{agent}-out.jsonl"), "-t", "120000"]
        command += [word for name in variables for word in ("--env", name)]
        started_s = time.perf_counter()
        process = subprocess.Popen(command, env=os.environ | variables)
        peak = [0.0]
        watcher = threading.Thread(target=_watch, args=(process.pid, peak))
        watcher.start()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        watcher.join()
    row = json.loads((folder / f"{agent}-out.jsonl").read_text())
    if row["output"] != "It is made.":
        sys.exit(f"{agent}: {row.get('failure')}")
    return usage.ru_utime + usage.ru_stime, peak[0], time.perf_counter() - started_s


def _watch(pid: int, peak: list[float]) -> None:
    """Keep the most memory that the agent's processes had together, shared pages counted once."""
    try:
        root = psutil.Process(pid)
        while root.is_running() and root.status() != psutil.STATUS_ZOMBIE:
            total = 0
            for process in root.children(recursive=True):
                try:
                    total += process.memory_full_info().pss
                except psutil.Error:
                    continue
            peak[0] = max(peak[0], total / 2**20)
            time.sleep(LOOK_S)
    except psutil.Error:
        return


def _settings(agent: str, url: str) -> tuple[dict[str, str], list[str]]:
    """Return the variables and arguments that lead an agent to the scripted model."""
    if agent == "claude":
        variables = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none"}
        return variables, ["--model", "claude-sonnet-4-5"]
    if agent == "gemini":
        variables = {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": url}
        return variables, ["--model", "gemini-2.5-pro"]
    if agent == "codex":
        provider = {"name": "mock", "base_url": f"{url}/v1", "wire_api": "responses"}
        settings = ['model_provider="mock"', 'model_providers.mock.env_key="MOCK_API_KEY"']
        settings += [f'model_providers.mock.{key}="{value}"' for key, value in provider.items()]
        words = [f"--agent-arg={word}" for each in settings for word in ("-c", each)]
        return {"MOCK_API_KEY": "none"}, ["--model", "gpt-5.5", *words]
    options = {"baseURL": f"{url}/v1", "apiKey": "{env:MOCK_API_KEY}"}
    named = {"npm": "@ai-sdk/openai-compatible", "name": "Mock", "options": options}
    config = {"provider": {"mock": {**named, "models": {"mock-model": {"name": "Mock"}}}}}
    variables = {"OPENCODE_CONFIG_CONTENT": json.dumps(config), "MOCK_API_KEY": "none"}
    return variables, ["--model", "mock/mock-model"]


if __name__ == "__main__":
    main()
