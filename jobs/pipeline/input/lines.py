"""Read lines of CSV files in blocks, count them, split them into fields, and explain faults.

Every row of a CSV file must be one line. So the number of rows that a parser finds in a block must
equal the number of lines that are not blank. Otherwise a quotation mark that closes lines later, or
never, would swallow the records in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO

import numpy as np

from das.errors import InputError

BLOCK_BYTES = 1 << 20  # bytes parsed at once; a longer line is a separate block; not measured
_LONGEST_LINE = 8 << 20  # bytes; a header of a million columns fits
_NEWLINE, _RETURN = b"\n\r"
_QUOTED = re.compile(rb'"([^"]*+(?:""[^"]*+)*+)"')

_BROKEN_FIELD = (
    "write the file without line breaks in fields; if it was written without quoting, so that a "
    "quotation mark is text, say `quoting: none` beside the path of the data"
)
_BARE_RETURN = "end every line with a line feed, and write fields without carriage returns"
_NULL = "save it as CSV in UTF-8, without null bytes"
_BLANK = 'remove the line, or write "" in it if it is a row whose value is missing'


def read_line(handle: IO[bytes], where: str) -> bytes:
    """Read a line with its end; b"" after the last.

    Raises:
      InputError: The line is longer than 8 MiB; the limit bounds memory.
    """
    line = handle.readline(_LONGEST_LINE + 1)
    if len(line) > _LONGEST_LINE:
        raise InputError(where, "has a line that does not end", want="at most 8 MiB a line")
    return line


def read_blocks(handle: IO[bytes], where: str, size: int | None = None) -> Iterator[bytes]:
    """Stream a file from the start of a line on, in blocks of whole lines.

    A line of more than 8 MiB is cut; `count_rows` refuses it.

    Args:
      handle: The file.
      where: Name of the file, for messages.
      size: Number of bytes to read, up to the end of a line; None reads to the end.

    Raises:
      InputError: The file has fewer bytes than before.
    """
    done = 0
    while size is None or done < size:
        block = handle.read(BLOCK_BYTES if size is None else min(BLOCK_BYTES, size - done))
        if not block:
            break
        if block[-1] != _NEWLINE:
            block += handle.readline(_LONGEST_LINE + 1)
        done += len(block)
        yield block
    if size is not None and done != size:
        raise InputError(where, "changed while it was read")


def count_rows(block: bytes, delimiter: str, *, quotes: bool) -> tuple[int, int] | None:
    """Count the lines of a block with a row, and the blank lines.

    Args:
      block: Whole lines, at least one.
      delimiter: Field separator.
      quotes: Whether fields may stand in quotation marks.

    Returns:
      Both numbers; None if a line holds a null byte or a carriage return that does not end it, or
      the last leaves a quotation mark open or is longer than 8 MiB.
    """
    if b"\0" in block or (quotes and b'"' in block and _is_open(block, delimiter)):
        return None
    if len(block) > _LONGEST_LINE and len(block) - block.rfind(b"\n", 0, -1) > _LONGEST_LINE + 1:
        return None
    text = np.frombuffer(block, np.uint8)
    ends = text == _NEWLINE
    n_lines = int(np.count_nonzero(ends)) + int(not ends[-1])
    n_blank = int(np.count_nonzero(ends[1:] & ends[:-1])) + int(ends[0])
    if b"\r" in block:
        returns = text == _RETURN
        if np.count_nonzero(returns[:-1] & ends[1:]) < np.count_nonzero(returns):
            return None
        n_blank += int(np.count_nonzero(returns[1:] & ends[:-1])) + int(returns[0])
    return n_lines - n_blank, n_blank


def _is_open(block: bytes, delimiter: str) -> bool:
    """Return whether the last line that is not blank leaves a quotation mark open."""
    lines = block.rstrip(b"\r\n")
    last = lines[lines.rfind(b"\n") + 1 :]
    return split_fields(last, delimiter, quotes=True) is None


def split_fields(line: bytes, delimiter: str, *, quotes: bool) -> list[bytes] | None:
    """Split a line without its end into fields, as Python's csv does; None if a quote is open.

    A quotation mark opens a quoted field if it is the first character of the field. Within the
    field, two quotation marks stand for one. Text after the closing mark belongs to the field. In
    all other places a quotation mark is text.

    >>> split_fields(b'a,"b ""c"", d",e"f', ",", quotes=True)
    [b'a', b'b "c", d', b'e"f']
    >>> split_fields(b'a,"b', ",", quotes=True)
    >>> split_fields(b'a,"b', ",", quotes=False)
    [b'a', b'"b']
    """
    mark = delimiter.encode()
    if not quotes or b'"' not in line:
        return line.split(mark)
    fields, at = [], 0
    while True:
        inner, rest = b"", at
        if line[at : at + 1] == b'"':
            closed = _QUOTED.match(line, at)
            if closed is None:
                return None
            inner, rest = closed[1].replace(b'""', b'"'), closed.end()
        end = line.find(mark, rest)
        fields.append(inner + (line[rest:] if end < 0 else line[rest:end]))
        if end < 0:
            return fields
        at = end + 1


def without_end(line: bytes) -> bytes:
    """Return a line without its final line feed, or carriage return and line feed."""
    return line[: -2 if line.endswith(b"\r\n") else -1] if line.endswith(b"\n") else line


def parse_line(
    line: bytes, where: str, delimiter: str, *, quotes: bool, n_fields: int | None = None
) -> list[bytes]:
    """Split a line into fields, or raise an error that does not quote the line.

    Args:
      line: The line, with its end.
      where: File and row, for messages.
      delimiter: Field separator.
      quotes: Whether fields may stand in quotation marks.
      n_fields: Required number of fields; None for a header, which may have any number.

    Returns:
      The fields; empty for a blank line that may be skipped.

    Raises:
      InputError: The line is not a valid row.
    """
    text = without_end(line)
    if b"\0" in text:
        raise InputError(where, "holds a null byte, as text in UTF-16 does", remedy=_NULL)
    if b"\r" in text:
        what = "holds a carriage return that does not end it"
        raise InputError(where, what, remedy=_BARE_RETURN)
    if not text and n_fields == 1:
        raise InputError(where, "is blank, in a file of one column", remedy=_BLANK)
    if not text and n_fields is not None:
        return []
    fields = split_fields(text, delimiter, quotes=quotes)
    if fields is None:
        what = "has a quotation mark that opens a field and does not close it in the same line"
        raise InputError(where, what, remedy=_BROKEN_FIELD)
    if n_fields is not None and len(fields) != n_fields:
        want = f"{n_fields}, as in the header"
        raise InputError(where, "has the wrong number of fields", got=len(fields), want=want)
    return fields
