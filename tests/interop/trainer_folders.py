"""Write small folders checkpoint-N of transformers' Trainer, with what they hold, for the tests.

    trainer_folders.py FOLDER [CASE...]

tests/fixtures/trainer.tar.zst is made by it (tests/fixtures/trainer.md).  Each case is a folder with
`ckpt`, what the Trainer wrote at step 3, and `truth.safetensors`: NAME|weight and NAME|STATE of the
live model and optimizer, by the names of the model.  An adapter has `base/config.json`, of the model
that it is for.
"""
import json
import os
import shutil
import sys
import warnings

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch
from safetensors.torch import save_file
from transformers import (AutoConfig, AutoModelForCausalLM, PrinterCallback, Trainer, TrainerCallback,
                          TrainingArguments)

warnings.filterwarnings("ignore")
torch.set_num_threads(1)

SMALL = dict(vocab_size=24, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2,
             num_key_value_heads=1, max_position_embeddings=32, bos_token_id=1, eos_token_id=2, pad_token_id=0)


def llama(**more):
    return AutoConfig.for_model("llama", **dict(SMALL, **more))


def qwen3(**more):
    return AutoConfig.for_model("qwen3", **dict(SMALL, head_dim=4, **more))


def frozen(net):
    for p in net.model.embed_tokens.parameters():
        p.requires_grad_(False)


def adapter(**more):
    """A model of PEFT, whose file has its adapter alone."""
    def make(net):
        from peft import LoraConfig, get_peft_model

        net.name_or_path = "small/model"
        config = dict(dict(r=2, lora_alpha=4, target_modules=["v_proj", "up_proj", "q_proj"]), **more)
        return get_peft_model(net, LoraConfig(task_type="CAUSAL_LM", **config))
    return make


def one_group(net):
    return torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.1)


def old_groups(net):
    """Norms with decay, as transformers before 4.50 had them for some models."""
    return torch.optim.AdamW([
        {"params": [p for n, p in net.named_parameters() if "bias" not in n], "weight_decay": 0.1},
        {"params": [p for n, p in net.named_parameters() if "bias" in n], "weight_decay": 0.0}], lr=1e-2)


# name, configuration, arguments, what is done to the model, the optimizer if it is not the Trainer's
CASES = [
    ("llama", llama(), {}, None, None),
    ("qwen3-tied", qwen3(tie_word_embeddings=True), {}, None, None),
    ("qwen3-fused", qwen3(), {"optim": "adamw_torch_fused"}, None, None),
    ("qwen2-biases", AutoConfig.for_model("qwen2", **SMALL), {}, None, None),
    ("shards", llama(), {"max_shard_size": "3KB"}, None, None),
    ("bf16", llama(dtype="bfloat16"), {"bf16": True}, None, None),
    ("frozen", llama(), {}, frozen, None),
    ("one-group", llama(), {}, None, one_group),
    ("old-groups", AutoConfig.for_model("qwen2", **SMALL), {}, None, old_groups),
    ("gpt2", AutoConfig.for_model("gpt2", vocab_size=24, n_embd=8, n_layer=2, n_head=2, n_positions=16),
     {}, None, None),
    ("adafactor", llama(), {"optim": "adafactor"}, None, None),
    ("sgd", llama(), {"optim": "sgd"}, None, None),
    ("lora", qwen3(), {}, adapter(), None),
    ("dora", llama(), {}, adapter(use_dora=True), None),
    ("lora-and-head", llama(), {}, adapter(modules_to_save=["lm_head"]), None),
    ("amsgrad", llama(), {}, None, lambda net: torch.optim.AdamW(net.parameters(), lr=1e-2, amsgrad=True)),
]


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, i):
        ids = torch.tensor([(i * 7 + k * k * 3 + 1) % 24 for k in range(6)])
        return {"input_ids": ids, "labels": ids}


class Truth(TrainerCallback):
    """What is live when step 3 is saved."""
    path = None

    def on_save(self, args, state, control, model=None, optimizer=None, **_):
        out = {}
        for name, p in model.named_parameters():
            out[name + "|weight"] = p.detach()
            for k, v in optimizer.state.get(p, {}).items():
                if torch.is_tensor(v) and v.dim():
                    out["%s|%s" % (name, k)] = v
        save_file({k: v.clone().contiguous() for k, v in out.items()}, self.path)


def make(top, case):
    name, config, args, prepare, optimizer = case
    torch.manual_seed(7)
    net = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    if config.dtype == torch.bfloat16:
        net = net.to(torch.bfloat16)
    if prepare:
        net = prepare(net) or net
    size = args.get("max_shard_size")
    here = os.path.join(top, name)
    os.makedirs(here)
    truth = Truth()
    truth.path = os.path.join(here, "truth.safetensors")
    mine = optimizer(net) if optimizer else None
    t = Trainer(model=net, train_dataset=Rows(), callbacks=[truth], optimizers=(mine, None),
                args=TrainingArguments(**dict(dict(
                    output_dir=os.path.join(here, "run"), max_steps=3, save_steps=3, logging_steps=1,
                    report_to=[], use_cpu=True, per_device_train_batch_size=2, learning_rate=1e-2,
                    weight_decay=0.1, lr_scheduler_type="cosine", warmup_steps=2, optim="adamw_torch",
                    disable_tqdm=True), **{k: v for k, v in args.items() if k != "max_shard_size"})))
    t.remove_callback(PrinterCallback)
    if size:
        plain = net.save_pretrained
        net.save_pretrained = lambda *a, **kw: plain(*a, **dict(kw, max_shard_size=size))
    t.train()
    os.rename(os.path.join(here, "run", "checkpoint-3"), os.path.join(here, "ckpt"))
    shutil.rmtree(os.path.join(here, "run"))
    os.remove(os.path.join(here, "ckpt", "training_args.bin"))  # a pickle with paths of this machine
    os.remove(os.path.join(here, "ckpt", "rng_state.pth"))
    if os.path.exists(os.path.join(here, "ckpt", "adapter_config.json")):
        os.remove(os.path.join(here, "ckpt", "README.md"))
        config.save_pretrained(os.path.join(here, "base"))
    path = os.path.join(here, "ckpt", "trainer_state.json")
    with open(path) as f:
        state = json.load(f)
    if state["global_step"] != 3:
        sys.exit("%s: step %s" % (name, state["global_step"]))


def main():
    top = sys.argv[1]
    os.makedirs(top, exist_ok=True)
    for case in CASES:
        if len(sys.argv) > 2 and case[0] not in sys.argv[2:]:
            continue
        make(top, case)
        print(case[0])


if __name__ == "__main__":
    main()
