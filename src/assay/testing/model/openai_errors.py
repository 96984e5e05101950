"""Errors as OpenAI's two protocols say them."""

from assay.testing.model.conversation import JsonObject
from assay.testing.model.script import Fault
from assay.testing.model.wire import error_message

_TYPES_AND_CODES = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "permission_denied"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    503: ("server_error", "server_is_overloaded"),
    529: ("server_error", "server_is_overloaded"),
}


def error_body(fault: Fault) -> JsonObject:
    """Say an error as the body of an HTTP answer."""
    kind, code = _TYPES_AND_CODES.get(fault.status or 0, ("server_error", "server_error"))
    if fault.type:
        kind = code = fault.type
    return {"error": {"message": error_message(fault), "type": kind, "param": None, "code": code}}
