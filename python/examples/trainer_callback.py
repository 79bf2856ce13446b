"""transformers.Trainer: save steps with zckpt while training continues.

    python trainer_callback.py MODEL_FOLDER RUN

The callback saves model and optimizer every N steps in the background; `zckpt convert RUN out` or
`zckpt reshard RUN ...` read the result, and so does load_into() when the run resumes.
"""
import sys

import torch
import transformers

import zckpt


class Save(transformers.TrainerCallback):
    """Saves every 'every' steps into the folder 'run'."""

    def __init__(self, run, every):
        self.run, self.every, self.saver = run, every, None

    def on_train_begin(self, args, state, control, **_):
        self.saver = zckpt.Saver(self.run, rank=args.process_index, world=args.world_size,
                                 job=f"{args.output_dir}-{state.max_steps}")

    def on_step_end(self, args, state, control, model=None, optimizer=None, lr_scheduler=None, **_):
        if state.global_step % self.every == 0:
            raw = getattr(optimizer, "optimizer", optimizer)        # accelerate wraps it
            self.saver.save(model, raw, state.global_step, scheduler=lr_scheduler.state_dict(),
                            client={"epoch": state.epoch})

    def on_train_end(self, args, state, control, **_):
        self.saver.close()


class Rows(torch.utils.data.Dataset):
    """Random tokens."""

    def __init__(self, vocabulary):
        generator = torch.Generator().manual_seed(1)
        self.rows = torch.randint(0, vocabulary, (16, 12), generator=generator)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i], "labels": self.rows[i]}


def main(folder, run):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    args = transformers.TrainingArguments(
        output_dir=run + "-trainer", per_device_train_batch_size=2, max_steps=4, save_strategy="no",
        report_to=[], use_cpu=True, logging_strategy="no")
    trainer = transformers.Trainer(model, args, train_dataset=Rows(model.config.vocab_size), callbacks=[Save(run, 2)])
    trainer.train()
    with zckpt.open(run, framework="torch") as ck:
        for name, value in model.state_dict().items():
            assert torch.equal(ck[name][...], value), name
    print([step.name for step in zckpt.steps(run)], "hold the model that was trained")


if __name__ == "__main__":
    main(*sys.argv[1:])
