"""The texts of tests/fixtures/config-*.inc, as the real readers take them.

usage: config_cases.py yaml|hjson|pydantic > FILE
       config_cases.py check       (are the files still what the readers say?)

PyYAML 6 (its safe loader), hjson 3.1 as DeepSpeed calls it, and pydantic 2 by DeepSpeed's own
configuration classes say what a value becomes.
"""
import contextlib
import io
import math
import os
import sys

SCALARS = """5e8 5.0e8 5.0e+8 5.e+8 1e+9 1.5e-3 3e-5 3.0e-05 0.1 .5 -.5 +.5 1. 1.0 -1.0 +1.0 0 -0 00 010 0o10 0x1F 0X1F 0b101
08 09 1_000 1_000.5 _1 1__0 123456789012345678901234567890 9223372036854775807 9223372036854775808 -9223372036854775808 1:30 1:30.5
1:60 1:5 12:30:45 true True TRUE tRUE yes Yes YES no No NO on On ON off Off OFF y n Y N t f null Null NULL nuLL ~ .inf .Inf
-.inf +.INF .nan .NaN .NAN -.nan auto none None cpu nvme CPU bf16 fp16 fp32 8x 1-2 - + . .. ._5 .5_ 5_ 5_.5 1e5 1E5 1e-5 1.e5
1.5e5 1.5E+5 1.5e+ 1.5e 0x 0x_ 0b 0b2 0_7 -010 -0x10 +0b11 -1:30 1.2.3 10.0.0.1 29500 2e+8 5E8 infinity nan NaN Infinity
1,000 0.0 -0.0 1e400 1.0e+400 /nvme/offload""".split()


def c_str(s):
    return '"' + "".join(c if 32 <= ord(c) < 127 and c not in '"\\?' else "\\%03o" % b
                         for c in s for b in (c.encode() if ord(c) > 126 else [ord(c)])) + '"'


def c_float(f):
    if math.isnan(f):
        return "NAN"
    if math.isinf(f):
        return "INFINITY" if f > 0 else "-INFINITY"
    return repr(float(f))


def row(text, v):
    """TEXT, TYPE, integer, float"""
    if v is None:
        return "ROW(%s, EN_NULL, 0, 0)" % c_str(text)
    if isinstance(v, bool):
        return "ROW(%s, EN_BOOL, %d, 0)" % (c_str(text), v)
    if isinstance(v, int):
        if not -2**63 < v < 2**63:
            return "ROW(%s, EN_FLOAT, 0, %s)" % (c_str(text), c_float(v))
        return "ROW(%s, EN_INT, %d, %s)" % (c_str(text), v, c_float(v))
    if isinstance(v, float):
        return "ROW(%s, EN_FLOAT, 0, %s)" % (c_str(text), c_float(v))
    return "ROW(%s, EN_STR, 0, 0)" % c_str(text)


def yaml_rows():
    import yaml
    for s in SCALARS:
        try:
            v = yaml.safe_load("k: " + s)["k"]
        except (ValueError, yaml.YAMLError):
            continue
        print(row(s, v))


HJSON = [
    '{"k": %s}', "{k: %s\n}", "k: %s\n", "{\n// c\nk: %s # c\n}", "{'k': %s, /* c */ }", "\ufeff{\"k\": %s,}",
]
HJSON_VALUES = """8 8.0 8.5 5e8 5E+8 1e10 1e9 1e11 9999999999.0 10000000000.0 -3.0 0.0 -0.0 1e-8 auto "auto" 'auto' true false null True None
yes nan "8" 1.5e9 0x10 010 1. .5 +1 12345678901234567890 [1,2] {} [] "a\\u0041" 'it"s' none 1_000 9e99""".split()


def hjson_rows():
    import collections
    import hjson

    def pairs(p):
        d = dict(p)
        if len(d) != len(p):
            raise ValueError("twice")
        return d
    for shape in HJSON:
        for s in HJSON_VALUES:
            text = shape % s
            try:
                v = hjson.loads(text, object_pairs_hook=pairs)["k"]
            except (hjson.HjsonDecodeError, ValueError, KeyError):
                print("BAD(%s)" % c_str(text))
                continue
            if isinstance(v, (list, dict)):
                print("ROW(%s, %s, %d, 0)" % (c_str(text), "EN_LIST" if isinstance(v, list) else "EN_DICT", len(v)))
            else:
                print(row(text, v))
    for text in ['{"k": 1 "j": 2}', '{"k": 1\n"j": 2}', '{"k": {"a": 1, "a": 2}}', '{"k": 1, "k": 1}', "", "// c", "[1]", "{", '{"k"}',
                 '{"k": 1} x', '{"k": 1} // x', '{k: a b c, d\n}', "{k: }", '{k k: 1}', '{"k": "a\nb"}', '{"k": [1 2]}', '{"k": [1\n2]}',
                 '{"k": [1,,2]}', '{"k": 1,, "j": 2}', '{"k": /* x */ 1}', '{"k": 1 /* x }']:
        try:
            v = hjson.loads(text, object_pairs_hook=pairs)
            assert isinstance(v, dict)
            print("TEXT(%s, %d)" % (c_str(text), len(v)))
        except (hjson.HjsonDecodeError, ValueError, AssertionError, IndexError):
            print("BAD(%s)" % c_str(text))


VALUES = ["0", "1", "2", "3", "4", "-1", "3.0", "3.5", "0.0", "1.0", "-1.0", "5e8", "500000000", "1e30", "true", "false", "null", '"auto"', '"0"',
          '"1"', '"2"', '" 2 "', '"2.0"', '"2.5"', '"5e8"', '"500000000"', '"1_000"', '"+5"', '"-1"', '"true"', '"True"', '"TRUE"', '"false"', '"yes"',
          '"no"', '"on"', '"off"', '"y"', '"n"', '"t"', '"f"', '"Y"', '"T"', '"none"', '"cpu"', '"CPU"', '"nvme"', '""', '"1e-5"', '"0.5"',
          '"inf"', '"nan"', "[]", "[1]", "{}", "0.5", "9223372036854775807", "9223372036854775808", '"/nvme"', '"abc"', '"0x10"', '"1__0"',
          '"_1"', '"1_"', '"00012"', '"1."', '".0"', '"1.00"', '"1e2"', '" true"']
FIELDS = ["zero_optimization.stage", "zero_optimization.reduce_bucket_size", "zero_optimization.overlap_comm",
          "zero_optimization.contiguous_gradients", "zero_optimization.stage3_prefetch_bucket_size",
          "zero_optimization.offload_optimizer.device", "zero_optimization.offload_optimizer.nvme_path",
          "zero_optimization.offload_optimizer.ratio", "zero_optimization.offload_optimizer.pin_memory", "fp16.loss_scale",
          "fp16.loss_scale_window", "fp16.min_loss_scale", "fp16.hysteresis", "fp16.enabled", "bf16.enabled"]


def pydantic_rows():
    import hjson
    from deepspeed.runtime.precision_config import get_bfloat16_config, get_float16_config
    from deepspeed.runtime.zero.config import get_zero_config
    makers = {"zero_optimization": get_zero_config, "fp16": get_float16_config, "bf16": get_bfloat16_config}
    for field in FIELDS:
        parts = field.split(".")
        for s in VALUES:
            d = v = hjson.loads('{"v": %s}' % s)["v"]
            for p in reversed(parts):
                d = {p: d}
            if field.endswith(".ratio"):
                d["zero_optimization"]["stage"] = 3     # below 1 it is for stage 3 only
            try:
                got = makers[parts[0]](d)
                for p in parts[1:]:
                    p = p[7:] if p.startswith("stage3_") else p
                    got = getattr(got, p)
            except Exception:
                print("BAD(%s, %s)" % (c_str(field), c_str(s)))
                continue
            got = getattr(got, "value", got)
            if got is None:
                print("NONE(%s, %s)" % (c_str(field), c_str(s)))
            elif isinstance(got, (bool, int)):
                fits = -2**63 < got < 2**63
                print("INT(%s, %s, %s)" % (c_str(field), c_str(s), "%d" % got if fits else "BIG"))
            elif isinstance(got, float):
                print("FLOAT(%s, %s, %s)" % (c_str(field), c_str(s), c_float(got)))
            else:
                print("TEXT(%s, %s, %s)" % (c_str(field), c_str(s), c_str(str(got))))


MAKERS = {"yaml": yaml_rows, "hjson": hjson_rows, "pydantic": pydantic_rows}


def check():
    fixtures = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures")
    passed = failed = 0
    for name, make in MAKERS.items():
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            make()
        with open(os.path.join(fixtures, "config-%s.inc" % name), encoding="utf-8") as f:
            same = [r for r in text.getvalue().splitlines() if "(" in r[:12]] == f.read().splitlines()
        print("config-%s.inc: %s" % (name, "the same" if same else "the readers say something else now"))
        passed, failed = passed + same, failed + (not same)
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return failed != 0


os.environ.setdefault("DS_ACCELERATOR", "cpu")
sys.exit(check() if sys.argv[1] == "check" else MAKERS[sys.argv[1]]())
