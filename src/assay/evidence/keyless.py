"""Signatures without keys, by the identity of a CI job: `sigstore`, of the extra `keyless`.

See attest.keyless(), which loads this.
"""

from collections.abc import Iterator
from typing import Any

from cryptography import x509
from sigstore.dsse import Statement
from sigstore.models import Bundle, ClientTrustConfig
from sigstore.oidc import IdentityToken, Issuer, detect_credential
from sigstore.sign import SigningContext
from sigstore.verify import Verifier
from sigstore.verify.policy import UnsafeNoOp

from assay.errors import PluginError


def sign(statement: bytes) -> bytes:
    """Sign a statement by the identity of this job or, at a terminal, of a person's login."""
    try:
        trust = ClientTrustConfig.production()
        found = detect_credential()
        issuer = None if found else Issuer(trust.signing_config.get_oidc_url())
        token = IdentityToken(found) if found else issuer.identity_token() if issuer else None
        if token is None:
            msg = "no identity was found"
            raise PluginError(msg)
        with SigningContext.from_trust_config(trust).signer(token) as signer:
            signed: str = signer.sign_dsse(Statement(statement)).to_json()
            return signed.encode()
    except Exception as error:
        msg = f"sigstore did not sign: {type(error).__name__}: {error}"
        hint = "it needs the network and a login; --sign KEY.pem needs neither"
        raise PluginError(msg, hint=hint) from error


def verify(data: bytes) -> tuple[str, bytes]:
    """Return who signed, and the statement; everything is checked offline, by the roots that the
    installed version of sigstore brings along. Raises PluginError."""
    try:
        found = Bundle.from_json(data)
        _, payload = Verifier.production(offline=True).verify_dsse(found, UnsafeNoOp())
        return ", ".join(_names_in(found.signing_certificate)), payload
    except Exception as error:
        msg = f"{type(error).__name__}: {error}"
        raise PluginError(msg) from error


def _names_in(certificate: Any) -> Iterator[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    for kind in (x509.RFC822Name, x509.UniformResourceIdentifier):
        yield from map(str, names.get_values_for_type(kind))
