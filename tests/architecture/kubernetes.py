"""Objects of Kubernetes against what the client library of the installed Spark knows of them.

Spark reads pod templates with that library, which keeps fields that it does not know and sends them
on; the API server then drops or refuses them. Here they are complaints.
"""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pyspark

SPARK = Path(pyspark.__file__).parent
MODEL = "io/fabric8/kubernetes/api/model/"
POD, POD_TEMPLATE = f"L{MODEL}Pod;", f"L{MODEL}PodTemplateSpec;"
SIMPLE: dict[str, type | tuple[type, ...]] = {
    "Ljava/lang/String;": str,
    "Ljava/lang/Boolean;": bool,
    "Ljava/lang/Integer;": int,
    "Ljava/lang/Long;": int,
    f"L{MODEL}Quantity;": (str, int),
    f"L{MODEL}IntOrString;": (str, int),
}
# Bytes of an entry of a table of constants after its tag (Java Virtual Machine Specification, 4.4).
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4}
_TEXT, _TWO_ENTRIES = 1, (5, 6)


def complaints(value: object, kind: str, where: str = "") -> Iterator[str]:
    """What an object has that its kind has not, and values of other types.

    Args:
      value: As read from YAML.
      kind: Type as class files write it, such as `POD`.
      where: Path of the value.
    """
    inner = re.fullmatch(r"Ljava/util/(List<|Map<Ljava/lang/String;)(L.*;)>;", kind)
    if kind in SIMPLE:
        if not isinstance(value, SIMPLE[kind]) or isinstance(value, bool) != (SIMPLE[kind] is bool):
            yield f"{where}: {value!r} is no {kind.rpartition('/')[2].rstrip(';')}"
    elif inner and inner[1] == "List<":
        if not isinstance(value, list):
            yield f"{where}: is no list"
            return
        for at, one in enumerate(value):
            yield from complaints(one, inner[2], f"{where}[{at}]")
    elif not isinstance(value, dict):
        yield f"{where}: is no map"
    elif inner:
        for key, one in value.items():
            yield from complaints(one, inner[2], f"{where}.{key}")
    else:
        known = fields(kind[1:-1])
        for key, one in value.items():
            if key in known:
                yield from complaints(one, known[key], f"{where}.{key}")
            else:
                yield f"{where}.{key}: unknown"


@cache
def fields(name: str) -> dict[str, str]:
    """Fields of a class of the library to their types, type arguments included."""
    for archive in sorted((SPARK / "jars").glob("kubernetes-model-co*.jar")):  # core, common
        with zipfile.ZipFile(archive) as jar:
            if f"{name}.class" in jar.namelist():
                found = dict(_fields(jar.read(f"{name}.class")))
                found.pop("additionalProperties", None)
                return found
    raise LookupError(name)


def _fields(data: bytes) -> Iterator[tuple[str, str]]:
    """Fields of a class file with their types (Java Virtual Machine Specification, 4.1 to 4.7)."""
    (count,) = struct.unpack_from(">H", data, 8)
    texts: dict[int, str] = {}
    at, index = 10, 1
    while index < count:
        tag = data[at]
        if tag == _TEXT:
            (length,) = struct.unpack_from(">H", data, at + 1)
            texts[index] = data[at + 3 : at + 3 + length].decode("utf-8", "replace")
            at += 3 + length
        else:
            at += 1 + _SIZES[tag]
        index += 2 if tag in _TWO_ENTRIES else 1
    at += 6  # access, this class, its parent
    (interfaces,) = struct.unpack_from(">H", data, at)
    at += 2 + 2 * interfaces
    (n_fields,) = struct.unpack_from(">H", data, at)
    at += 2
    for _ in range(n_fields):
        _, name, kind, n_attributes = struct.unpack_from(">4H", data, at)
        at += 8
        for _ in range(n_attributes):
            attribute, length = struct.unpack_from(">HI", data, at)
            if texts[attribute] == "Signature":
                (kind,) = struct.unpack_from(">H", data, at + 6)
            at += 6 + length
        yield texts[name], texts[kind]
