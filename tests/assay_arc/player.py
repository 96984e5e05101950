"""An agent for tests: it wins the first level of ky01, is stuck on the second, and says why.

An argument that begins with "# cheat" is a program that it runs at its end. The last is the prompt.
"""

import json
import os
import subprocess
import sys
import time

WAY = ["ACTION4"] * 5 + ["ACTION2"] * 3 + ["ACTION3"] * 2
STUCK = ["ACTION1"] * 3


def say(kind: str, text: str) -> None:
    print(json.dumps({"type": kind, "text": text}), flush=True)


say("thought", "The first level looks easy.")
for action in WAY:
    subprocess.run([os.environ["ARC_PLAY"], "act", action], stdout=subprocess.DEVNULL, check=True)
time.sleep(0.3)  # thoughts and actions are told apart by the clock
say("thought", "Level 2: the wall does not move, so <I> go up | again.")
subprocess.run([os.environ["ARC_PLAY"], "act", *STUCK], stdout=subprocess.DEVNULL, check=True)
if sys.argv[1].startswith("# cheat"):
    exec(sys.argv[1])
say("message", "I give up.")
print(json.dumps({"type": "result", "result": "stuck"}))
