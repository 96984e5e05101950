"""Makes runs to look at: captures and trials with every kind of step. Tests, pictures, benchmarks.

python scripts/sample_runs.py FOLDER        small ones
"""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CATEGORIES = ("refactor", "bug fix", "docs", "shell", "maths")
TOOLS = ("Read", "Bash", "Edit", "Grep", "Write")
DIFF = """diff --git a/src/cart.py b/src/cart.py
--- a/src/cart.py
+++ b/src/cart.py
@@ -10,4 +10,4 @@ def total(items):
     amount = 0
     for item in items:
-        amount += item.price
+        amount += item.price * item.quantity
     return amount
"""
ANSWER = """The total ignored quantities. I changed `total()` in **src/cart.py** and ran the tests:

- 14 passed
- 0 failed

See [the issue](https://example.org/issues/7).

| test | before | after |
|---|---|---|
| test_total | fails | passes |
"""


def rows(
    n: int, *, seed: int, rate: float, agent: str, price: float = 0.004, slow: float = 1.0
) -> Iterator[dict[str, Any]]:
    """Give captures; the same prompts for every seed, other luck."""
    luck = random.Random(seed)
    for i in range(n):
        category = CATEGORIES[i % len(CATEGORIES)]
        hard = (i * 7 % 11) / 11
        passed = luck.random() < rate + (0.5 - hard) * 0.5
        yield _capture(i, category, passed, luck, agent, price, slow)


def trial_rows(n: int, k: int, *, seed: int, rate: float, agent: str) -> Iterator[dict[str, Any]]:
    """Give rows of k trials each."""
    luck = random.Random(seed)
    for i in range(n):
        ones = [
            _capture(i, CATEGORIES[i % 5], luck.random() < rate, luck, agent, 0.004, 1.0)
            for _ in range(k)
        ]
        trials = [_entry(number, one) for number, one in enumerate(ones, 1)]
        passes = [t["pass"] for t in trials if "pass" in t]
        share = sum(passes) / len(passes) if passes else None
        yield {
            "id": ones[0]["id"],
            "input": ones[0]["input"],
            "k": k,
            "trials": trials,
            "metadata": {"category": CATEGORIES[i % 5], "agent": agent},
            "passRate": share,
        }


FAILURE = """tests/test_cart.py::test_empty PASSED
tests/test_cart.py::test_one_item PASSED
tests/test_cart.py::test_total FAILED
tests/test_cart.py::test_refund PASSED

    def test_total():
>       assert total([Item(15, 2), Item(10, 3)]) == 60
E       assert 25 == 60

tests/test_cart.py:31: AssertionError
1 failed, 13 passed in 0.41s"""
BEFORE = "        amount += item.price"
AFTER = "        amount += item.price * item.quantity"


def story(agent: str, *, passed: bool) -> Iterator[dict[str, Any]]:
    """Give one bug fix, told in the calls of Claude Code or of Codex; who fails stops too early."""
    mine = _ClaudeCalls() if agent == "claude" else _CodexCalls()
    fixed = "14 passed in 0.38s"
    steps = [
        {"type": "thought", "content": "The failing test names the function. Run it first."},
        mine.shell("pytest -q tests/test_cart.py", FAILURE, 1),
        mine.read("src/cart.py", "def total(items):\n    amount = 0\n    for item in items:\n"),
        {"type": "thought", "content": "`total()` adds prices and ignores `quantity`."},
        mine.edit("src/cart.py", BEFORE, AFTER),
    ]
    if passed:
        steps += [
            mine.shell("pytest -q tests/test_cart.py", fixed, 0),
            mine.shell("git diff --stat", " src/cart.py | 2 +-", 0),
            {"type": "message", "content": ANSWER},
        ]
    else:
        steps += [
            mine.shell("git checkout -- src/cart.py", "", 0),
            mine.shell("pytest -q tests/test_cart.py", FAILURE, 1),
            {"type": "message", "content": "The test is wrong: **30** is the right total."},
        ]
    yield _told(agent, passed, [dict(step, timestamp=900 * n) for n, step in enumerate(steps, 1)])


def _told(agent: str, passed: bool, steps: list[dict[str, Any]]) -> dict[str, Any]:
    row = next(rows(1, seed=1, rate=2.0 if passed else -1.0, agent=agent))
    said = "all checks passed" if passed else "test_total still fails: 25 != 60"
    total = 900 * (len(steps) + 1)
    grade = {"pass": passed, "score": float(passed), "reasoning": said}
    row |= {
        "id": "cart-total",
        "input": "The test `test_total` fails. Find out why and fix the cause, not the test.",
        "output": steps[-1]["content"],
        "trajectory": steps,
        "score": grade,
        "timing": {"start": 1.79e12, "end": 1.79e12 + total, "total": total},
    }
    row.pop("failure", None)
    return row


class _ClaudeCalls:
    def shell(self, command: str, output: str, code: int) -> dict[str, Any]:
        return _call("Bash", {"command": command}, output, code)

    def read(self, path: str, output: str) -> dict[str, Any]:
        return _call("Read", {"file_path": path}, output)

    def edit(self, path: str, before: str, after: str) -> dict[str, Any]:
        given = {"file_path": path, "old_string": before, "new_string": after}
        return _call("Edit", given, "The file has been updated.")


class _CodexCalls:
    def shell(self, command: str, output: str, code: int) -> dict[str, Any]:
        return _call("exec_command", {"cmd": f"bash -lc '{command}'"}, output, code)

    def read(self, path: str, output: str) -> dict[str, Any]:
        return _call("read_file", {"path": path}, output)

    def edit(self, path: str, before: str, after: str) -> dict[str, Any]:
        patch = f"*** Begin Patch\n*** Update File: {path}\n@@\n-{before}\n+{after}\n*** End Patch"
        return _call("apply_patch", patch, "Success.")


def _call(name: str, given: Any, output: str, code: int | None = None) -> dict[str, Any]:
    step = {"type": "tool_call", "name": name, "status": "failed" if code else "completed"}
    ended = {} if code is None else {"exitCode": code}
    return {**step, "duration": 700, "input": given, "output": output, **ended}


def write(path: Path, lines: Iterator[dict[str, Any]]) -> Path:
    """Write rows as a result file."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in lines)
    return path


def _entry(number: int, one: dict[str, Any]) -> dict[str, Any]:
    entry = {
        "trialNum": number,
        "output": one["output"],
        "trajectory": one["trajectory"],
        "duration": one["timing"]["total"],
        "toolErrors": False,
        **{name: one[name] for name in ("usage", "agent", "failure") if name in one},
    }
    if "score" in one:
        entry |= {"pass": one["score"]["pass"], "score": one["score"]["score"]}
    return entry


def _capture(
    i: int, category: str, passed: bool, luck: random.Random, agent: str, price: float, slow: float
) -> dict[str, Any]:
    total = round(luck.lognormvariate(9.2, 0.6) * slow)
    tokens = luck.randint(2000, 30000)
    failure = None
    if luck.random() < 0.03:
        failure = {"cause": "provider", "message": "HTTP 529: overloaded, tried 3 times"}
    elif not passed and luck.random() < 0.2:
        failure = {"cause": "agent_timeout", "message": "no answer within 60 s"}
    row: dict[str, Any] = {
        "id": f"{category.replace(' ', '-')}-{i:03}",
        "input": f"Fix the failing test number {i} in the shop ({category}): totals are wrong.",
        "output": "" if failure else ANSWER,
        "hint": "quantity",
        "trajectory": list(_steps(luck, total, passed)) if not failure else [],
        "metadata": {"category": category, "agent": agent, "exitCode": 0},
        "timing": {"start": 1.79e12, "end": 1.79e12 + total, "total": total, "firstResponse": 400},
        "toolErrors": False,
        "usage": {
            "inputTokens": tokens,
            "outputTokens": tokens // 9,
            "costUsd": round(tokens * price / 1000, 6),
            "costSource": "reported",
        },
        "agent": {"adapter": agent, "version": "1.4.2", "model": "sample-1"},
    }
    if failure:
        row["failure"] = failure
    if not failure or failure["cause"].startswith("agent_"):
        score = (0.8 + 0.2 * luck.random()) if passed else 0.4 * luck.random()
        said = "all checks passed" if passed else "test_total still fails: 30 != 60"
        row["score"] = {"pass": passed, "score": round(score, 3), "reasoning": said}
    return row


def _steps(luck: random.Random, total: int, passed: bool) -> Iterator[dict[str, Any]]:
    n = luck.randint(5, 9)
    at = 400.0
    step = (total - 400) / (n + 5)
    yield {
        "type": "thought",
        "content": "The test compares totals. Look at it first.",
        "timestamp": at,
    }
    yield {
        "type": "plan",
        "timestamp": at,
        "entries": [{"content": "Read the code", "status": "completed"}, {"content": "Fix it"}],
    }
    for number in range(n):
        at += step
        name = luck.choice(TOOLS)
        call: dict[str, Any] = {
            "type": "tool_call",
            "name": name,
            "status": "completed",
            "timestamp": round(at),
            "duration": round(step * 0.7),
            "callId": f"call_{number}",
            "input": {"path": f"src/part_{luck.randint(1, 4)}.py"},
            "output": "def total(items):\n    amount = 0\n",
        }
        if name == "Bash":
            call |= {
                "input": {"command": "pytest -q"},
                "output": "1 failed, 13 passed",
                "exitCode": 1,
                "status": "failed",
            }
        if name == "Edit":
            call |= {
                "input": {
                    "path": "src/cart.py",
                    "old_string": "amount += item.price",
                    "new_string": "amount += item.price * item.quantity",
                },
                "output": DIFF,
            }
        yield call
    at += step
    yield {
        "type": "tool_call",
        "name": "Task",
        "status": "completed",
        "timestamp": round(at),
        "duration": round(step * 2),
        "callId": "sub",
        "input": {"prompt": "Run all tests"},
    }
    yield {
        "type": "message",
        "content": "Running them now.",
        "timestamp": round(at + step),
        "parent": "sub",
    }
    yield {
        "type": "tool_call",
        "name": "Bash",
        "status": "completed",
        "timestamp": round(at + step),
        "duration": 900,
        "callId": "sub-1",
        "parent": "sub",
        "input": {"command": "pytest -q"},
        "output": "14 passed" if passed else "1 failed, 13 passed",
    }
    yield {"type": "message", "content": ANSWER, "timestamp": round(at + 3 * step)}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "before.jsonl", rows(60, seed=1, rate=0.5, agent="before", price=0.006))
    write(folder / "after.jsonl", rows(60, seed=2, rate=0.72, agent="after", slow=0.7))
    write(folder / "trials-a.jsonl", trial_rows(20, 5, seed=3, rate=0.45, agent="a"))
    write(folder / "claude.jsonl", story("claude", passed=True))
    write(folder / "codex.jsonl", story("codex", passed=False))
    write(folder / "trials-b.jsonl", trial_rows(20, 5, seed=4, rate=0.7, agent="b"))
