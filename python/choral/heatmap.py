"""How much an adapter changes each module of its base, as a picture: ‖B·A‖ with its scale (Frobenius' norm), a row a kind of module, a
column a layer."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, Dict, List, Optional, Tuple

from choral import _choral

# Kinds of modules as a layer computes them; others follow by name.
_ORDER = ["q_proj", "k_proj", "v_proj", "qkv_proj", "o_proj", "gate_proj", "up_proj", "gate_up_proj", "down_proj"]
_CELL, _GAP, _LINE, _LETTER = 18, 2, 14, 6.6

_STYLE = """
.choral-heatmap { font: 12px system-ui, sans-serif; max-width: 100%; --text: #1c1f24; --empty: #f0f1f3; --heat: #c2255c; }
@media (prefers-color-scheme: dark) { .choral-heatmap { --text: #e4e7eb; --empty: #23272e; --heat: #ff6b9d; } }
.choral-heatmap text { fill: var(--text); }
.choral-heatmap .empty { fill: var(--empty); }
.choral-heatmap .heat { fill: var(--heat); }
.choral-heatmap .whole { fill: none; stroke: var(--heat); stroke-width: 2; }
""".strip()


class HeatMap(Sequence["dict[str, Any]"]):
    """A sequence of dicts: {"module": …, "layer": 3, "part": "self_attn.q_proj", "kind": "LoRA", "rank": 8, "scaling": 2.0, "norm":
    0.71}. `layer` is None outside the numbered ones. A weight that the adapter replaces as a whole, or rows of its own tokens, have no
    norm."""

    def __init__(self, adapter: str, layers: Sequence[_choral.AdapterLayer]) -> None:
        self.adapter = adapter
        self._rows = [_row(layer) for layer in layers]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def _repr_svg_(self) -> str:
        return _svg(self)

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x: auto">{_svg(self)}</div>'

    def to_html(self, path: Any) -> None:
        """One file that needs no other."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(
                f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
                f'<meta name="color-scheme" content="light dark"><title>Choral: {escape(self.adapter)}</title></head>'
                f"<body>{self._repr_html_()}</body></html>\n"
            )

    def __repr__(self) -> str:
        return f"HeatMap({self.adapter!r}, {len(self)} modules)"

    def __str__(self) -> str:
        cells = _cells(self)
        layers = sorted({layer for _, layer in cells}, key=_layer_order)
        most = max((norm for norm, _ in cells.values() if norm is not None), default=0.0)
        lines = [f"{self.adapter}: ‖B·A‖ of each layer's modules, {' to '.join(_name(layer) for layer in (layers[:1] + layers[-1:]))}"]
        parts = sorted({part for part, _ in cells}, key=_part_order)
        width = max((len(part) for part in parts), default=0)
        for part in parts:
            shades = "".join(_shade(cells.get((part, layer)), most) for layer in layers)
            lines.append(f"{part.ljust(width)}  {shades}")
        lines.append(f"{''.ljust(width)}  ░▒▓█: up to {most:.3g}; ×: replaced as a whole")
        return "\n".join(lines)


# What is drawn as one square: its norm, None where weights are replaced, and the modules in it.
Cell = Tuple[Optional[float], List[Dict[str, Any]]]


def _row(layer: _choral.AdapterLayer) -> dict[str, Any]:
    number = re.search(r"\.(\d+)\.", layer.module)
    part = layer.module[number.end() :] if number else layer.module
    return {
        "module": layer.module,
        "layer": int(number[1]) if number else None,
        "part": part,
        "kind": layer.kind,
        "rank": layer.rank,
        "scaling": layer.scaling,
        "norm": layer.norm,
    }


def _cells(heatmap: HeatMap) -> dict[tuple[str, int | None], Cell]:
    """By kind of module and layer. Experts of a layer are one cell: the length of all that is added to them."""
    of_cell: dict[tuple[str, int | None], list[dict[str, Any]]] = {}
    for row in heatmap:
        part = re.sub(r"\.\d+(?=\.|$)", ".*", row["part"])
        of_cell.setdefault((part, row["layer"]), []).append(row)
    out: dict[tuple[str, int | None], Cell] = {}
    for place, rows in of_cell.items():
        norms = [row["norm"] for row in rows if row["norm"] is not None]
        out[place] = (math.sqrt(sum(norm * norm for norm in norms)) if norms else None, rows)
    return out


def _part_order(part: str) -> tuple[int, str]:
    last = part.rpartition(".")[2]
    return (_ORDER.index(last) if last in _ORDER else len(_ORDER), part)


def _layer_order(layer: int | None) -> int:
    return -1 if layer is None else layer


def _name(layer: int | None) -> str:
    return "outside the layers" if layer is None else f"layer {layer}"


def _shade(cell: Cell | None, most: float) -> str:
    if cell is None:
        return " "
    norm, _ = cell
    if norm is None:
        return "×"
    return "░▒▓█"[min(3, int(4 * norm / most))] if norm > 0 else "·"


def _svg(heatmap: HeatMap) -> str:
    cells = _cells(heatmap)
    parts = sorted({part for part, _ in cells}, key=_part_order)
    layers = sorted({layer for _, layer in cells}, key=_layer_order)
    most = max((norm for norm, _ in cells.values() if norm is not None), default=0.0)
    left, top = 12 + round(_LETTER * max((len(part) for part in parts), default=0)), 2 * _LINE + 8
    step = _CELL + _GAP
    title = f"{heatmap.adapter}: ‖B·A‖ by layer, at most {most:.3g}"
    width, height = left + max(len(layers) * step, round(_LETTER * len(title)) - left + 20), top + len(parts) * step + 4
    drawn = [f'<text x="0" y="{_LINE}" font-weight="600">{escape(title)}</text>']
    every = max(1, math.ceil(len(layers) / 16))
    for column, layer in enumerate(layers):
        if layer is None or layer % every == 0:
            label = "–" if layer is None else str(layer)
            drawn.append(f'<text x="{left + column * step + _CELL // 2}" y="{top - 6}" text-anchor="middle">{label}</text>')
    for line, part in enumerate(parts):
        y = top + line * step
        drawn.append(f'<text x="{left - 8}" y="{y + _CELL - 5}" text-anchor="end">{escape(part)}</text>')
        for column, layer in enumerate(layers):
            if (part, layer) in cells:
                drawn.extend(_square(left + column * step, y, part, layer, *cells[(part, layer)], most))
            else:
                drawn.append(f'<rect class="empty" x="{left + column * step}" y="{y}" width="{_CELL}" height="{_CELL}" opacity=".4"/>')
    return (
        f'<svg class="choral-heatmap" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title)}"><style>{_STYLE}</style>{"".join(drawn)}</svg>'
    )


def _square(
    x: int, y: int, part: str, layer: int | None, norm: float | None, rows: list[dict[str, Any]], most: float
) -> Iterator[str]:
    ranks = sorted({row["rank"] for row in rows})
    kinds = ", ".join(sorted({row["kind"] for row in rows}))
    told = f"{part}, {_name(layer)}\n" + (f"{kinds}: replaced as a whole" if norm is None else f"‖B·A‖ {norm:.4g}, {kinds}, rank ")
    if norm is not None:
        told += "–".join(str(rank) for rank in (ranks[:1] if len(ranks) == 1 else (ranks[0], ranks[-1])))
        told += f", {len(rows)} modules" if len(rows) > 1 else ""
    place = f'x="{x}" y="{y}" width="{_CELL}" height="{_CELL}"'
    yield f"<g><title>{escape(told)}</title>"
    yield f'<rect class="empty" {place}/>'
    if norm is None:
        yield f'<rect class="whole" x="{x + 1}" y="{y + 1}" width="{_CELL - 2}" height="{_CELL - 2}"/>'
    elif most > 0:
        yield f'<rect class="heat" {place} opacity="{norm / most:.3f}"/>'
    yield "</g>"
