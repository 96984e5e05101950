"""Graders that are Python files: called in this process, or in a child in other threads."""

import threading
import time
from pathlib import Path

import pytest
from msgspec import UNSET

from assay import plugins
from assay.errors import AssayError, InputError, PluginError


@pytest.fixture(params=["here", "apart"])
def way(request, ask, ask_apart):
    return ask if request.param == "here" else ask_apart


def test_takes_the_arguments_it_names(way, script) -> None:
    path = script(
        "def grade(input, output, hint=None, *, trajectory, metadata, cwd, reference):\n"
        "    return {'pass': True, 'score': 0.5, 'reasoning': repr((input, output, hint,\n"
        "            trajectory, metadata, cwd, reference))}\n"
    )
    grade = way(path, "out", hint="h", trajectory=[{"type": "thought"}], metadata={"a": 1}, cwd="/")
    assert grade.reasoning == repr(("?", "out", "h", [{"type": "thought"}], {"a": 1}, "/", None))
    assert (grade.pass_, grade.score, grade.outcome) == (True, 0.5, UNSET)


def test_takes_the_whole_trial_and_may_be_async(way, script) -> None:
    path = script(
        "import asyncio\n"
        "async def grade(trial):\n"
        "    await asyncio.sleep(0)\n"
        "    return trial.output == 'yes' and trial.row['extra'] == 1\n"
    )
    assert way(path, "yes", row={"extra": 1}).pass_
    assert not way(path, "no", row={"extra": 1}).pass_


def test_imports_files_beside_it_and_has_a_version_of_its_content(ask, script) -> None:
    script("ANSWER = 'yes'\n", "beside_a_grader.py")
    path = script(
        "from beside_a_grader import ANSWER\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass C:\n    x: 'int' = 1\n"
        "def grade(output): return output == ANSWER\n"
    )
    assert ask(path, "yes").pass_
    first = plugins.grader(plugins.grader_ref(path))
    other = script("def grade(output): return True\n", "b.py")
    assert len(first.version) == 12
    assert first.version != plugins.grader(plugins.grader_ref(other)).version
    assert first.name == "grader"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise KeyError('oops')", "KeyError: 'oops'"),
        ("return None", "Invalid grader result"),
        ("return {'pass': 'yes', 'score': 1}", "Expected `bool`"),
        ("return {'pass': True, 'score': 1.5}", "score"),
        ("return {'pass': True, 'score': float('nan')}", "score"),
        ("return {'pass': True, 'score': -0.1}", "score"),
        ("return {'score': 1.0}", "pass"),
        ("return 0.7", "Invalid grader result"),
        ("import sys; sys.exit(3)", "exit(3)"),
        ("return {'pass': True, 'score': 1, 'outcome': {'x': object()}}", "JSON"),
        ("return {'pass': True, 'score': 1, 'reasoning': '\\udc80'}", "JSON"),
        ("from assay.records.capture import Grade; return Grade(pass_=True, score=7)", "score"),
    ],
)
def test_nonsense_is_the_graders_failure(ask, ask_apart, script, body, said) -> None:
    path = script(f"def grade(output):\n    {body}\n")
    for way in (ask, ask_apart):
        with pytest.raises((AssayError, KeyError)) as caught:
            way(path, "x")
        text = f"{type(caught.value).__name__}: {caught.value}"
        assert said in text or "exited with code 3" in text


def test_prints_do_not_reach_stdout(way, script, capfd) -> None:
    path = script(
        "import os, subprocess\ndef grade(output):\n    print('noise')\n"
        "    os.write(1, b'noise')\n    subprocess.run(['echo', 'noise'])\n    return True\n"
    )
    assert way(path, "x").pass_
    print("mine", flush=True)
    assert capfd.readouterr().out == "mine\n"


@pytest.mark.parametrize("what", ["asyncio.CancelledError()", "GeneratorExit()", "Odd('odd')"])
def test_what_is_no_exception_is_the_graders_failure_too(way, script, what) -> None:
    path = script(
        "import asyncio\nclass Odd(BaseException): pass\n"
        f"async def grade(output):\n    raise {what}\n"
    )
    with pytest.raises(PluginError, match=what.partition("(")[0].rpartition(".")[2]):
        way(path, "x")


def test_a_function_that_hands_on_an_async_one_is_awaited(way, script) -> None:
    path = script("async def other(): return True\ndef grade(output): return other()\n")
    assert way(path, "x").pass_


def test_an_argument_that_has_no_name_is_named(ask, script) -> None:
    with pytest.raises(PluginError, match="'output'"):
        ask(script("def grade(output, /): return True\n"), "x")


def test_strange_arguments_are_refused(ask, script) -> None:
    with pytest.raises(PluginError, match="answer"):
        ask(script("def grade(answer): return True\n"), "x")


HANGS = {
    "loop": "while True: pass",
    "sleep": "import time; time.sleep(600)",
    "swallow": "import time\n    for _ in range(3):\n        try: time.sleep(600)\n"
    "        except BaseException: pass\n    time.sleep(600)",
    "never": "import time\n    while True:\n        try:\n            while True:\n"
    "                try: time.sleep(600)\n                except: continue\n"
    "        except BaseException: pass",
    "regex": "import re; re.match(r'(a+)+$', 'a' * 40 + '!')",
    "async": "import asyncio; asyncio.run(asyncio.sleep(600))",
}


@pytest.mark.parametrize("how", HANGS)
def test_a_hang_is_ended(how, ask, ask_apart, script) -> None:
    path = script(f"def grade(output):\n    {HANGS[how]}\n")
    good = script("def grade(output): return True\n", "good.py")
    n_before = threading.active_count()  # other tests may have left idle threads of a pool
    for way in (ask, ask_apart):
        began = time.monotonic()
        with pytest.raises(PluginError, match=r"no answer in 0\.4 s"):
            way(path, "x", timeout_s=0.4)
        assert time.monotonic() - began < 8
        assert way(good, "x").pass_
    assert threading.active_count() < n_before + 3


def test_an_async_grader_can_be_asked_again_after_a_hang(ask, script) -> None:
    path = script(
        "import asyncio\nasync def grade(output):\n"
        "    if output == 'hang': await asyncio.sleep(600)\n    return True\n"
    )
    with pytest.raises(PluginError, match="no answer"):
        ask(path, "hang", timeout_s=0.4)
    assert ask(path, "x", timeout_s=0.4).pass_


def test_the_alarm_leaves_nothing_behind(ask, script, eventually) -> None:
    import signal

    assert eventually(lambda: signal.getsignal(signal.SIGALRM) == signal.SIG_DFL, 3)
    assert ask(script("def grade(output): return True\n"), "x").pass_
    assert eventually(lambda: signal.getitimer(signal.ITIMER_REAL)[0] == 0, 3)
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


def test_what_kind_a_file_is_is_read_not_run(script, tmp_path: Path) -> None:
    def kind(source: str, name: str = "g.py", *, executable: bool = False) -> str:
        return plugins.grader_ref(script(source, name, executable=executable)).name

    assert kind("raise SystemExit\ndef grade(output): ...") == "python"
    assert kind("async def grade(output): ...") == "python"
    assert kind("from somewhere import grade") == "python"
    assert kind("grade = len") == "python"
    assert kind("class A:\n    def grade(self): ...") == "executable"
    assert kind("print('grade')") == "executable"
    assert kind("#!/bin/sh\ndef grade", "g.sh", executable=True) == "executable"
    with pytest.raises(InputError, match="not valid Python"):
        kind("def grade(:")
    with pytest.raises(InputError, match="cannot be executed"):
        kind("#!/bin/sh", "plain.sh")
    with pytest.raises(AssayError, match="Grader not found"):
        plugins.grader_ref(str(tmp_path / "none.py"))
