#!/usr/bin/env python3
"""lm-eval's loglikelihoods over HTTP (`local-completions`) beside its own through transformers, for the same weights and the same items.

usage: lm_eval_side_by_side.py CHORAL MODEL_DIR...
Needs lm-eval, torch and transformers (run with 0.4.13, 2.15, 5.23). Without them, here and in the Python that CHORAL_PEFT_PYTHON names,
it exits with 77: skipped.
"""

import os
import pathlib
import random
import sys

os.environ.update(HF_HUB_OFFLINE="1", OPENAI_API_KEY="none", TOKENIZERS_PARALLELISM="false")
try:
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM
    from lm_eval.models.openai_completions import LocalCompletionsAPI
except ModuleNotFoundError as missing:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
    import other_python
    other_python.go_on_elsewhere(missing, "; ./dev peft installs it")

import served  # noqa: E402

ITEMS, TOLERANCE = 50, 1e-3
WORDS = "the of and to in is was for on that by this with from at which 12 3.5 (a) sea, bird; “quoted” naïve über Ελλάδα 東京 \n x_y".split(" ")


def items(seed):
    source = random.Random(seed)

    def text(fewest, most):
        return " ".join(source.choice(WORDS) for _ in range(source.randint(fewest, most)))

    return [Instance("loglikelihood", {}, (text(1, 40), " " + text(1, 12)), i) for i in range(ITEMS)]


def compare(model):
    wanted = HFLM(pretrained=model, dtype="float32", device="cpu", batch_size=8).loglikelihood(items(7), disable_tqdm=True)
    server = served.Server(model, "--served-model-name", "m", "--max-num-seqs", "8")
    try:
        # transformers' tokenizers put a model's first token there unless told otherwise, lm-eval's client only when told.
        over_http = LocalCompletionsAPI(base_url=f"http://127.0.0.1:{server.port}/v1/completions", model="m", tokenizer=model,
                                        tokenizer_backend="huggingface", add_bos_token=True, max_length=512, num_concurrent=4, max_retries=1,
                                        batch_size=4)
        got = over_http.loglikelihood(items(7), disable_tqdm=True)
    finally:
        code = server.stop()
    assert code == 0 and len(got) == len(wanted) == ITEMS, (code, len(got), len(wanted))
    far = max(abs(a - b) for (a, _), (b, _) in zip(got, wanted))
    greedy = sum(a != b for (_, a), (_, b) in zip(got, wanted))
    print(f"{os.path.basename(model)}: {ITEMS} items, furthest {far:.2e} of {TOLERANCE}, {greedy} disagree about greedy; "
          f"values from {min(a for a, _ in got):.1f} to {max(a for a, _ in got):.1f}")
    return far < TOLERANCE and greedy == 0


def main():
    served.CHORAL, *models = sys.argv[1:]
    return 0 if all([compare(model) for model in models]) else 1


if __name__ == "__main__":
    sys.exit(main())
