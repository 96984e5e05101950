"""Writes a frame as a small PNG picture with the sixteen colours as its palette."""

import struct
import zlib

from assay.benchmarks.arc_agi.log.frames import SIDE
from assay.benchmarks.arc_agi.observe.palette import RGB

SIGNATURE = b"\x89PNG\r\n\x1a\n"
SCALE = 8


def frame_png(frame: bytes, scale: int = SCALE) -> bytes:
    """Draw one frame, each pixel as a square of `scale` pixels."""
    rows = []
    for y in range(SIDE):
        pixels = bytes(min(value, len(RGB) - 1) for value in frame[y * SIDE : (y + 1) * SIDE])
        wide = b"".join(pixels[x : x + 1] * scale for x in range(SIDE))
        rows.append((b"\x00" + wide) * scale)
    side = SIDE * scale
    header = struct.pack(">IIBBBBB", side, side, 8, 3, 0, 0, 0)
    palette = b"".join(bytes(rgb) for rgb in RGB)
    data = zlib.compress(b"".join(rows), 9)
    chunks = ((b"IHDR", header), (b"PLTE", palette), (b"IDAT", data), (b"IEND", b""))
    return SIGNATURE + b"".join(_chunk(kind, body) for kind, body in chunks)


def _chunk(kind: bytes, body: bytes) -> bytes:
    checksum = zlib.crc32(kind + body)
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", checksum)
