"""Text and conversations to the token files that ztrain reads.

    zckpt-prepare --tokenizer MODEL --out rows.jsonl chat.jsonl

Input: .jsonl or .json with objects, or .txt (a document a file).  What a row is, by its keys:

    text                            a document: loss on all tokens
    messages, or conversations      a conversation: loss on the assistant's answers
    prompt and completion           (also: instruction, input and output; question and answer)
                                    loss on the completion

Output: .jsonl has a row a line with "input_ids" and "labels" (-100: no loss); .u16 and .u32 have
the tokens of all documents one after the other, with the end token between them, for training on
plain text.  The file appears complete or not at all.
"""
from __future__ import annotations

import argparse
import array
import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

IGNORE = -100
PAIRS = (("prompt", "completion"), ("instruction", "output"), ("question", "answer"), ("prompt", "response"))
ROLES = {"human": "user", "gpt": "assistant"}       # as ShareGPT names them

Row = Tuple[List[int], List[int]]


class BadRow(Exception):
    """A row that cannot be used: what is wrong with it."""


def rows_of(path: Path) -> Iterator[Tuple[str, Any]]:
    """The place and the value of each row."""
    if path.suffix == ".txt":
        yield str(path), {"text": path.read_text(encoding="utf-8")}
        return
    with open(path, encoding="utf-8") as file:
        if path.suffix == ".json":
            try:
                whole = json.load(file)
            except ValueError as why:
                raise BadRow(f"{path}: {why}") from None
            for number, row in enumerate(whole if isinstance(whole, list) else [whole]):
                yield f"{path}: row {number + 1}", row
            return
        for number, line in enumerate(file):
            if line.strip():
                try:
                    row = json.loads(line)
                except ValueError as why:
                    raise BadRow(f"{path}: line {number + 1}: {why}") from None
                yield f"{path}: line {number + 1}", row


class Tokens:
    """A tokenizer of transformers, and what becomes of a row."""

    def __init__(self, tokenizer: Any, all_tokens: bool = False, max_length: int = 0):
        if not getattr(tokenizer, "is_fast", False):
            raise BadRow("the tokenizer has no fast version (tokenizer.json), which tells where a token begins")
        self.tokenizer, self.all_tokens, self.max_length = tokenizer, all_tokens, max_length
        self.cut = 0

    def row(self, row: Any) -> Row:
        ids, labels = self._encode(*self._spans(row))
        if self.max_length and len(ids) > self.max_length:
            ids, labels = ids[:self.max_length], labels[:self.max_length]
            self.cut += 1
        if all(label == IGNORE for label in labels[1:]):
            raise BadRow("no token has a loss" + (" within --max-length" if self.max_length else ""))
        return ids, labels

    def _spans(self, row: Any) -> Tuple[str, Optional[List[Tuple[int, int]]], bool]:
        """The text, the parts of it that have a loss (None: all), and whether it is a template's."""
        if not isinstance(row, dict):
            raise BadRow(f"a row is an object, this is {type(row).__name__}")
        for key in ("messages", "conversations"):
            if key in row:
                return (*self._chat(row[key]), True)
        for question, answer in PAIRS:
            if question in row and answer in row:
                return self._pair(row, question, answer)
        if isinstance(row.get("text"), str):
            return self._text(row["text"]), None, False
        raise BadRow(f"no text, messages, or prompt and completion among the keys {', '.join(map(repr, row))}")

    def _text(self, text: str) -> str:
        return text + (self.tokenizer.eos_token or "")

    def _pair(self, row: Dict[str, Any], question: str, answer: str) -> Tuple[str, Any, bool]:
        ask, reply = row[question], row[answer]
        if isinstance(ask, list) and isinstance(reply, list):       # both as messages
            return (*self._chat([*ask, *reply]), True)
        if not isinstance(ask, str) or not isinstance(reply, str):
            raise BadRow(f"{question!r} and {answer!r} must be two strings or two lists of messages")
        if row.get("input"):
            ask = f"{ask}\n{row['input']}"
        if question != "prompt" and self.tokenizer.chat_template:
            return (*self._chat([{"role": "user", "content": ask}, {"role": "assistant", "content": reply}]), True)
        text = self._text(ask + reply)
        return text, [(len(ask), len(text))], False

    def _chat(self, messages: Any) -> Tuple[str, List[Tuple[int, int]]]:
        if not self.tokenizer.chat_template:
            raise BadRow("the tokenizer has no chat template")
        if not isinstance(messages, list) or not messages:
            raise BadRow("a conversation is a list of messages")
        turns = [self._turn(m) for m in messages]
        whole = self._render(turns)
        if self.all_tokens:
            return whole, [(0, len(whole))]
        spans, end = [], 0
        for i, turn in enumerate(turns):
            if turn["role"] != "assistant":
                continue
            begin = self._common(whole, self._render(turns[:i], add_generation_prompt=True), i, end)
            end = self._common(whole, self._render(turns[:i + 1]), i, begin)
            spans.append((begin, end))
        if not spans:
            raise BadRow("the conversation has no message of the assistant")
        return whole, spans

    def _turn(self, message: Any) -> Dict[str, Any]:
        if not isinstance(message, dict):
            raise BadRow("a message is an object with role and content")
        role = message.get("role", message.get("from"))
        content = message.get("content", message.get("value"))
        if role is None or content is None:
            raise BadRow("a message needs role and content (or from and value)")
        return {**message, "role": ROLES.get(role, role), "content": content}

    def _render(self, turns: Sequence[Any], **options: Any) -> str:
        if not turns:
            return ""
        try:
            return str(self.tokenizer.apply_chat_template(list(turns), tokenize=False, **options))
        except Exception as why:
            raise BadRow(f"the chat template refuses the conversation: {why}") from None

    @staticmethod
    def _common(whole: str, part: str, message: int, least: int) -> int:
        if not whole.startswith(part) or len(part) < least:
            raise BadRow(f"the chat template renders the messages before message {message + 1} differently when "
                         "more follow, so its answer cannot be located; --all-tokens trains on the whole row")
        return len(part)

    def _encode(self, text: str, spans: Optional[List[Tuple[int, int]]], is_template: bool) -> Row:
        coded = self.tokenizer(text, add_special_tokens=not is_template, return_offsets_mapping=True,
                               return_attention_mask=False)
        ids = list(coded["input_ids"])
        if spans is None or self.all_tokens:
            return ids, list(ids)
        labels, part = [], iter([*spans, (sys.maxsize, sys.maxsize)])
        begin, end = next(part)
        for token, (first, last) in zip(ids, coded["offset_mapping"]):
            while first >= end:
                begin, end = next(part)
            labels.append(token if begin <= first and last > first else IGNORE)
        return ids, labels


def write_rows(rows: Iterable[Row], out: Path) -> Tuple[int, int, int]:
    """Rows, tokens and tokens with a loss that were written."""
    count = tokens = with_loss = 0
    kind = {".u16": "H", ".u32": "I"}.get(out.suffix)
    part = out.with_name(out.name + ".zckpt-partial")
    try:
        with open(part, "wb") as file:
            for ids, labels in rows:
                if kind:
                    file.write(array.array(kind, ids).tobytes())
                else:
                    row = {"input_ids": ids} if labels == ids else {"input_ids": ids, "labels": labels}
                    file.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")
                count, tokens = count + 1, tokens + len(ids)
                with_loss += sum(label != IGNORE for label in labels)
            file.flush()
            os.fsync(file.fileno())
        if not count:
            raise BadRow("the input has no rows")
        os.replace(part, out)
    finally:
        part.unlink(missing_ok=True)
    return count, tokens, with_loss


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="zckpt-prepare", formatter_class=argparse.RawDescriptionHelpFormatter,
                                description=__doc__)
    p.add_argument("input", nargs="+", type=Path, help=".jsonl, .json or .txt files")
    p.add_argument("--tokenizer", required=True, help="folder or name of the model")
    p.add_argument("--out", required=True, type=Path, help="rows.jsonl, tokens.u16 or tokens.u32")
    p.add_argument("--max-length", type=int, default=0, metavar="N", help="cut rows after N tokens (default: keep)")
    p.add_argument("--all-tokens", action="store_true", help="loss on all tokens, not on answers only")
    p.add_argument("--skip-bad", action="store_true", help="leave rows out that cannot be used, and count them")
    p.add_argument("--force", action="store_true", help="replace an existing output file")
    return p


def prepare(inputs: Sequence[Any], out: Any, tokenizer: Any, *, max_length: int = 0, all_tokens: bool = False,
            skip_bad: bool = False, force: bool = False) -> Dict[str, int]:
    """What the command does; ``tokenizer`` is one of transformers.  The counts of what was written."""
    out = Path(out)
    if out.suffix not in (".jsonl", ".u16", ".u32"):
        raise BadRow(f"{out}: the output ends in .jsonl, .u16 or .u32")
    if out.exists() and not force:
        raise BadRow(f"{out}: the file exists; --force replaces it")
    if out.suffix == ".u16" and len(tokenizer) > 65536:
        raise BadRow(f"{out}: the vocabulary has {len(tokenizer)} tokens, .u16 holds 65536; write .u32")
    tokens, bad = Tokens(tokenizer, all_tokens, max_length), 0

    def made() -> Iterator[Row]:
        nonlocal bad
        for path in inputs:
            for place, value in rows_of(Path(path)):
                try:
                    row = tokens.row(value)
                    if out.suffix != ".jsonl" and row[0] != row[1]:
                        raise BadRow(f"{out.suffix} cannot say which tokens have a loss; write .jsonl, "
                                     "or give --all-tokens")
                except BadRow as why:
                    if not skip_bad:
                        raise BadRow(f"{place}: {why}") from None
                    bad += 1
                    continue
                yield row

    rows, total, with_loss = write_rows(made(), out)
    return {"rows": rows, "tokens": total, "with_loss": with_loss, "cut": tokens.cut, "skipped": bad}


def main(argv: Optional[Sequence[str]] = None) -> int:
    args = parser().parse_args(argv)
    try:
        from transformers import AutoTokenizer
    except ImportError:
        print("zckpt-prepare: transformers is needed: pip install transformers", file=sys.stderr)
        return 1
    try:
        tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
        did = prepare(args.input, args.out, tokenizer, max_length=args.max_length, all_tokens=args.all_tokens,
                      skip_bad=args.skip_bad, force=args.force)
    except (BadRow, OSError, ValueError) as why:
        print(f"zckpt-prepare: {why}", file=sys.stderr)
        return 1
    print(f"wrote {args.out}: {did['rows']:,} rows, {did['tokens']:,} tokens, {did['with_loss']:,} with a loss")
    if did["cut"]:
        print(f"  {did['cut']:,} rows were cut after {args.max_length} tokens")
    if did["skipped"]:
        print(f"  {did['skipped']:,} rows were left out")
    print(f"next: ztrain --model {args.tokenizer} --data {args.out} ...")
    return 0


if __name__ == "__main__":
    sys.exit(main())
