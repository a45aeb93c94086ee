"""lm-eval's tasks on this engine: `python -m choral.lm_eval --model choral --model_args pretrained=MODEL,adapter=FOLDER --tasks …`.

The rest of the command line is lm_eval's own. For programs: `ChoralLM(pretrained, adapter=…)`, or `ChoralLM(llm, adapter=…)` for each
adapter of one loaded model. All items of a task are one call of LLM.generate, so one running batch.
"""

from __future__ import annotations

from typing import Any

from lm_eval.api.model import TemplateLM  # type: ignore[import-not-found,unused-ignore]
from lm_eval.api.registry import register_model  # type: ignore[import-not-found,unused-ignore]
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window  # type: ignore[import-not-found,unused-ignore]

from choral.errors import InvalidArgumentError
from choral.llm import LLM
from choral.lora import Adapter
from choral.sampling import SamplingParams

# What lm_eval hands to every model, and means nothing here: a batch is what runs at the time.
_IGNORED = {"batch_size", "max_batch_size", "device"}


@register_model("choral")
class ChoralLM(TemplateLM):  # type: ignore[misc,unused-ignore]
    """`adapter`: a folder, or the name of one that `pretrained` (an LLM) has loaded, or a mix. Further arguments are LLM's."""

    def __init__(
        self,
        pretrained: str | LLM,
        adapter: Adapter = None,
        max_length: int | None = None,
        max_gen_toks: int = 256,
        add_bos_token: bool | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__()
        arguments = {name: value for name, value in arguments.items() if name not in _IGNORED}
        if isinstance(pretrained, LLM):
            self.llm = pretrained
            self._adapter = adapter
        else:
            self.llm = LLM(pretrained, max_model_len=max_length, adapters={"adapter": adapter} if adapter else None, **arguments)
            self._adapter = "adapter" if adapter else None
        self.max_length = min(max_length or self.llm.model_info.max_model_len, self.llm.model_info.max_model_len)
        self.max_gen_toks = int(max_gen_toks)
        self._add_bos_token = add_bos_token
        self._tokens = self.llm.get_tokenizer(self._adapter)

    # --- tokens ---

    @property
    def eot_token_id(self) -> int:
        ends = self.llm.model_info.eos_token_ids
        if not ends:
            raise InvalidArgumentError("the model's files name no token that ends a text, and lm-eval needs one before an empty context")
        return int(ends[0])

    @property
    def prefix_token_id(self) -> int:
        first = self.llm.model_info.bos_token_id
        return self.eot_token_id if first is None else first

    @property
    def tokenizer_name(self) -> str:
        return self.llm.model_info.name.replace("/", "__")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        if add_special_tokens is None:
            add_special_tokens = True if self._add_bos_token is None else self._add_bos_token
        return self._tokens.encode(string, add_special_tokens=add_special_tokens)

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        return self.llm.apply_chat_template(
            chat_history, add_generation_prompt=add_generation_prompt, continue_final_message=not add_generation_prompt
        )

    # --- answers ---

    def _loglikelihood_tokens(self, requests: list[Any], disable_tqdm: bool = False, **_: Any) -> list[tuple[float, bool]]:
        prompts, wanted = [], []
        for _, context, continuation in requests:
            if len(continuation) >= self.max_length:
                raise InvalidArgumentError(f"a continuation of {len(continuation)} tokens: the model's length is {self.max_length}")
            prompts.append((context + continuation)[-(self.max_length - 1) :])
            wanted.append(len(continuation))
        params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
        outputs = self.llm.generate(prompts, params, use_tqdm=not disable_tqdm, lora_request=self._adapter)
        results = []
        for output, count in zip(outputs, wanted):
            logprobs = output.prompt_logprobs
            assert logprobs is not None
            results.append((float(logprobs.token_logprobs[-count:].sum()), bool((logprobs.token_ranks[-count:] == 1).all())))
        for (texts, _, _), result in zip(requests, results):
            if texts is not None:
                self.cache_hook.add_partial("loglikelihood", texts, result)
        return results

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        windows = []
        for number, request in enumerate(requests):
            (text,) = request.args
            rolling = get_rolling_token_windows(
                token_list=self.tok_encode(text),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length - 1,
                context_len=1,
            )
            windows += [(number, (None, *make_disjoint_window(window))) for window in rolling]
        sums = [0.0] * len(requests)
        scored = self._loglikelihood_tokens([window for _, window in windows], disable_tqdm)
        for (number, _), (logprob, _) in zip(windows, scored):
            sums[number] += logprob
        for request, total in zip(requests, sums):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return sums

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        prompts, params = [], []
        for request in requests:
            context, given = request.args
            most = int(given.get("max_gen_toks") or given.get("max_tokens") or self.max_gen_toks)
            prompts.append(self.tok_encode(context)[-(self.max_length - most) :])
            params.append(_sampling(given, most))
        outputs = self.llm.generate(prompts, params, use_tqdm=not disable_tqdm, lora_request=self._adapter)
        texts = [output.outputs[0].text for output in outputs]
        for request, text in zip(requests, texts):
            self.cache_hook.add_partial("generate_until", request.args, text)
        return texts


_KNOWN = {"until", "max_gen_toks", "max_tokens", "do_sample", "temperature", "top_p", "top_k", "min_p", "seed"}


def _sampling(given: dict[str, Any], most: int) -> SamplingParams:
    if unknown := sorted(set(given) - _KNOWN):
        raise InvalidArgumentError(f"gen_kwargs: {', '.join(unknown)} is not known here; there are {', '.join(sorted(_KNOWN))}")
    until = given.get("until") or []
    temperature = float(given.get("temperature", 0)) if given.get("do_sample", "temperature" in given) else 0.0
    chosen = {name: given[name] for name in ("top_p", "top_k", "min_p", "seed") if name in given}
    return SamplingParams(
        temperature=temperature, max_tokens=most, stop=[until] if isinstance(until, str) else [one for one in until if one], **chosen
    )


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate  # type: ignore[import-not-found,unused-ignore]

    import choral.lm_eval  # noqa: F401  registers it by its own name, not as __main__'s

    cli_evaluate()
