#!/usr/bin/env python3
"""choral.trl.AdapterEval in a run of transformers' Trainer: what it shows is what the saved adapter answers, and no file is written for it.

usage: training_side_by_side.py MODEL_DIR
Needs torch, transformers and PEFT (run with 2.15, 5.23, 0.21.2). Without them, here and in the Python that CHORAL_PEFT_PYTHON names, it
exits with 77: skipped.
"""

import contextlib
import io
import os
import pathlib
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
try:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
except ModuleNotFoundError as missing:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
    import other_python
    other_python.go_on_elsewhere(missing, "; ./dev peft installs it")

from choral import LLM, SamplingParams  # noqa: E402
from choral.errors import ChoralError  # noqa: E402
from choral.trl import AdapterEval  # noqa: E402

PARAMS = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
PROMPTS = ["once upon", "the sea"]


def expect(what, good):
    print(f"{'ok' if good else 'WRONG'}: {what}")
    return good


def trainer(path, folder, callback, steps=5, **config):
    torch.manual_seed(1)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32),
                           LoraConfig(r=4, lora_alpha=32, target_modules=["q_proj", "v_proj", "up_proj"], task_type="CAUSAL_LM", **config))
    ids = [[1, *range(20 + i, 36 + i)] for i in range(32)]
    data = [{"input_ids": one, "labels": one, "attention_mask": [1] * len(one)} for one in ids]
    arguments = TrainingArguments(folder, max_steps=steps, per_device_train_batch_size=4, learning_rate=5e-2, save_strategy="no",
                                  report_to=[], disable_tqdm=True, use_cpu=True, logging_strategy="no", dataloader_pin_memory=False)
    return Trainer(model=model, args=arguments, train_dataset=data, callbacks=[callback])


def training(path):
    good = True
    told = []
    with tempfile.TemporaryDirectory() as folder, LLM(path, threads=1) as llm:
        callback = AdapterEval(llm, PROMPTS, every=2, sampling_params=PARAMS, chat=False, report=lambda step, _: told.append(step))
        run = trainer(path, folder, callback)
        run.train()
        good &= expect("looked before the first step, every second one and after the last", told == [0, 2, 4, 5] == sorted(callback.comparisons))
        good &= expect("no file was written", not [one for one in pathlib.Path(folder).rglob("*") if one.is_file()])
        first, last = callback.comparisons[0].answers, callback.comparisons[5].answers
        good &= expect("an adapter before its first step says what the base says", all(row[1].parts_at is None for row in first))
        good &= expect("after the last it does not", all(row[1].parts_at is not None for row in last))
        saved = pathlib.Path(folder) / "saved"
        run.model.save_pretrained(saved)
        llm.load_adapter("saved", saved)
        answers = llm.generate(PROMPTS, PARAMS, lora_request="saved", use_tqdm=False)
        good &= expect("what it says is what the saved folder says",
                       [one.outputs[0].token_ids for one in answers] == [[token.token_id for token in row[1].tokens] for row in last])
        good &= expect("equal contents are one", len({info.digest for info in llm.adapters()}) == 1)
        history = callback.history()
        good &= expect("its history has a column for each look", history.adapters == ["base", "step 0", "step 2", "step 4", "step 5"])
        good &= expect("that is shown", "step 4" in history._repr_html_() and history[0]["step 5"] == last[0][1].text)
    return good


def refusals(path):
    good = True
    with tempfile.TemporaryDirectory() as folder, LLM(path, threads=1, max_lora_rank=2) as llm:
        callback = AdapterEval(llm, PROMPTS, every=1, chat=False)
        run = trainer(path, folder, callback)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                run.train()
            good = expect("an adapter that cannot be served is an error", False)
        except ChoralError as error:
            good &= expect("an adapter that cannot be served is an error before the first step", "rank" in str(error) and run.state.global_step == 0)
        run.model = run.model.base_model.model
        try:
            callback.on_train_begin(None, run.state, None, model=run.model)
            good = expect("a model without adapter is an error", False)
        except ChoralError as error:
            good &= expect("a model without adapter is an error", "PeftModel" in str(error))
    return good


if __name__ == "__main__":
    sys.exit(0 if training(sys.argv[1]) & refusals(sys.argv[1]) else 1)
