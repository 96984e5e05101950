"""assay_arc reaches assay by its entry points, and each of them leads to something."""

import pytest

from assay import plugins

TARGETS = [
    (group, name)
    for group, table in plugins.BUILT_IN.items()
    for name, target in table.items()
    if target.startswith("assay_arc.")
]


def test_it_brings_commands_adapters_a_grader_and_a_benchmark():
    assert sorted(TARGETS) == [
        ("assay.adapters", "random"),
        ("assay.adapters", "search"),
        ("assay.benchmarks", "arc"),
        ("assay.commands", "arc"),
        ("assay.graders", "arc"),
    ]


@pytest.mark.parametrize(("group", "name"), TARGETS)
def test_every_entry_point_can_be_loaded(group, name):
    assert name in plugins.names(group)
    assert callable(plugins._load(group, name))


def test_the_demo_is_a_hidden_sub_command(assay):
    assert "demo" not in assay("arc").stdout
    assert assay("arc", "demo", "--help").code == 0
