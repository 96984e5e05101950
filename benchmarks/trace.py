"""Times one trial of 337,000 steps in a real browser: from the report and from the viewer.

    python -m benchmarks.trace [STEPS] [FOLDER]     337,000 steps, in /tmp by default

Prints one JSON object: until the trial is drawn, the median frame while the reader scrolls by 300
pixels a frame and drags the scroll bar through all of it, and a jump to the step in the middle.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.viewer.browser import chromium

ASSAY = [sys.executable, "-m", "assay"]
SCROLL = """const done = arguments[arguments.length - 1];
    const frames = [];
    let last = performance.now(), n = 0;
    scrollTo(0, 0);
    const next = (now) => {
      frames.push(now - last); last = now; n += 1;
      if (n > 60) {
        const sorted = frames.slice(2).sort((a, b) => a - b);
        done([sorted[Math.floor(sorted.length / 2)], document.querySelectorAll('.step').length]);
        return;
      }
      scrollTo(0, arguments[0] * n); requestAnimationFrame(next);
    };
    requestAnimationFrame(next)"""
OPEN = """const began = performance.now(); const done = arguments[arguments.length - 1];
    location.hash = arguments[0];
    const look = () => {
      if (document.querySelector(arguments[1])) done(performance.now() - began);
      else requestAnimationFrame(look);
    };
    look()"""


def main() -> None:
    n_steps = int(sys.argv[1]) if len(sys.argv) > 1 else 337_000
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else Path(tempfile.gettempdir(), "assay-bench"))
    folder.mkdir(parents=True, exist_ok=True)
    file = _make(folder / f"trace-{n_steps}.jsonl", n_steps)
    page = folder / "trace.html"
    began_s = time.monotonic()
    subprocess.run([*ASSAY, "report", file, "-o", page, "--overwrite", "-q"], check=True)
    told: dict[str, Any] = {
        "steps": n_steps,
        "input MB": round(file.stat().st_size / 1e6, 1),
        "report s": round(time.monotonic() - began_s, 2),
        "page MB": round(page.stat().st_size / 1e6, 2),
    }
    view = subprocess.Popen([*ASSAY, "view", str(file)], stdout=subprocess.PIPE, text=True)
    try:
        assert view.stdout is not None
        told["viewer"] = _look(view.stdout.readline().strip(), n_steps, file.stem)
    finally:
        view.terminate()
        view.wait()
    told["report"] = _look(f"file://{page}", n_steps, file.stem)
    print(json.dumps(told, indent=2))


def _look(address: str, n_steps: int, run: str) -> dict[str, Any]:
    """Open it three times in a new browser and give the best of each: others use the machine."""
    seen = [_measure(address, n_steps, run) for _ in range(3)]
    return {name: min(one[name] for one in seen) for name in seen[0]}


def _measure(address: str, n_steps: int, run: str) -> dict[str, int]:
    trial = f"#/run/{run}/prompt/long/trial/1"
    with chromium() as browser:
        browser.draw(address)
        opened = browser.run_async(OPEN, trial, ".trial .step")
        reading, _ = browser.run_async(SCROLL, 300)
        height = browser.run("return document.documentElement.scrollHeight")
        dragging, drawn = browser.run_async(SCROLL, height / 60)
        jumped = browser.run_async(
            OPEN, f"{trial}/step/{n_steps // 2}", f"#step-{n_steps // 2 - 1}.current"
        )
        return {
            "trial opens ms": round(opened),
            "frame while scrolling ms": round(reading),
            "frame while dragging the scroll bar ms": round(dragging),
            "steps drawn then": drawn,
            "jump to the middle ms": round(jumped),
        }


def _make(path: Path, n_steps: int) -> Path:
    if path.exists():
        return path
    row = {
        "id": "long",
        "input": "Work for a long time.",
        "output": "done",
        "trajectory": list(_steps(n_steps)),
        "metadata": {},
        "timing": {"start": 0, "end": n_steps * 20, "total": n_steps * 20},
        "toolErrors": True,
        "score": {"pass": False, "score": 0.0, "reasoning": "not done"},
    }
    other = {**row, "id": "short", "trajectory": row["trajectory"][:20]}
    path.write_text(json.dumps(other) + "\n" + json.dumps(row) + "\n")
    return path


def _steps(n_steps: int) -> Iterator[dict[str, Any]]:
    for n in range(n_steps):
        at = {"timestamp": n * 20}
        if n % 3 == 0:
            yield {"type": "thought", "content": f"I look at part {n} next.", **at}
        else:
            failed = n % 5000 == 1
            yield {
                "type": "tool_call",
                "name": "Bash",
                "status": "failed" if failed else "completed",
                "duration": 15,
                "callId": f"c{n}",
                "input": {"command": f"sed -n {n},+20p src/part_{n % 97}.py"},
                "output": f"def part_{n}():\n    return {n}\n",
                "exitCode": int(failed),
                **at,
            }


if __name__ == "__main__":
    main()
