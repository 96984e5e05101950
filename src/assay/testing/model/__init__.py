"""A scripted model server: plays one JSON script in the protocols of four providers."""

from assay.testing.model.answering import Request
from assay.testing.model.script import (
    Call,
    Fault,
    Play,
    Script,
    ScriptError,
    Side,
    Step,
    Thread,
    Usage,
    When,
    load_script,
)
from assay.testing.model.server import ScriptedModel, serve

__all__ = [
    "Call",
    "Fault",
    "Play",
    "Request",
    "Script",
    "ScriptError",
    "ScriptedModel",
    "Side",
    "Step",
    "Thread",
    "Usage",
    "When",
    "load_script",
    "serve",
]
