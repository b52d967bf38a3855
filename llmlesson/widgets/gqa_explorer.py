"""How query heads share key-value heads, what that saves, and a mistake that no shape reveals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ipywidgets

from llmlesson.errors import LessonError
from llmlesson.sizing import Attention, ModelSpec, kv_cache
from llmlesson.sizing.specs import Part
from llmlesson.sizing.units import MAX_TOKENS, both_units, check_tokens
from llmlesson.views import gqa as view
from llmlesson.views.markup import announced
from llmlesson.widgets import typed
from llmlesson.widgets.base import LessonWidget
from llmlesson.widgets.model_choice import spec_of

ORDERS = {"interleave": "repeat_interleave: h // group", "tile": "repeat (tile): h % KV heads"}
CONTEXT = 8192


class GQASession:
    """The heads of one model, and what they would be with another number of KV heads. No widget."""

    def __init__(self, config_or_name: Any) -> None:
        self.spec = spec_of(config_or_name)
        self.heads, self.own_kv_heads = _heads(self.spec)
        self.kv_heads = self.own_kv_heads
        self.order = "interleave"
        self.tokens = min(CONTEXT, self.spec.max_context or CONTEXT)

    @property
    def choices(self) -> list[int]:
        """The numbers of KV heads that give equal groups: the divisors of the number of query heads."""
        return [count for count in range(1, self.heads + 1) if self.heads % count == 0]

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.heads // self.kv_heads

    def choose(self, kv_heads: int) -> None:
        """Choose another number of KV heads. Raises LessonError unless it divides the query heads."""
        if kv_heads not in self.choices:
            raise LessonError(
                f"{self.heads} query heads can't share {kv_heads} KV heads in equal groups: "
                f"choose one of {', '.join(map(str, self.choices))}."
            )
        self.kv_heads = kv_heads

    def repeat(self, order: str) -> None:
        """How KV heads are repeated for the query heads: "interleave", as trained, or "tile", the mistake."""
        if order not in ORDERS:
            raise LessonError(f"{order!r} is not an order: choose one of {', '.join(ORDERS)}.")
        self.order = order

    def read_at(self, tokens: int) -> None:
        """Size the caches for another context. Raises LessonError for anything but a number of tokens."""
        self.tokens = check_tokens(tokens, most=MAX_TOKENS)

    def readings(self) -> list[view.Reading]:
        """For each query head the KV head it reads in the chosen order, and the one it was trained with."""
        trained = [head // self.group for head in range(self.heads)]
        reads = trained if self.order == "interleave" else [head % self.kv_heads for head in range(self.heads)]
        return [view.Reading(head, r, t) for head, (r, t) in enumerate(zip(reads, trained, strict=True))]

    def sharings(self) -> list[view.Sharing]:
        """What each possible number of KV heads costs at this context, bf16, for one sequence."""
        found = []
        for count in self.choices:
            size = kv_cache(_with_kv_heads(self.spec, self.own_kv_heads, count), self.tokens)
            name = sharing_name(self.heads, count)
            found.append(
                view.Sharing(
                    count, self.heads // count, name, size.bytes_per_token, size.nbytes, count == self.own_kv_heads
                )
            )
        return found


def sharing_name(heads: int, kv_heads: int) -> str:
    """ "MHA", "GQA" or "MQA" (Ainslie et al., arXiv 2305.13245)."""
    return "MHA" if kv_heads == heads else "MQA" if kv_heads == 1 else "GQA"


def _heads(spec: ModelSpec) -> tuple[int, int]:
    """Query heads and KV heads of the first layer that has both."""
    counts: Any = next((value.value for value in spec.values if value.name == "num_attention_heads"), None)
    for index, layer in enumerate(spec.layers):
        own = next((part for part in layer.attentions if not part.latent and not part.cross), None)
        if own is not None and counts is not None:
            return int(counts[index] if isinstance(counts, list) else counts), own.kv_heads
    raise LessonError(
        f"{spec.name} has no key-value heads that query heads share (MLA, for instance, keeps one latent for all): "
        "choose a model with MHA, GQA or MQA."
    )


def _with_kv_heads(spec: ModelSpec, own: int, count: int) -> ModelSpec:
    """The same model with `count` KV heads wherever it has `own`."""

    def changed(part: Part) -> Part:
        if isinstance(part, Attention) and part.kv_heads == own and not part.latent:
            return replace(part, kv_heads=count)
        return part

    return replace(spec, layers=tuple(replace(layer, parts=tuple(map(changed, layer.parts))) for layer in spec.layers))


class GQAExplorer(LessonWidget):
    """Query heads drawn to the KV heads they read, for each possible number of KV heads; shown as a cell's last line.

    config_or_name: as for `llmlesson.sizing.kv_cache`, or an engine, or an engine's `config`. Raises LessonError for
    a model that it can't read, or whose attention has no KV heads to share.
    """

    def __init__(self, config_or_name: Any) -> None:
        self.session = GQASession(config_or_name)
        super().__init__()

    def to_html(self) -> str:
        return announced(self._plain()) + self._picture() + self._costs()

    def _plain(self) -> str:
        s = self.session
        chosen = next(sharing for sharing in s.sharings() if sharing.kv_heads == s.kv_heads)
        own = "the model's own" if chosen.own else f"the model has {s.own_kv_heads}"
        kv_heads = f"{s.kv_heads} KV head{'' if s.kv_heads == 1 else 's'} ({own})"
        wrong = sum(reading.wrong for reading in s.readings())
        return (
            f"{s.spec.name.rpartition('/')[2]}: {s.heads} query heads, {kv_heads}: {chosen.name}. "
            f"{chosen.nbytes:,} bytes ({both_units(chosen.nbytes)}) at {s.tokens:,} tokens."
            + (f" {wrong} query heads read the wrong KV head." if wrong else "")
        )

    def _picture(self) -> str:
        s = self.session
        readings = s.readings()
        return (
            view.heads_picture(readings, s.kv_heads)
            + view.order_note(readings, s.kv_heads, s.order)
            + view.readings_table(readings)
        )

    def _costs(self) -> str:
        s = self.session
        return view.sharing_table(s.sharings(), s.kv_heads, s.tokens)

    def _build(self) -> list[ipywidgets.Widget]:
        s = self.session
        wide = {"description_width": "initial"}
        options = [
            (f"{n} ({sharing_name(s.heads, n)}{', its own' if n == s.own_kv_heads else ''})", n) for n in s.choices
        ]
        kv_heads = ipywidgets.Dropdown(options=options, value=s.kv_heads, description="number of KV heads", style=wide)
        orders = [(label, order) for order, label in ORDERS.items()]
        order = ipywidgets.Dropdown(
            options=orders,
            value=s.order,
            description="KV heads are repeated by",
            style=wide,
            layout=ipywidgets.Layout(width="29em"),
        )
        tokens = ipywidgets.Text(
            value=f"{s.tokens:,}", description="context in tokens", continuous_update=False, style=wide
        )
        controls = [
            self._watch(kv_heads, s.choose),
            self._watch(order, s.repeat),
            self._field(tokens, lambda text: s.read_at(typed.context(text))),
        ]
        self._headline, self._heads_html, self._costs_html = (ipywidgets.HTML() for _ in range(3))
        row = ipywidgets.HBox(controls, layout=ipywidgets.Layout(flex_flow="row wrap"))
        return [row, self._headline, self._heads_html, self._costs_html]

    def _show(self) -> None:
        self._headline.value = announced(self._plain())
        self._heads_html.value = self._picture()
        self._costs_html.value = self._costs()
