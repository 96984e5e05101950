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
    demo.emit({"type": "result", "result": said, "session_id": "s"})
    raise SystemExit(0)
raise SystemExit(demo.main())
