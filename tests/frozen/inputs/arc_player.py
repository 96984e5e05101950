"""Play a generated game through its driver: python arc_player.py GAME ACTION..."""

import json
import subprocess
import sys

game, *actions = sys.argv[1:]
driver = subprocess.Popen(
    [sys.executable, "game_driver.py", game, "0"],
    text=True,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
)
driver.stdout.readline()
for action in actions:
    said = {"command": "reset"} if action == "RESET" else {"command": "step", "action": action}
    driver.stdin.write(json.dumps(said) + "\n")
    driver.stdin.flush()
    driver.stdout.readline()
driver.stdin.write('{"command": "quit"}\n')
driver.stdin.close()
driver.wait(30)
