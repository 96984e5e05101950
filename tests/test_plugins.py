"""Plugins are found by name, and the quick table says what the package metadata says."""

import tomllib
from pathlib import Path

import pytest

from assay import plugins
from assay.errors import InputError, PluginError
from assay.records.spec import PluginRef

ROOT = Path(__file__).parents[1]


def test_the_table_of_built_ins_equals_the_entry_points():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {k: v for k, v in project["entry-points"].items() if k.startswith("assay.")}
    assert groups == plugins.BUILT_IN


@pytest.mark.parametrize("group", plugins.BUILT_IN)
def test_every_built_in_of_assay_can_be_loaded(group):
    for name, target in plugins.BUILT_IN[group].items():
        if target.startswith("assay."):
            assert callable(plugins._load(group, name))


def test_an_unknown_plugin_is_named_with_what_there_is():
    with pytest.raises(PluginError, match="there is no agent called 'nope'") as error:
        plugins.adapter(PluginRef(name="nope"))
    assert "demo" in error.value.hint


def test_wrong_options_are_named():
    with pytest.raises(PluginError, match="does not accept these options: zz") as error:
        plugins.adapter(PluginRef(name="shell", options={"template": "x", "zz": 1}))
    assert error.value.hint == "its options are: template, history, name"


def test_a_mistyped_option_of_a_grader_is_named():
    with pytest.raises(InputError, match="command has no option 'exit_cod'"):
        plugins.grader_ref("command:run=true,exit_code=exit_cod=3")
    with pytest.raises(PluginError, match="'harbor' cannot be built without options"):
        plugins.grader(PluginRef(name="harbor"))


def test_options_of_an_adapter_are_keywords_or_its_argument():
    assert plugins.adapter_ref("shell:template=cat,name=cat").options == {
        "template": "cat",
        "name": "cat",
    }
    assert plugins.adapter_ref("shell:cat").options == {"template": "cat"}
    assert plugins.adapter_ref("claude:/opt/a=b").options == {"argument": "/opt/a=b"}
    with pytest.raises(InputError, match="shell has no option 'tempalte'") as error:
        plugins.adapter_ref("shell:tempalte=cat")
    assert error.value.hint == "its options are: template, history, name"


def test_schema_files_are_read_where_they_are(tmp_path):
    with pytest.raises(InputError, match="schema not found"):
        plugins.adapter_ref(str(tmp_path / "none.json"))
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(InputError, match=r"bad\.json: not JSON"):
        plugins.adapter_ref(str(tmp_path / "bad.json"))
    assert plugins.adapter_ref("demo:flaky") == PluginRef(
        name="demo", options={"argument": "flaky"}
    )


def test_a_schema_file_that_is_not_utf_8_is_refused(tmp_path):
    (tmp_path / "bytes.json").write_bytes(b'{"version": 1, "name": "\xff"}')
    with pytest.raises(InputError, match=r"bytes\.json: not JSON"):
        plugins.adapter_ref(str(tmp_path / "bytes.json"))
