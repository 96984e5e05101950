"""Tapes of trials on a Ray cluster: what is recorded there comes back, and is replayed there."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.records.tape import Tape
from assay.testing.model import ScriptedModel

pytestmark = pytest.mark.filterwarnings("ignore")
AGENT = """\
import json, os, sys, urllib.request
body = {"model": "m", "messages": [{"role": "user", "content": sys.argv[1]}]}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
asked = urllib.request.Request(url, json.dumps(body).encode())
print(json.load(urllib.request.urlopen(asked))["choices"][0]["message"]["content"])
"""


def test_trials_on_other_nodes_are_recorded_and_replayed(
    assay: Callable[..., Any], ray_cluster: Any, tmp_path: Path
) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    rows = [{"id": f"p{n}", "input": f"Say {n}."} for n in range(2)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run(url: str, out: str, *words: str) -> list[dict[str, Any]]:
        done = assay(
            *("trials", "p.jsonl", "-k", 2, "-j", 2, "-o", out, *words),
            *("--simple", f"{sys.executable} -IS {tmp_path / 'agent.py'} {{}}"),
            *("--executor", "ray", "--address", ray_cluster.address),
            *("--workspace-dir", "ws", "--env", "OPENAI_BASE_URL"),
            env={"OPENAI_BASE_URL": f"{url}/v1"},
            timeout=120,
        )
        assert done.code == 0, done
        rows = [json.loads(line) for line in (tmp_path / out).read_text().splitlines()]
        return [trial for row in rows for trial in row["trials"]]

    script = {"steps": [{"text": "You said {{last_user}}"}], "toolless": "step"}
    with ScriptedModel(script) as model:
        recorded = run(model.url, "one.jsonl", "--record", "a.tape")
    assert sorted(trial["wire"]["lane"] for trial in recorded) == [1, 2, 3, 4]
    with Tape(tmp_path / "a.tape") as tape:
        asked = {(lane.prompt, lane.trial): lane.asked for lane in tape.lanes}
        assert asked == {(f"p{n}", k): [f"Say {n}."] for n in range(2) for k in (1, 2)}
        assert len([*tape.exchanges()]) == 4
    replayed = run("http://127.0.0.1:9", "two.jsonl", "--replay", "a.tape")
    assert [trial["output"] for trial in replayed] == [trial["output"] for trial in recorded]
    assert [trial["replay"]["hits"] for trial in replayed] == [1] * 4
