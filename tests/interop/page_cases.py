"""The pages of `zckpt report` in Chromium: keys, searches, 100,000 tensors, hostile names.

    page_cases.py --fixtures build/fixtures WORK

If this fails, a page is empty, stalls, or runs what a file says.  Skipped without a browser.
"""
import argparse
import json
import os
import random
import struct
import subprocess
import sys

from browser import Page, find

ZCKPT = os.environ.get("ZCKPT", "build/zckpt")
MANY = 100_000
ODD = ["</script><img src=x onerror=alert(1)>", "<!--<script>", "a\"b'c&amp;`${x}\\u003c", "__proto__",
       "constructor.prototype", "\u202egnp.evil", "x" * 3000 + ".weight", "\u00fc.\u6a21\u578b.\U0001f600"]
bad = 0


def check(what, got, want=True):
    global bad
    if got != want:
        bad += 1
        print(f"not ok: {what}: {got!r}, expected {want!r}")


def write(path, tensors):
    """tensors: name, dtype, shape, bytes."""
    head, at = {}, 0
    for name, dtype, shape, data in tensors:
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for t in tensors:
            f.write(t[3])


def report(out, *words):
    subprocess.run([ZCKPT, "report", "-q", "-f", "-o", out, *words], check=True, stderr=subprocess.DEVNULL)
    return "file://" + os.path.abspath(out)


def text_of(page, query):
    return page.js(f"(document.querySelector({query!r}) || {{}}).textContent")


def search(page, words):
    """Milliseconds that a search took, and its answer."""
    return page.js(f"""(() => {{ const f = document.querySelector('#tensors input');
        f.value = {json.dumps(words)}; f.dispatchEvent(new Event('input'));
        return [+f.dataset.ms, document.querySelector('#tensors .tools .muted').textContent]; }})()""")


def keys(fixtures, work):
    """Lanes, list and treemap by the keyboard, in light and dark."""
    url = report(f"{work}/a.html", f"{fixtures}/deepspeed/ds0.19.8-z3-bf16-w2-tied3/ckpt")
    for dark in (False, True):
        page = Page(url + "#tensor=emb.weight", dark=dark)
        check("a tensor by its name", text_of(page, "#tensor-name"), "emb.weight")
        page.js("document.querySelector('#lanes canvas').focus()")
        page.key("ArrowRight", 2)
        first = text_of(page, "#lanes .readout")
        page.key("ArrowDown")
        check("a lane is read", first.startswith("rank 0, ") and " at byte " in first)
        check("another rank", text_of(page, "#lanes .readout").startswith("rank 1, "))
        page.key("+")
        page.key("Enter")
        name = text_of(page, "#tensor-name")
        check("Enter opens the tensor", name in text_of(page, "#lanes .readout"))
        page.js("document.querySelector('#tensors .list').focus()")
        page.key("Home")
        page.key("ArrowDown", 3)
        chosen = page.js("document.querySelector('#tensors .row.on span').textContent")
        check("the list follows keys", text_of(page, "#tensor-name"), chosen)
        before = text_of(page, ".crumbs")
        page.js("document.querySelector('.tree button').focus()")
        page.key("Enter")
        check("the treemap descends", text_of(page, ".crumbs") != before)
        page.key("Escape")
        check("and comes back", text_of(page, ".crumbs"), before)
        check("no error", page.errors(), [])
        page.close()


def hostile(work):
    write(f"{work}/odd.safetensors", [(n, "F32", [1], struct.pack("<f", 1)) for n in ODD])
    url = report(f"{work}/odd.html", f"{work}/odd.safetensors")
    page = Page(url)
    check("elements from names", page.js("document.querySelectorAll('main img, main script').length"), 0)
    check("names as they are", page.js("zdata('data').tensors.name"), ODD)
    check("one row each", page.js("document.querySelectorAll('#tensors .row').length"), len(ODD))
    check("no mark that turns text around", "\u202e" in page.js("document.body.innerText"), False)
    check("no error", page.errors(), [])
    page.close()


def many(work):
    """100,000 tensors: few elements exist, and a search answers while somebody types."""
    parts = ("self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj", "input_layernorm")
    noise = random.Random(1)
    data = struct.pack("<64f", *(noise.gauss(0, 0.02) for _ in range(64)))
    write(f"{work}/many.safetensors",
          [(f"model.layers.{i // 5}.{parts[i % 5]}.weight", "F32", [8, 8], data) for i in range(MANY)])
    url = report(f"{work}/many.html", f"{work}/many.safetensors")
    page = Page(url)
    check("all of them", search(page, "")[1], "100,000 of 100,000 tensors")
    slowest, found = search(page, "layers.777 q_proj")
    check("a search", found, "11 of 100,000 tensors")
    check("elements of the page", page.js("document.querySelectorAll('*').length") < 2000)
    page.js("document.querySelector('#tensors .list').focus()")
    search(page, "")
    page.key("End")
    check("the last one", text_of(page, "#tensor-name"), f"model.layers.{MANY // 5 - 1}.input_layernorm.weight")
    check("no error", page.errors(), [])
    # bounds for a busy machine; the numbers are printed
    check("the page loads", page.seconds < 20)
    check("a search is quick", slowest < 1000)
    print(f"100,000 tensors: {os.path.getsize(work + '/many.html') / 1e6:.1f} MB, loaded in "
          f"{page.seconds:.2f} s, a search {slowest:.0f} ms")
    page.close()


def thousand(work):
    """A page of 1,000 tensors in 64 ranks has at most 2 MB."""
    data = struct.pack("<512f", *([0.25] * 512))
    names = [f"model.layers.{i // 10}.part{i % 10}.weight" for i in range(1000)]
    write(f"{work}/k.safetensors", [(n, "F32", [64, 8], data) for n in names])
    with open(f"{work}/order", "w") as f:
        f.write("\n".join(names) + "\n")
    subprocess.run([ZCKPT, "shard", "-q", "--force", "--order", f"{work}/order", "--world", "64", "--stage", "3", "--lr",
                    "1e-5", f"{work}/k.safetensors", f"{work}/K"], check=True)
    url = report(f"{work}/k.html", f"{work}/K")
    check("at most 2 MB", os.path.getsize(f"{work}/k.html") <= 2_000_000)
    page = Page(url)
    check("a lane for each rank",
          page.js("new Set(zdata('data').lanes.map(l => l.rank)).size"), 64)
    check("no error", page.errors(), [])
    page.close()


def difference(fixtures, work):
    run = f"{fixtures}/deepspeed/ds0.19.8-z2-bf16-w2-twotags/ckpt"
    page = Page(report(f"{work}/d.html", f"{run}/global_step2", f"{run}/global_step4"))
    check("bars of four states", page.js("document.querySelectorAll('#layers .bars').length"), 4)
    page.js("document.querySelector('#layers svg').focus()")
    page.key("ArrowRight")
    check("a bar is read", "differ in" in text_of(page, "#layers .readout"))
    page.js("document.querySelector('.list').focus()")
    page.key("ArrowDown")
    check("a row is read", "elements differ" in text_of(page, "#rows .detail"))
    check("no error", page.errors(), [])
    page.close()


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("--fixtures", required=True)
    ask.add_argument("work")
    opts = ask.parse_args()
    if not find():
        print("no chromium is installed", file=sys.stderr)
        print("0 passed, 0 failed, 1 skipped")
        return 0
    os.makedirs(opts.work, exist_ok=True)
    keys(opts.fixtures, opts.work)
    hostile(opts.work)
    many(opts.work)
    thousand(opts.work)
    difference(opts.fixtures, opts.work)
    print("pages: " + ("failed" if bad else "all parts work"))
    return bad != 0


sys.exit(main())
