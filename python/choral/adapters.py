"""Adapters out of a folder, or out of memory: a PeftModel, or a state dict with its config."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from choral import _choral
from choral.errors import InvalidArgumentError, NotFoundError
from choral.heatmap import HeatMap
from choral.lora import Adapter, LoRARequest

Source = Any  # a path, a PeftModel, or (state dict, config)


class LoadedAdapter:
    """A name that answers, to look at."""

    def __init__(self, engine: _choral.Engine, name: str) -> None:
        self._engine = engine
        self.name = name
        self.info  # an unknown name is an error at once

    @property
    def info(self) -> _choral.AdapterInfo:
        """What it is now: kind, rank, state, …"""
        found = self._engine.adapter(self.name)
        if found is None:
            known = ", ".join(one.name for one in self._engine.adapters()) or "none"
            raise NotFoundError(f"no adapter is named '{self.name}'; loaded are: {known}")
        return found

    def heatmap(self) -> HeatMap:
        """How much it changes each layer: ‖B·A‖ with its scale. In a notebook it shows itself; it is a sequence of dicts, too."""
        return HeatMap(self.name, self._engine.adapter_layers(self.name))

    def __repr__(self) -> str:
        return repr(self.info)


def adapter_spec(name: str, source: Source, *, pinned: bool = False) -> _choral.AdapterSpec:
    if isinstance(source, (str, os.PathLike)):
        return _choral.AdapterSpec(name, os.fspath(source), pinned=pinned)
    return _choral.AdapterSpec(name, files=adapter_files(name, source), pinned=pinned)


def load_missing(engine: _choral.Engine, adapters: Iterable[Adapter]) -> None:
    """A LoRARequest may bring an adapter that is not loaded yet."""
    for adapter in {one for one in adapters if isinstance(one, LoRARequest) and one.lora_path}:
        known = engine.adapter(adapter.lora_name)
        if known is None:
            engine.load_adapter(adapter_spec(adapter.lora_name, adapter.lora_path))
        elif known.path != adapter.lora_path:
            raise InvalidArgumentError(
                f"adapter '{adapter.lora_name}' is loaded from {known.path or 'memory'}, and the request says {adapter.lora_path}; "
                "unload it first, or give the other one another name"
            )


def adapter_files(name: str, source: Source) -> dict[str, bytes]:
    """What save_pretrained() would have written, without a disk."""
    if hasattr(source, "peft_config"):
        state, config = _of_peft_model(name, source)
    elif isinstance(source, tuple) and len(source) == 2:
        state, config = source
    else:
        raise InvalidArgumentError(
            f"adapter '{name}': give a folder's path, a PeftModel, or (state dict, config), not {type(source).__name__}"
        )
    return {"adapter_config.json": _config_text(config).encode(), "adapter_model.safetensors": safetensors(name, state)}


def _of_peft_model(name: str, model: Any) -> tuple[Mapping[str, Any], Any]:
    from peft.utils import get_peft_model_state_dict  # type: ignore[import-not-found,unused-ignore]

    active = name if name in model.peft_config else getattr(model, "active_adapter", None)
    if not isinstance(active, str):
        raise InvalidArgumentError(f"adapter '{name}': none or several of the model's adapters are active; load one by its name: {list(model.peft_config)}")
    return get_peft_model_state_dict(model, adapter_name=active), model.peft_config[active]


def _config_text(config: Any) -> str:
    if hasattr(config, "to_dict"):
        config = config.to_dict()
    return json.dumps(config, default=_plain)


def _plain(value: Any) -> Any:
    """PEFT's configs hold sets and enums."""
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if hasattr(value, "value"):
        return value.value
    return str(value)


_DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64", "int64": "I64", "int32": "I32"}


def safetensors(name: str, state: Mapping[str, Any]) -> bytes:
    """The format's bytes of NumPy arrays and torch tensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts: list[bytes] = []
    end = 0
    for key, tensor in state.items():
        dtype, shape, data = _tensor_bytes(name, key, tensor)
        header[key] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
        parts.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def _tensor_bytes(name: str, key: str, tensor: Any) -> tuple[str, list[int], bytes]:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in _DTYPES:
        raise InvalidArgumentError(f"adapter '{name}': tensor {key} is {dtype}; {', '.join(_DTYPES)} can be read")
    shape = [int(size) for size in tensor.shape]
    if hasattr(tensor, "detach"):  # torch, whose bfloat16 NumPy does not know
        tensor = tensor.detach().cpu().contiguous()
        if dtype == "bfloat16":
            import torch  # type: ignore[import-not-found,unused-ignore]

            tensor = tensor.view(torch.int16)
        tensor = tensor.numpy()
    return _DTYPES[dtype], shape, tensor.tobytes()
