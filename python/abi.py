#!/usr/bin/env python3
"""Write src/zckpt/_abi.py from the public headers of libckpt.

    python3 abi.py            rewrite the file
    python3 abi.py --check    fail if the file differs from the headers

The headers are plain C with one declaration a statement, so a small reader is enough: structs,
enums, #define of numbers, one typedef of a callback, and prototypes.  What it does not understand
stops it.  tests/test_abi.py compares sizes and offsets with those of a C compiler.
"""
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
INCLUDE = HERE.parent / "libckpt" / "include"
OUT = HERE / "src" / "zckpt" / "_abi.py"
HEADERS = ("ckpt ckpt_value ckpt_convert ckpt_verify ckpt_diff ckpt_digest ckpt_reshard ckpt_shard "
           "ckpt_load ckpt_cat ckpt_estimate ckpt_keep ckpt_pack ckpt_save ckpt_view")

SCALARS = {
    "int": "c_int", "unsigned": "c_uint", "double": "c_double", "size_t": "c_size_t",
    "int32_t": "c_int32", "uint32_t": "c_uint32", "int64_t": "c_int64", "uint64_t": "c_uint64",
    "uint8_t": "c_uint8", "char": "c_char", "void": "None",
}


def plain(text):
    """Text without comments, preprocessor lines and the guards of C++."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    defines = re.findall(r"^#define[ \t]+(\w+)[ \t]+(.+)$", text, flags=re.M)
    text = re.sub(r"^#(?:[^\n\\]|\\\n)*$", "", text, flags=re.M)
    return re.sub(r'extern "C" \{', "", text), defines


def number(text):
    text = text.strip().strip("()")
    if text == "UINT64_MAX":
        return 2 ** 64 - 1
    match = re.fullmatch(r"(-?(?:0x[0-9a-fA-F]+|\d+))[uUlL]*", text)
    return int(match.group(1), 0) if match else None


class Reader:
    def __init__(self):
        self.constants, self.structs, self.functions, self.callbacks = {}, {}, {}, {}
        self.opaque = set()

    def base(self, words):
        """The ctypes name of a type without its stars."""
        words = [w for w in words if w not in ("const", "volatile")]
        if words[0] == "enum":
            return "c_int"
        if words[0] == "struct":
            return words[1]
        if words[0] in self.callbacks:
            return words[0]
        return SCALARS[words[0]]

    def typed(self, words, stars):
        base = self.base(words)
        if stars and base in self.opaque:
            base, stars = "c_void_p", stars - 1
        elif stars and base == "None":
            base, stars = "c_void_p", stars - 1
        elif stars and base == "c_char":
            base, stars = "c_char_p", stars - 1
        for _ in range(stars):
            base = f"POINTER({base})"
        return base

    def callback(self, text):
        """'int (*name)(ARGS)' -> name, CFUNCTYPE(...)"""
        match = re.fullmatch(r"(.+?)\(\*\s*(\w+)\)\s*\((.*)\)", text, flags=re.S)
        result, name, args = match.groups()
        kinds = [self.typed(result.split(), 0)] + [self.argument(a)[1] for a in args.split(",")]
        return name, f"CFUNCTYPE({', '.join(kinds)})"

    def argument(self, text):
        text = re.sub(r"\*", " * ", text)
        words = text.split()
        stars = words.count("*")
        words = [w for w in words if w not in ("*", "const", "volatile")]
        known = 2 if words[0] in ("enum", "struct") else 1
        name = words[known] if len(words) > known else ""
        return name, self.typed(words[:known], stars)

    def fields(self, body):
        out = []
        for statement in filter(None, (s.strip() for s in body.split(";"))):
            if "(*" in statement:
                out.append(self.callback(statement))
                continue
            words = re.match(r"((?:const |volatile )*(?:(?:struct|enum) )?\w+)\b(.*)", statement, flags=re.S)
            for one in words.group(2).split(","):
                one = re.sub(r"\bconst\b", " ", one)
                match = re.fullmatch(r"\s*([\s*]*)(\w+)\s*(?:\[(\w+)\])?\s*", one)
                stars, name, length = match.group(1).count("*"), match.group(2), match.group(3)
                kind = self.typed(words.group(1).split(), stars)
                if length:
                    kind += f" * {number(length) if number(length) is not None else self.constants[length]}"
                out.append((name, kind))
        return out

    def enum(self, body):
        value = -1
        for item in filter(None, (s.strip() for s in body.split(","))):
            name, _, said = (p.strip() for p in item.partition("="))
            value = number(said) if said else value + 1
            self.constants[name] = value

    def read(self, text):
        text, defines = plain(text)
        for name, value in defines:
            if number(value) is not None:
                self.constants[name] = number(value)
            elif name == "CKPT_VERSION_STRING":
                self.constants[name] = value.strip('"')
        for body in re.findall(r"\benum \w* ?\{(.*?)\}", text, flags=re.S):
            self.enum(body)
        text = re.sub(r"\benum \w* ?\{.*?\};", "", text, flags=re.S)
        for name in re.findall(r"^struct (\w+);", text, flags=re.M):
            self.opaque.add(name)
        for typedef in re.findall(r"typedef ([^;]*);", text):
            name, kind = self.callback(typedef)
            self.callbacks[name] = kind
        for name, body in re.findall(r"\bstruct (\w+) \{(.*?)\n\};", text, flags=re.S):
            self.structs[name] = body
            self.opaque.discard(name)
        text = re.sub(r"\bstruct (\w+) \{.*?\n\};", "", text, flags=re.S)
        for head, args in re.findall(r"CKPT_API ([^;(]*)\(([^;]*)\);", text, flags=re.S):
            self.functions[head.replace("*", " ").split()[-1]] = (head, args)


def source():
    reader = Reader()
    texts = [(INCLUDE / f"{name}.h").read_text() for name in HEADERS.split()
             if (INCLUDE / f"{name}.h").exists()]
    for text in texts:
        reader.read(text)
    reader.opaque -= set(reader.structs)
    lines = ['"""The C interface of libckpt for ctypes: written by abi.py from libckpt/include."""',
             "# ruff: noqa",
             "from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_int, c_int32,",
             "                    c_int64, c_size_t, c_uint, c_uint8, c_uint32, c_uint64, c_void_p)", ""]
    lines += [f"{name} = {value!r}" for name, value in reader.constants.items()]
    lines.append("")
    for name in reader.structs:
        lines.append(f"class {name}(Structure): pass")
    lines.append("")
    for name, kind in reader.callbacks.items():
        lines.append(f"{name} = {kind}")
    for name, body in reader.structs.items():
        lines.append(f"{name}._fields_ = [")
        lines += [f'    ("{field}", {kind}),' for field, kind in reader.fields(body)]
        lines.append("]")
    lines += ["", "# name: (result, arguments)", "FUNCTIONS = {"]
    for name, (head, args) in reader.functions.items():
        _, result = reader.argument(re.sub(r"\w+$", "", head))
        kinds = [] if args.strip() == "void" else [reader.argument(a)[1] for a in args.split(",")]
        lines.append(f'    "{name}": ({result}, [{", ".join(kinds)}]),')
    lines.append("}")
    return "\n".join(lines) + "\n"


def main():
    text = source()
    if sys.argv[1:] == ["--check"]:
        if not OUT.exists() or OUT.read_text() != text:
            sys.exit(f"{OUT}: differs from the headers; run python3 {Path(__file__).name}")
        return
    if sys.argv[1:]:
        sys.exit(__doc__)
    OUT.write_text(text)


if __name__ == "__main__":
    main()
