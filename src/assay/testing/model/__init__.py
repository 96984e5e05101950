"""A scripted model server: one JSON script, spoken in the words of four providers."""

from assay.testing.model.loading import ScriptError, load_script
from assay.testing.model.request_log import Request
from assay.testing.model.script import Call, Fault, Play, Script, Side, Step, Thread, Usage, When
from assay.testing.model.serve import serve
from assay.testing.model.server import ScriptedModel

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
