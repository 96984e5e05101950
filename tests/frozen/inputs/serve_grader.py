import json
import sys

for number, line in enumerate(sys.stdin):
    row = json.loads(line)
    verdict = {"pass": len(row["output"]) < 8, "score": 1 / (1 + number % 2)}
    print(json.dumps(verdict), flush=True)
