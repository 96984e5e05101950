"""The demo agent that reads skills, and that also writes descriptions and cases when asked to."""

import os
import sys
from pathlib import Path

sys.path.insert(0, os.environ["ASSAY_DEMO_FOLDER"])
import agent as demo

prompt = sys.argv[sys.argv.index("-p") + 1]
answers = Path(os.environ["ASSAY_TEST_ANSWERS"])
if "A skill is a folder" in prompt:
    (answers / "asked.txt").open("a").write(prompt + "\n=====\n")
    said = (answers / "answer.txt").read_text()
    price = answers / "price.txt"
    cost = {"total_cost_usd": float(price.read_text())} if price.exists() else {}
    demo.emit({"type": "result", "result": said, "session_id": "s", **cost})
    raise SystemExit(0)
if trial_usd := os.environ.get("ASSAY_TEST_TRIAL_USD"):
    print_event = demo.emit

    def emit(event: dict[str, object]) -> None:
        """Say what the trial costs before anything can end it."""
        more = {"total_cost_usd": float(trial_usd)} if event["type"] == "result" else {}
        print_event({**event, **more})

    demo.emit = emit
raise SystemExit(demo.main())
