"""An adapter watched while it is trained: a callback for transformers' Trainer and TRL's trainers.

>>> trainer = SFTTrainer(..., callbacks=[AdapterEval(LLM("MODEL"), ["Who are you?"], every=100)])

The adapter goes from the trainer's memory to the engine's, without a file. What it answers then is what it would answer when saved.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from transformers import TrainerCallback  # type: ignore[import-not-found,unused-ignore]

from choral.compare import Comparison
from choral.errors import InvalidArgumentError
from choral.llm import LLM
from choral.lora import BASE
from choral.sampling import SamplingParams

Report = Callable[[int, Comparison], None]


class AdapterEval(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Every `every` steps, before the first and after the last, `prompts` are asked of the base and of the adapter as it is then.
    `comparisons` keeps what came, by step, and `history()` puts it side by side. `llm` is the base that is trained; under `name` it
    answers with the newest state. `report` is told of each comparison: by default it is shown in a notebook, elsewhere printed.
    An adapter that cannot be served is an error before the first step."""

    def __init__(
        self,
        llm: LLM,
        prompts: str | Sequence[str],
        *,
        every: int,
        name: str = "training",
        sampling_params: SamplingParams | None = None,
        chat: bool | None = None,
        report: Report | None = None,
    ) -> None:
        if every < 1:
            raise InvalidArgumentError(f"every={every}: give the number of steps between two looks, at least 1")
        self.llm = llm
        self.prompts = [prompts] if isinstance(prompts, str) else list(prompts)
        self.every = every
        self.name = name
        self.comparisons: dict[int, Comparison] = {}
        self._sampling_params = sampling_params
        self._chat = chat
        self._report = report or show

    def history(self) -> Comparison:
        """One comparison: the base, then the adapter at each step that was looked at."""
        steps = sorted(self.comparisons)
        rows = []
        for i in range(len(self.prompts) if steps else 0):
            base = self.comparisons[steps[0]].answers[i][0]
            rows.append([base, *(replace(self.comparisons[step].answers[i][1], adapter=f"step {step}") for step in steps)])
        return Comparison(self.prompts if steps else [], rows)

    # --- transformers' TrainerCallback ---

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._look(state, kwargs)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self.every == 0:
            self._look(state, kwargs)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._look(state, kwargs)

    def _look(self, state: Any, kwargs: Mapping[str, Any]) -> None:
        if not state.is_world_process_zero or state.global_step in self.comparisons:
            return
        model = kwargs["model"]
        while not hasattr(model, "get_base_model") and hasattr(model, "module"):  # what distributed training puts around it
            model = model.module
        if not hasattr(model, "get_base_model"):
            raise InvalidArgumentError(f"AdapterEval looks at a PeftModel, and the trainer's model is a {type(model).__name__}")
        self.llm.load_adapter(self.name, model, replace=True)
        comparison = self.llm.compare(self.prompts, [BASE, self.name], self._sampling_params, chat=self._chat, use_tqdm=False)
        self.comparisons[state.global_step] = comparison
        self._report(state.global_step, comparison)


def show(step: int, comparison: Comparison) -> None:
    """As a table in a notebook, else as text."""
    if "ipykernel" in sys.modules:
        from IPython.display import display  # type: ignore[import-not-found,unused-ignore]

        display(comparison)  # type: ignore[no-untyped-call,unused-ignore]
        return
    print(f"--- step {step}\n{comparison}", flush=True)
