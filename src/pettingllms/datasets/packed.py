"""Reads text that a data set packed with pickle, zlib and base64, without unpickling.

A pickle is a program. It is read as a list of opcodes, which must push one string and stop.
Anything else is rejected, and nothing is executed.
"""

import base64
import binascii
import pickletools
import zlib

MAX_BYTES = 256 * 1024 * 1024
"""Maximum unpacked size, against decompression bombs."""
TEXTS = {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
AROUND = {"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"}


def unpack_text(packed: str) -> str:
    """The text; ValueError if it is packed in another format, or is not text."""
    try:
        unpacker = zlib.decompressobj()
        pickled = unpacker.decompress(base64.b64decode(packed, validate=True), MAX_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"not base64 of zlib: {error}") from None
    if unpacker.unconsumed_tail:
        raise ValueError(f"it unpacks to more than {MAX_BYTES} bytes")
    steps = [(step.name, argument) for step, argument, _ in pickletools.genops(pickled)]
    texts = [argument for name, argument in steps if name in TEXTS]
    others = {name for name, _ in steps} - TEXTS - AROUND
    if len(texts) != 1 or others:
        raise ValueError(f"the pickle holds more than one text: {sorted(others)}")
    return str(texts[0])
