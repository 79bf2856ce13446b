"""Token files have a loss on answers only, and ztrain reads them."""
import array
import json
import os
import shutil
import subprocess

import pytest

from zckpt.prepare import IGNORE, BadRow, main, prepare

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

CHATML = ("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
# As Qwen3 does: thoughts of earlier turns disappear when more turns follow.
FORGETS = ("{% for m in messages %}[{{ m['role'] }}]{{ m['content'] if loop.last else m['content'].split('|')[-1] }}"
           "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}")


def tokenizer(template=CHATML):
    """Each byte is a token, besides three special ones."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<|end|>", "<|im_start|>", "<|im_end|>"]
    raw = Tokenizer(models.BPE({t: i for i, t in enumerate(special + letters)}, []))
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    raw.add_special_tokens(special)
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|end|>", pad_token="<|end|>")
    made.chat_template = template
    return made


def written(tmp_path, rows, tok=None, name="rows.jsonl", **options):
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(json.dumps(r) for r in rows) + "\n", encoding="utf-8")
    counts = prepare([source], tmp_path / name, tok or tokenizer(), **options)
    lines = (tmp_path / name).read_text().splitlines() if name.endswith(".jsonl") else []
    return counts, [json.loads(line) for line in lines]


def with_loss(tok, row):
    return tok.decode([i for i, label in zip(row["input_ids"], row["labels"]) if label != IGNORE])


def test_a_conversation_has_loss_on_answers(tmp_path):
    tok = tokenizer()
    talk = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi ä"},
                         {"role": "assistant", "content": "Hello ö"}, {"role": "user", "content": "More"},
                         {"role": "assistant", "content": "No"}]}
    counts, (row,) = written(tmp_path, [talk], tok)
    assert tok.decode(row["input_ids"]) == tok.apply_chat_template(talk["messages"], tokenize=False)
    assert with_loss(tok, row) == "Hello ö<|im_end|>\nNo<|im_end|>\n"
    assert counts["rows"] == 1 and counts["with_loss"] == sum(x != IGNORE for x in row["labels"])
    assert all(label in (IGNORE, i) for i, label in zip(row["input_ids"], row["labels"]))


def test_sharegpt_names(tmp_path):
    tok = tokenizer()
    _, (row,) = written(tmp_path, [{"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}],
                        tok)
    assert with_loss(tok, row) == "a<|im_end|>\n"


@pytest.mark.parametrize("row, answer", [
    ({"prompt": "1+1=", "completion": "2"}, "2<|end|>"),
    ({"instruction": "Add", "input": "1 1", "output": "2"}, "2<|im_end|>\n"),
    ({"question": "q", "answer": "a"}, "a<|im_end|>\n"),
    ({"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "a"}]},
     "a<|im_end|>\n"),
])
def test_pairs(tmp_path, row, answer):
    tok = tokenizer()
    _, (out,) = written(tmp_path, [row], tok)
    assert with_loss(tok, out) == answer


def test_text_has_loss_everywhere(tmp_path):
    tok = tokenizer()
    _, (row,) = written(tmp_path, [{"text": "abc"}], tok)
    assert "labels" not in row and tok.decode(row["input_ids"]) == "abc<|end|>"
    counts, _ = written(tmp_path, [{"text": "abc"}, {"text": "de"}], tok, "tokens.u32")
    ids = array.array("I", (tmp_path / "tokens.u32").read_bytes())
    assert tok.decode(list(ids)) == "abc<|end|>de<|end|>" and counts["tokens"] == 7


def test_long_rows_are_cut(tmp_path):
    counts, rows = written(tmp_path, [{"text": "abcdef"}, {"text": "a"}], max_length=4)
    assert [len(r["input_ids"]) for r in rows] == [4, 2] and counts["cut"] == 1


@pytest.mark.parametrize("row, text", [
    ({"words": "x"}, "no text, messages"), ([1], "object"), ({"messages": []}, "list of messages"),
    ({"messages": [{"role": "user", "content": "x"}]}, "no message of the assistant"),
    ({"messages": [{"role": "user"}]}, "role and content"), ({"prompt": 1, "completion": "x"}, "strings"),
])
def test_rows_that_cannot_be_used(tmp_path, row, text):
    with pytest.raises(BadRow, match=text) as caught:
        written(tmp_path, [{"text": "good"}, row])
    assert "line 2" in str(caught.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.jsonl"]
    counts, rows = written(tmp_path, [{"text": "good"}, row], skip_bad=True)
    assert counts["skipped"] == 1 and len(rows) == 1


def test_a_template_that_forgets_is_not_guessed(tmp_path):
    talk = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "thought|a"},
                         {"role": "user", "content": "r"}, {"role": "assistant", "content": "thought|b"}]}
    with pytest.raises(BadRow, match="differently"):
        written(tmp_path, [talk], tokenizer(FORGETS))
    _, (row,) = written(tmp_path, [talk], tokenizer(FORGETS), all_tokens=True)
    assert "labels" not in row


def test_outputs(tmp_path):
    talk = [{"prompt": "a", "completion": "b"}]
    with pytest.raises(BadRow, match="which tokens have a loss"):
        written(tmp_path, talk, name="x.u32")
    with pytest.raises(BadRow, match=".jsonl, .u16 or .u32"):
        written(tmp_path, talk, name="x.txt")
    written(tmp_path, talk)
    with pytest.raises(BadRow, match="--force"):
        written(tmp_path, talk)
    written(tmp_path, talk, force=True)


def test_the_command(tmp_path, capsys):
    tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "in.txt").write_text("some text")
    assert main(["--tokenizer", str(tmp_path / "model"), "--out", str(tmp_path / "rows.jsonl"),
                 str(tmp_path / "in.txt")]) == 0
    assert "1 rows, 10 tokens, 10 with a loss" in capsys.readouterr().out
    assert main(["--tokenizer", str(tmp_path / "model"), "--out", str(tmp_path / "rows.jsonl"),
                 str(tmp_path / "none.txt"), "--force"]) == 1
    assert "none.txt" in capsys.readouterr().err


def test_ztrain_reads_the_rows(tmp_path):
    from conftest import FIXTURES

    ztrain = os.environ.get("ZTRAIN") or shutil.which("ztrain")
    model = FIXTURES / "model" / "models" / "qwen25"
    if not ztrain or not model.is_dir():
        pytest.skip("no ztrain on PATH, or no fixtures")
    vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
    rows = [{"input_ids": [i % vocabulary for i in range(20)], "labels": [IGNORE] * 10 + [1] * 10}] * 4
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(r) for r in rows))
    out = subprocess.run([ztrain, "--model", str(model), "--data", str(tmp_path / "rows.jsonl"), "--steps", "1"],
                         capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
