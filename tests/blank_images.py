"""Images with a header that states a size, and almost no data."""

import struct
import zlib


def png(width, height):
    """Return a picture of one colour, which says its size and holds few bytes."""
    rows = zlib.compress(bytes((width // 8 + 2) * height) if height < 20_000 else b"")
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)),
        (b"IDAT", rows),
        (b"IEND", b""),
    ]
    out = b"\x89PNG\r\n\x1a\n"
    for name, content in chunks:
        check = struct.pack(">I", zlib.crc32(name + content))
        out += struct.pack(">I", len(content)) + name + content + check
    return out
