"""Games whose agent is answered from a tape."""

import json
import sys
from pathlib import Path
from typing import Any

from assay.testing.model import ScriptedModel

AGENT = """\
import json, os, subprocess, sys, urllib.request
def ask(messages):
    body = {"model": "m", "messages": messages}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    asked = urllib.request.Request(url, json.dumps(body).encode())
    return json.load(urllib.request.urlopen(asked))["choices"][0]["message"]
messages = [{"role": "user", "content": sys.argv[-1]}]
for _ in range(2):
    said = ask(messages)
    seen = subprocess.run([os.environ["ARC_PLAY"], "act", said["content"].split()[-1]],
                          capture_output=True, text=True).stdout
    messages += [said, {"role": "user", "content": "Go on. " + seen}]
print(json.dumps({"type": "result", "result": said["content"]}))
"""


def test_a_game_is_recorded_and_replayed(assay: Any, arc: Any, tmp_path: Path) -> None:
    schema = json.loads(arc.player(tmp_path).read_text())
    (tmp_path / "agent.py").write_text(AGENT)
    schema["command"] = [str(Path(sys.executable).resolve()), "-IS", str(tmp_path / "agent.py")]
    (tmp_path / "player.json").write_text(json.dumps(schema))
    run = ("arc", "run", "player.json", "--games", "ky01", "--max-steps", "5")
    steps = [{"text": "I play ACTION4"}, {"text": "I play ACTION2"}]
    with ScriptedModel({"steps": steps, "toolless": "step"}) as model:
        done = assay(*run, "--record", "a.tape", env={"OPENAI_BASE_URL": f"{model.url}/v1"})
        assert done.code == 0, done
    env = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    done = assay(*run, "--replay", "a.tape", env=env)
    assert done.code == 0, done
    assert "Steps: 2 " in done.stdout
    assert "this checks the harness, not the agent" in done.stdout
    runs = [path.name for path in (tmp_path / ".arc-agi-benchmarks/runs").iterdir()]
    rows = [
        json.loads((tmp_path / f".arc-agi-benchmarks/runs/{one}/results.jsonl").read_text())
        for one in runs
    ]
    (replayed,) = [row for row in rows if "replay" in row]
    assert replayed["replay"]["hits"] == 2
    said = assay("arc", "compare", *(one[:8] for one in runs)).stdout
    assert "no verdict" in said
    assert "was replayed: this checks the harness, not the agent" in said
