"""Cut the chunks of Pagefind's index smaller.

Of each word that is looked for, a browser fetches the chunk that has it. Pagefind's have 30 KB; a message of six words
would take 130 KB, most of it about other words. The files are CBOR, in gzip behind a signature: a chunk is an array of
words, each with where it stands; the description of an index has, of each chunk, its first word, its last word and its
name.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path

SIGNATURE = b"pagefind_dcd"
LARGEST = 16_000  # bytes, before gzip
BYTES, TEXT, ARRAY = 2, 3, 4  # kinds of CBOR
CHUNKS = 2  # where they stand in the description


def cut(index: Path) -> None:
    """Cut the chunks of all languages, and describe them."""
    for description in index.glob("*.pf_meta"):
        parts = [*items(read(description))]
        rows = []
        for row in items(parts[CHUNKS]):
            name = words(row)[-1]
            file = index / "index" / f"{name}.pf_index"
            [listed] = items(read(file))
            for number, chunk in enumerate(grouped([*items(listed)])):
                part = f"{name}-{number}"
                first, last = (words(word)[0] for word in (chunk[0], chunk[-1]))
                write(file.with_stem(part), array([array(chunk)]))
                rows.append(array([*map(text, (first, last, part))]))
            file.unlink()
        parts[CHUNKS] = array(rows)
        write(description, array(parts))


def grouped(entries: list[bytes]) -> Iterator[list[bytes]]:
    """The entries in runs of at most `LARGEST` bytes, or of one."""
    run: list[bytes] = []
    for entry in entries:
        if run and len(entry) + sum(map(len, run)) > LARGEST:
            yield run
            run = []
        run.append(entry)
    yield run


def read(file: Path) -> bytes:
    data = gzip.decompress(file.read_bytes())
    if not data.startswith(SIGNATURE):
        raise ValueError(f"{file} is not as Pagefind wrote it before")
    return data.removeprefix(SIGNATURE)


def write(file: Path, data: bytes) -> None:
    file.write_bytes(gzip.compress(SIGNATURE + data, mtime=0))


def items(data: bytes) -> Iterator[bytes]:
    """What an array holds, each still encoded."""
    kind, length, at = head(data, 0)
    assert kind == ARRAY, "an array of Pagefind"
    for _ in range(length):
        end = after(data, at)
        yield data[at:end]
        at = end


def words(data: bytes) -> list[str]:
    """The texts at the beginning of an array."""
    found = []
    for item in items(data):
        kind, length, at = head(item, 0)
        if kind != TEXT:
            break
        found.append(item[at : at + length].decode())
    return found


def head(data: bytes, at: int) -> tuple[int, int, int]:
    """The kind of what stands there, its length or value, and where its content begins."""
    kind, short = divmod(data[at], 32)
    assert short < 28, "a length that is known"
    size = 1 << short - 24 if short >= 24 else 0
    start = at + 1 + size
    return kind, int.from_bytes(data[at + 1 : start]) if size else short, start


def after(data: bytes, at: int) -> int:
    """Where that ends which stands there."""
    kind, length, at = head(data, at)
    if kind in (BYTES, TEXT):
        return at + length
    for _ in range(length if kind == ARRAY else 0):
        at = after(data, at)
    return at


def array(entries: list[bytes]) -> bytes:
    return encoded(ARRAY, len(entries)) + b"".join(entries)


def text(words: str) -> bytes:
    return encoded(TEXT, len(words.encode())) + words.encode()


def encoded(kind: int, length: int) -> bytes:
    if length < 24:
        return bytes([kind << 5 | length])
    power = next(power for power in range(4) if length < 256 << (8 << power) - 8)
    return bytes([kind << 5 | 24 + power]) + length.to_bytes(1 << power)
