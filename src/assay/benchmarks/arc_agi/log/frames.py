"""Pixels as bytes: one 64x64 frame is 4096 bytes, one colour each; packed for the log."""

import base64
import hashlib
import zlib
from collections.abc import Sequence

SIDE = 64
FRAME_BYTES = SIDE * SIDE
MAX_PACKED_FRAMES = 2000


def pack_frames(frames: Sequence[bytes]) -> str:
    """Write frames as compressed text that fits in a JSON line."""
    return base64.b64encode(zlib.compress(b"".join(frames), 1)).decode("ascii")


def unpack_frames(text: str) -> list[bytes]:
    """Read what pack_frames wrote; refuse what would grow without bound."""
    bound = MAX_PACKED_FRAMES * FRAME_BYTES
    data = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), bound)
    return [data[i : i + FRAME_BYTES] for i in range(0, len(data), FRAME_BYTES)]


def frames_digest(frames: Sequence[bytes]) -> str:
    """Name a list of frames by its content."""
    return hashlib.sha256(b"".join(frames)).hexdigest()
