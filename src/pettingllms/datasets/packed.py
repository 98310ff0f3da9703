"""Text that a data set packed with pickle, zlib and base64, taken out without unpickling.

A pickle is a program. Ours is read as a list of its steps: it must put one text on the stack and
stop. Anything else is refused, and nothing is ever run.
"""

import base64
import binascii
import pickletools
import zlib

MAX_BYTES = 256 * 1024 * 1024
"""Of what comes out: a few bytes can unpack to more than a machine has."""
TEXTS = {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
AROUND = {"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"}


def unpack_text(packed: str) -> str:
    """The text; ValueError if it is packed in another way, or is no text."""
    try:
        unpacker = zlib.decompressobj()
        pickled = unpacker.decompress(base64.b64decode(packed, validate=True), MAX_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"this is not base64 of zlib: {error}") from None
    if unpacker.unconsumed_tail:
        raise ValueError(f"more than {MAX_BYTES} bytes come out of it")
    steps = [(step.name, argument) for step, argument, _ in pickletools.genops(pickled)]
    texts = [argument for name, argument in steps if name in TEXTS]
    others = {name for name, _ in steps} - TEXTS - AROUND
    if len(texts) != 1 or others:
        raise ValueError(f"the pickle holds more than one text: {sorted(others)}")
    return str(texts[0])
