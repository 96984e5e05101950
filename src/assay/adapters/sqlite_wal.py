"""Mend the write-ahead log of a SQLite database in which secrets were covered.

SQLite ignores every frame from the first whose checksum is wrong; covering bytes makes it wrong.
Format: https://www.sqlite.org/fileformat2.html#the_write_ahead_log
"""

import struct

_MAGIC_LITTLE, _MAGIC_BIG = 0x377F0682, 0x377F0683
_HEADER = 32
_FRAME_HEADER = 24
_WORD = 0xFFFFFFFF


def mend_wal(data: bytes) -> bytes:
    """Give a log with its checksums made anew, as far as its frames belong to it."""
    if len(data) < _HEADER:
        return data
    magic, _, page_size = struct.unpack(">III", data[:12])
    if magic not in (_MAGIC_LITTLE, _MAGIC_BIG) or not 512 <= page_size <= 65536:
        return data
    order = ">" if magic == _MAGIC_BIG else "<"
    out = bytearray(data)
    sums = _checksum(order, data[:24], (0, 0))
    out[24:32] = struct.pack(">II", *sums)
    salt, step = data[16:24], _FRAME_HEADER + page_size
    for at in range(_HEADER, len(data) - step + 1, step):
        if data[at + 8 : at + 16] != salt:  # left over from before the log was begun anew
            break
        sums = _checksum(order, data[at : at + 8], sums)
        sums = _checksum(order, data[at + _FRAME_HEADER : at + step], sums)
        out[at + 16 : at + 24] = struct.pack(">II", *sums)
    return bytes(out)


def _checksum(order: str, data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    one, two = sums
    for first, second in struct.iter_unpack(f"{order}II", data):
        one = (one + first + two) & _WORD
        two = (two + second + one) & _WORD
    return one, two
