#!/usr/bin/env python3
"""Patterns of names, and what Python's re.match says of each: tests/fixtures/regex.inc.

usage: regex_cases.py [--update]

DeepSpeed finds the rule of a tensor with re.match(pattern, name).  The file has a line for each
pattern and name: 1 = it matches, 0 = it does not, -1 = Python has no such pattern.  Without
--update the file is compared with what this Python says.  The last line is
`N passed, N failed, N skipped`.
"""
import os
import random
import re
import sys
import warnings

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "regex.inc")

# patterns that DeepSpeed 0.19.8 and Megatron-DeepSpeed write
NAMES = [
    "model.layers.1.mlp.down_proj.weight", "model.layers.1.mlp.down_proj.weight_scale", "model.norm.weight",
    "model.layers.0.input_layernorm.weight", "model.layers.10.self_attn.o_proj.weight",
    "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.qkv_proj.weight", "lm_head.weight",
    "language_model.embedding.word_embeddings.weight", "language_model.embedding.position_embeddings.weight",
    "1.self_attention.dense.weight", "1.self_attention.dense.bias", "1.mlp.dense_4h_to_h.weight",
    "1.mlp.dense_h_to_4h.weight", "1.mlp.dense_h_to_4h_swiglu.weight", "2.input_layernorm.bias",
    "tied_modules.embed.word_embeddings.weight", "model.layers.3.mlp.experts.w1",
    "model.layers.3.block_sparse_moe.experts.12.w2.weight", "model.layers.3.block_sparse_moe.gate.weight",
    "model.layers.0.mlp.gate_up_proj.weight", "model.layers.0.mlp.up_proj.weight",
    "transformer.h.0.self_attention.query_key_value.weight",
]
RULES = [
    r"^model\.layers\.1\.mlp\.down_proj\.weight$", r"^model\.norm\.weight$", r"^lm_head\.weight$",
    r"^model\.layers\.0\.input_layernorm\.weight$", r".*dense_4h_to_h\.weight", r".*dense_4h_to_h\.bias",
    r".*dense_h_to_4h\.weight", r".*dense_h_to_4h_swiglu\.weight", r".*layernorm\.weight", r".*layernorm\.bias",
    r".*dense\.weight", r".*dense\.bias", r".*word_embeddings.weight", r".*position_embeddings\.weight",
    r"language_model\.embedding\.word_embeddings\.weight", r"tied_modules\.embed\.word_embeddings\.weight",
    r".*\.experts\.w[123]$", r".*\.experts\..*\.w1\.weight$", r".*\.[qkv]_proj$", r".*\.self_attn\.[qkv]_proj\.weight$",
    r".*\.self_attn\.o_proj\.weight$", r".*\.mlp\.(up|gate)_proj\.weight$", r".*\.query_key_value\.weight$",
    r".*\.block_sparse_moe\.experts\.\d+\.w2\.weight$", r".*\.block_sparse_moe\.experts\.\d+\.w[13]\.weight$",
    r".*\.gate$", r".*\.gate_up_proj\.weight$", r"\d+.input_layernorm\.bias", r"\d+.self_attention.dense.weight",
    r"\d+.mlp.dense_h_to_4h.weight", r".*lm_head\.weight$", r"model.layers.\d+.mlp.(up|down|gate)_proj.weight",
]
# every construct, and what is none
STRINGS = ["", "a", "b", "ab", "aab", "abb", "a.b", "a\n", "\n", "a\nb", "1", "a1_", "-", "]", "^", "$", "a-", " ", "(",
           "\x1c", "\\", "é", "éa", "\xa0", "\u2028", "中b", "{", "a{2}", "*"]
FORMS = [
    "", "a", "ab", ".", "a.b", r"a\.b", "a*", "a+", "a?", "a*?b", "a+?", "a??b", "a*b*", "a|b", "a|", "|a", "|", "a||b",
    "(a)", "(?:a)", "(a|b)*", "(a*)*", "(a|)*b", "()", "(|a)+b", "((a)b)+", "(?:a|ab)(?:b|)$", "^a", "a^", "^^a", "a$", "$", "^$",
    "a$b", "$\n", "a$\n", "(a|^)b", "(^a|b$)", "a(b|$)", "[ab]", "[^ab]", "[a-c]+$", "[]]", "[^]]", "[]a]", "[a-]+$", "[-a]",
    r"[\]a]", r"[\-a]+$", r"[a\-]", "[^^]", "[$]", "[.]", "[*]", r"[\\]", r"[\d]", r"[\w]+$", r"[\w.]+$", r"[^\d]", r"[\s]", r"\d", r"\w+$",
    r"\s", r"\s*$", r"\.", r"\*", r"\(", r"\[", r"\\", r"\-", r"\]", r"\{", r"\^", r"\$", r"\ ", r"\é", "é", "[é]", "[à-ü]a", "[^é]", "[ -~]+$",
    "]", "a]", "-", "中.", "[[]", "(a+)+$", "(a|a)*$", "(a|ab)(b|bb)?$", "a*a*a*a*b",
    # none for Python
    "*", "+a", "?", "a**", "a+*", "a?*", "(*)", "(", ")", "(a", "a)", "[", "[]", "[^]", "[a", "[b-a]", r"[\w-a]", r"[a-\w]", "\\", "a\\", "^*", "$+", "a|*",
    "(?", "(?a", "(?:a", r"\q", r"\y",
]
MADE = 60


def atom(draw, depth):
    kind = draw.randint(0, 11)
    if kind < 4:
        return draw.choice("ab")
    if kind == 4:
        return "."
    if kind == 5:
        return draw.choice([r"\.", r"\d", r"\w", r"\s", r"\[", r"\\"])
    if kind == 6:
        return draw.choice(["[ab]", "[^a]", "[a-c]", r"[\w.]", "[]]", "[^]]", "[a-]", r"[\s\d]"])
    if kind == 7:
        return draw.choice("^$")
    return draw.choice(["(", "(?:"]) + choice(draw, depth - 1) + ")" if depth else "a"


def sequence(draw, depth):
    return "".join(atom(draw, depth) + draw.choice(["", "", "", "*", "+", "?", "*?", "+?", "??"])
                   for _ in range(draw.randint(0, 4)))


def choice(draw, depth):
    return "|".join(sequence(draw, depth) for _ in range(draw.choice([1, 1, 1, 2, 3])))


def cases():
    draw = random.Random(21)
    for pattern in RULES:
        for name in NAMES:
            yield pattern, name
    for pattern in FORMS:
        for name in STRINGS:
            yield pattern, name
    for _ in range(MADE):
        pattern = choice(draw, 2)
        for _ in range(5):
            yield pattern, "".join(draw.choice("aabb.1\n]") for _ in range(draw.randint(0, 6)))


def quote(text):
    out = ""
    for byte in text.encode():
        char = chr(byte)
        out += "\\" + char if char in '"\\' else char if 32 <= byte < 127 and char != "?" else f"\\{byte:03o}"
    return '"' + out + '"'


def verdict(pattern, name):
    try:
        return int(re.match(pattern, name) is not None)
    except re.error:
        return -1


def text():
    out = "/* Made by tests/interop/regex_cases.py: pattern, name, what re.match of Python 3.11 says. */\n"
    seen = set()
    for pattern, name in cases():
        said = verdict(pattern, name)
        if (pattern, name if said >= 0 else None) in seen:
            continue
        seen.add((pattern, name if said >= 0 else None))
        out += f"{{ {quote(pattern)}, {quote(name if said >= 0 else '')}, {said} }},\n"
    return out


def main():
    warnings.simplefilter("ignore")
    if "--update" in sys.argv[1:]:
        with open(FILE, "w") as out:
            out.write(text())
        return 0
    with open(FILE) as was:
        good = was.read() == text()
    print("" if good else f"FAIL {FILE} is not what this Python says\n", end="")
    print(f"{int(good)} passed, {int(not good)} failed, 0 skipped")
    return not good


if __name__ == "__main__":
    sys.exit(main())
