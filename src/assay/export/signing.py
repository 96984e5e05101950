"""Keys that sign evidence, and their envelopes: `securesystemslib`, of the extra `evidence`.

Loaded by optional.py, because an installation need not have it.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import UnverifiedSignatureError, VerificationError
from securesystemslib.signer import CryptoSigner, Signature, SSlibKey

from assay.errors import InputError
from assay.records.private import write_private
from assay.records.rows import UNREADABLE

PASSWORD = "ASSAY_KEY_PASSWORD"
"""The variable with the password of a key; without it there is none."""


def new_key(path: Path, password: str | None) -> tuple[Path, str]:
    """Write a private key and, beside it, the public one; return the latter and its fingerprint."""
    public = path.with_suffix(".pub")
    for one in (path, public):
        if one.exists():
            msg = f"{one} already exists"
            raise InputError(msg, hint="a key that was used is needed to check what it signed")
    signer = CryptoSigner.generate_ed25519()
    private = load_pem_private_key(signer.private_bytes, None)
    how = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private(path, private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))
    public.write_bytes(public_pem(signer.public_key))
    return public, fingerprint(signer.public_key)


def read_signer(path: Path) -> CryptoSigner:
    """Return what signs with a key; its password, if it has one, is in a variable."""
    password = os.environ.get(PASSWORD)
    try:
        data = path.read_bytes()
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise InputError(msg, hint="`assay evidence new-key` makes a key") from error
    is_locked = b"ENCRYPTED" in data or b"Proc-Type: 4" in data
    if is_locked and not password:
        msg = f"{path}: the key has a password"
        raise InputError(msg, hint=f"put it into the variable {PASSWORD}")
    try:
        key = load_pem_private_key(data, password.encode() if password and is_locked else None)
        return CryptoSigner(key)
    except (TypeError, ValueError) as error:
        why = "another password" if is_locked else "no private key in PEM"
        msg = f"{path}: {why}"
        raise InputError(msg, hint="`assay evidence new-key` makes a key") from error


def read_public(data: bytes, place: str) -> SSlibKey:
    """Return a public key in PEM."""
    if b"PRIVATE KEY" in data:
        msg = f"{place}: this is the private key"
        raise InputError(msg, hint="give the public one, KEY.pub, which may be shown to anybody")
    try:
        return SSlibKey.from_crypto(load_pem_public_key(data))
    except ValueError as error:
        msg = f"{place}: not a public key in PEM"
        raise InputError(msg, hint="`assay evidence new-key` writes KEY.pub") from error


def public_pem(key: Any) -> bytes:
    """Return a public key as a file."""
    text = str(key.keyval["public"]).strip()
    if text.startswith("-----"):
        return f"{text}\n".encode()
    raw = Ed25519PublicKey.from_public_bytes(bytes.fromhex(text))  # as securesystemslib keeps it
    pem: bytes = raw.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


def fingerprint(key: Any) -> str:
    """Return what people compare of a public key."""
    der = b"".join(line for line in public_pem(key).splitlines() if b"-----" not in line)
    return hashlib.sha256(der).hexdigest()[:16]


def signed_envelope(payload: bytes, kind: str, signer: CryptoSigner) -> dict[str, Any]:
    """Return a signed DSSE envelope as a value of JSON."""
    envelope = Envelope(payload, kind, {})
    envelope.sign(signer)
    found: dict[str, Any] = envelope.to_dict()
    return found


def signer_of(data: bytes, keys: Sequence[SSlibKey]) -> SSlibKey | None:
    """Return which of these keys signed an envelope; None if none did."""
    try:
        envelope = Envelope.from_dict(msgspec.json.decode(data))
    except (KeyError, ValueError, TypeError, AttributeError, *UNREADABLE):
        return None
    # The id that an envelope names is anybody's word: each key tries each signature.
    for key in keys:
        for one in envelope.signatures.values():
            if _holds(key, Signature(key.keyid, one.signature), envelope.pae()):
                return key
    return None


def _holds(key: SSlibKey, signature: Signature, data: bytes) -> bool:
    try:
        key.verify_signature(signature, data)
    except (UnverifiedSignatureError, VerificationError, ValueError):
        return False
    return True


def given_password() -> str | None:
    """Return the password in the variable, if there is one."""
    return os.environ.get(PASSWORD) or None
