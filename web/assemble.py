"""Assemble a WebAssembly text of one function into its bytes.

    python web/assemble.py web/live/mm.wat web/live/mm.wasm

It knows what `mm.wat` uses and says so of anything else: one imported
memory, one exported function without a result, folded instructions.
"""

import re
import sys
from itertools import groupby
from pathlib import Path

TYPES = {"i32": 0x7F, "v128": 0x7B}
SIMD = 0xFD  # begins every instruction on four numbers at once
OPCODES = {
    "loop": [0x03],
    "br_if": [0x0D],
    "local.get": [0x20],
    "local.set": [0x21],
    "i32.const": [0x41],
    "i32.lt_u": [0x49],
    "i32.add": [0x6A],
    "i32.sub": [0x6B],
    "i32.mul": [0x6C],
    "i32.shl": [0x74],
    "v128.load": [SIMD, 0x00],
    "v128.load32_splat": [SIMD, 0x09],
    "v128.store": [SIMD, 0x0B],
    "f32x4.add": [SIMD, 0xE4, 0x01],
    "f32x4.mul": [SIMD, 0xE6, 0x01],
}
ALIGNED = {"v128.load": 4, "v128.load32_splat": 2, "v128.store": 4}
NO_RESULT, END = 0x40, 0x0B


def parse(text: str) -> list:
    """The text's parentheses as lists in lists, its words as strings."""
    words = re.findall(r'[()]|"[^"]*"|[^\s()]+', re.sub(";;.*", "", text))
    whole = [[]]
    for word in words:
        if word == "(":
            whole.append([])
        elif word == ")":
            done = whole.pop()
            whole[-1].append(done)
        else:
            whole[-1].append(word)
    return whole[0]


def unsigned(number: int) -> bytes:
    """LEB128: seven bits a byte, the lowest first."""
    found = []
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def sized(content: bytes) -> bytes:
    return unsigned(len(content)) + content


def listed(parts: list[bytes]) -> bytes:
    return unsigned(len(parts)) + b"".join(parts)


def instruction(node: list, local: dict, labels: list[str]) -> bytes:
    """One instruction, after those that make what it takes."""
    name, *rest = node
    if name not in OPCODES:
        raise ValueError(f"{name} is unknown: add its opcode to OPCODES")
    code = bytes(OPCODES[name])
    if name == "loop":
        label, *body = rest
        inside = [*labels, label]
        parts = [instruction(one, local, inside) for one in body]
        return code + bytes([NO_RESULT]) + b"".join(parts) + bytes([END])
    words = [one for one in rest if isinstance(one, str)]
    taken = [one for one in rest if isinstance(one, list)]
    before = b"".join(instruction(one, local, labels) for one in taken)
    return before + code + immediates(name, words, local, labels)


def immediates(
    name: str, words: list[str], local: dict, labels: list[str]
) -> bytes:
    """What an instruction has in it besides its code."""
    if name in ALIGNED:
        offset = int(words[0].removeprefix("offset=")) if words else 0
        return unsigned(ALIGNED[name]) + unsigned(offset)
    if name.startswith("local."):
        return unsigned(local[words[0]])
    if name == "br_if":
        return unsigned(labels[::-1].index(words[0]))
    if name == "i32.const":
        number = int(words[0])
        if not 0 <= number < 64:  # the seventh bit is the sign
            raise ValueError(f"i32.const {number}: from 0 to 63, please")
        return bytes([number])
    return b""


def assemble(text: str) -> bytes:
    """The bytes of a module."""
    ((_, memory, function),) = parse(text)
    _, module, name, (_, pages) = memory
    _, (_, exported), *rest = function
    declared = [one for one in rest if one[0] in ("param", "local")]
    body = rest[len(declared) :]
    local = {one[1]: number for number, one in enumerate(declared)}
    kinds = {
        word: [TYPES[one[2]] for one in declared if one[0] == word]
        for word in ("param", "local")
    }
    lines = [instruction(one, local, []) for one in body]
    runs = [(kind, len(list(run))) for kind, run in groupby(kinds["local"])]
    locals_ = listed([bytes([count, kind]) for kind, count in runs])

    def quoted(word):
        return sized(word.strip('"').encode())

    sections = {
        1: [b"\x60" + sized(bytes(kinds["param"])) + b"\x00"],
        2: [quoted(module) + quoted(name) + b"\x02\x00" + bytes([int(pages)])],
        3: [b"\x00"],
        7: [quoted(exported) + b"\x00\x00"],
        10: [sized(locals_ + b"".join(lines) + bytes([END]))],
    }
    parts = [
        bytes([number]) + sized(listed(content))
        for number, content in sections.items()
    ]
    return b"\0asm" + bytes([1, 0, 0, 0]) + b"".join(parts)


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_bytes(assemble(source.read_text("utf-8")))
