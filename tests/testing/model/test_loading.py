"""Wrong scripts say where and why."""

import msgspec
import pytest

from assay.errors import InputError
from assay.testing.model import Script, ScriptedModel, ScriptError, Step, load_script


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ({}, 'none of "steps"'),
        ({"step": []}, 'unknown field `step`; did you mean "steps"?'),
        ({"steps": [{}, {"tekst": "x"}]}, '`tekst` - at `$.steps[1]`; did you mean "text"?'),
        ({"steps": [{"text": 5}]}, "$.steps[0].text"),
        ({"steps": [{"delay_s": 5}]}, 'did you mean "delayS"?'),
        ({"steps": [{"delayS": -1}]}, "$.steps[0].delayS"),
        ({"steps": [{"calls": [{}]}]}, "$.steps[0].calls[0]"),
        ({"steps": [{"calls": [{"tool": "shell"}]}]}, 'the tool "shell" needs "command"'),
        ({"steps": [{"calls": [{"name": "x", "command": "y"}]}]}, '"command" does not belong to'),
        ({"steps": [{"calls": [{"tool": "sh", "command": "y"}]}]}, "$.steps[0].calls[0].tool"),
        ({"steps": [{"faults": [{}]}]}, "exactly one of"),
        ({"steps": [{"faults": [{"hang": True, "drop": True}]}]}, "$.steps[0].faults[0]"),
        ({"steps": [{"faults": [{"status": 20}]}]}, "faults[0].status"),
        ({"steps": [{"faults": [{"drop": True, "times": 0}]}]}, "faults[0].times"),
        ({"threads": [{"when": {}, "steps": []}]}, '"when" needs at least one condition'),
        ({"scripts": {"a/b": {}}}, "$.scripts"),
        ({"steps": [], "side": "x"}, "$.side"),
    ],
)
def test_wrong_scripts(script, said) -> None:
    with pytest.raises(ScriptError) as caught:
        ScriptedModel(script)
    assert said in str(caught.value)


def test_files(tmp_path) -> None:
    path = tmp_path / "script.json"
    with pytest.raises(ScriptError, match=r"script\.json: cannot read"):
        load_script(path)
    path.write_text('{"steps": [\n{"text": "x"},\n]}')
    with pytest.raises(ScriptError, match=r"script\.json:3: not JSON"):
        load_script(path)
    path.write_bytes(b'{"steps": [{"text": "\xff"}]}')
    with pytest.raises(ScriptError, match="not JSON"):
        load_script(path)
    path.write_text('{"steps": [{"text": "ü"}]}')
    assert load_script(str(path)).steps[0].text == "ü"
    assert issubclass(ScriptError, InputError)


def test_a_record_and_its_json_are_the_same_script() -> None:
    script = Script(steps=[Step(text="x", chunk_delay_s=1)])
    assert load_script(script) is script
    assert load_script(msgspec.json.decode(msgspec.json.encode(script))) == script
    assert "chunkDelayS" in str(msgspec.json.schema(Script))
