"""Avro's encoding of whole numbers."""

from __future__ import annotations


def zigzag(number: int) -> bytes:
    rest, packed = (number << 1) ^ (number >> 63), bytearray()
    while rest > 0x7F:
        packed.append((rest & 0x7F) | 0x80)
        rest >>= 7
    return bytes([*packed, rest])
