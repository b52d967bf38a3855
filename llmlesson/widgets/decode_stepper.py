"""Decode, one token at a time: step, go back, run, and take another token than the model's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import ipywidgets

from llmlesson.errors import LessonError
from llmlesson.measure import cost, roofline
from llmlesson.views import decode as view
from llmlesson.views.markup import quoted
from llmlesson.views.text import visible
from llmlesson.widgets import typed
from llmlesson.widgets.base import LessonWidget, engine_lock
from llmlesson.widgets.decode_session import ENDS, Branch, DecodeSession
from llmlesson.widgets.spelling import spelled

if TYPE_CHECKING:
    from llmlesson.engine import Engine

SHOWN = 8  # candidates


class DecodeStepper(LessonWidget):
    """A request whose answer you make yourself, a token at a time.

    prompt: text, put into the chat template unless `chat` is False, or a list of ids. It is read here, and a prompt
    that can't be read raises LessonError.
    """

    def __init__(self, engine: Engine, prompt: str | Sequence[int], chat: bool = True) -> None:
        super().__init__()
        self._engine = engine
        self._engine_lock = engine_lock(engine)
        self._tokenizer = engine.tokenizer
        self._limits = roofline.kept(engine)
        with self._engine_lock:
            self.session = DecodeSession(engine, prompt, chat)

    def to_html(self) -> str:
        return "".join(self._pictures())

    def _plain(self) -> str:
        s = self.session
        return (
            f"{len(s.prompt_ids)} tokens of prompt, {len(s.tokens)} of answer: {self._text(s.tokens)}\n"
            f"KV cache: {s.cache.length} positions, {s.cache.nbytes:,} bytes"
        )

    def _build(self) -> list[ipywidgets.Widget]:
        given = self.session.prompt
        wide = {"description_width": "initial"}
        self._prompt = ipywidgets.Textarea(
            value=given if isinstance(given, str) else self._text(given),
            description="Prompt",
            rows=2,
            style=wide,
            layout={"flex": "1 1 420px", "width": "auto"},
        )
        read = self._button("Prefill this prompt", self._prefill, "Reading the prompt …")
        steps = [
            self._button("Step", self._step, "Reading one token …").add_class("main"),
            self._button("Back", self._back),
            self._button("Run", self._run, 'Running; "Stop" ends it.'),
            self._stop_button(),
            self._button("Reset", self._reset),
            self._button("Measure this machine's limits", self._measure, "Measuring, about two seconds …"),
        ]
        small = {"width": "150px"}
        self._settings = {
            name: ipywidgets.Text(description=label, continuous_update=False, style=wide, layout=small)
            for name, label in (
                ("temperature", "temperature"),
                ("top_k", "top-k (0: all)"),
                ("top_p", "top-p (1: all)"),
            )
        }
        fields = []
        for name, control in self._settings.items():
            control.value = f"{getattr(self.session.sampling, name) or {'top_p': 1}.get(name, 0):g}"
            fields.append(self._field(control, partial(self._set, name)))
        self._other = ipywidgets.Dropdown(description="Candidate", style=wide, layout={"width": "270px"})
        self._branch = ipywidgets.Dropdown(description="Branch", style=wide, layout={"width": "150px"})
        take = self._button("Take this token instead", self._take)
        self._watch(self._branch, self._switch)
        self._controls += [self._prompt, self._other]
        self._places = [ipywidgets.HTML() for _ in self._pictures()]
        answer, columns, candidates, work, branches = self._places
        row = {"flex_flow": "row wrap", "align_items": "center"}
        return [
            ipywidgets.HBox([self._prompt, read], layout=row),
            ipywidgets.HBox(steps, layout=row),
            ipywidgets.HBox(fields, layout=row),
            ipywidgets.HBox([self._other, take, self._branch], layout=row),
            self._status,
            answer,
            columns,
            ipywidgets.HBox([candidates, work], layout={"flex_flow": "row wrap", "grid_gap": "0 30px"}),
            branches,
        ]

    def _show(self) -> None:
        for place, picture in zip(self._places, self._pictures(), strict=True):
            place.value = picture
        options = [
            (f"{n}: {visible(c.text)} ({c.before:.1%})", c.token_id) for n, c in enumerate(self._candidates(), start=1)
        ]
        if self._other.options != tuple(options):
            # The likeliest of the others is the one to try.
            self._other.options = options
            self._other.value = next((i for _, i in options if i != self.session.node.token), options[0][1])
        self._branch.options = [(branch.name, index) for index, branch in enumerate(self.session.branches)]
        self._branch.value = self.session.current

    def _prefill(self) -> str:
        def progress(done: int, total: int) -> bool:
            if done:
                self._say(f"Read {done} of the prompt's {total} tokens …")
            return not self._stopped

        with self._engine_lock:
            new = DecodeSession(self._engine, self._prompt.value, self.session.chat, progress)
        new.sampling = self.session.sampling
        new.reset()
        self.session = new
        return f"Read the prompt: {len(new.prompt_ids)} tokens."

    def _step(self) -> str:
        with self._engine_lock:
            self.session.step()
        return self._where()

    def _back(self) -> str:
        self.session.back()
        return f"One step back. {self._where()}"

    def _run(self) -> str:
        while not self._stopped and not self.session.finish_reason:
            with self._engine_lock:
                self.session.step()
            self._refresh()
        return f"Stopped. {self._where()}" if not self.session.finish_reason else self._where()

    def _reset(self) -> str:
        self.session.reset()
        return f"Back at the prompt. {self._where()}"

    def _take(self) -> str:
        if self._other.value == self.session.node.token:
            raise LessonError("That token is already the chosen one. Choose another candidate.")
        self.session.take(self._other.value)
        return f"Took it. {self._where()}"

    def _switch(self, index: int | None) -> None:
        if index is not None and index < len(self.session.branches):
            self.session.switch(index)

    def _measure(self) -> str:
        with self._engine_lock:
            self._limits = roofline.measure_and_keep(self._engine)
        return f"Measured: {self._limits}."

    def _set(self, name: str, text: str) -> str:
        read: dict[str, Callable[[], Any]] = {
            "temperature": lambda: typed.decimal(text, "temperature", 0),
            "top_k": lambda: typed.whole(text, "top-k", 0, self._engine.config.vocab_size),
            "top_p": lambda: typed.decimal(text, "top-p", 0, 1),
        }
        value = read[name]()
        self.session.sampling = replace(self.session.sampling, **{name: value})
        return f"The next token is chosen with {self._sampling()}."

    def _where(self) -> str:
        """The current state, for the status line."""
        s = self.session
        new = quoted(spelled(self._tokenizer, s.tokens[-1]))
        end = f" Ended: {ENDS[s.finish_reason]}." if s.finish_reason else ""
        same = {None: "", True: " The same as before going back, bit for bit.", False: " Not the same as before!"}
        branch = f"Branch {s.branch.name}. " if len(s.branches) > 1 else ""
        return f"{branch}New token {new}; {s.cache.length} positions in the cache.{same[s.bit_equal]}{end}"

    def _sampling(self) -> str:
        """The settings in words."""
        sampling = self.session.sampling
        words = [f"temperature {sampling.temperature:g}"]
        if sampling.temperature and sampling.top_k:
            words.append(f"top-k {sampling.top_k}")
        if sampling.temperature and sampling.top_p is not None and sampling.top_p < 1:
            words.append(f"top-p {sampling.top_p:g}")
        return ", ".join(words)

    def _text(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, special=True)

    def _candidates(self) -> list[view.Candidate]:
        node, sampling = self.session.node, self.session.sampling
        stages = list(sampling.explain(node.logits).values())
        best = stages[0].topk(SHOWN).indices.tolist()
        if node.token not in best:
            best.append(node.token)
        return [
            view.Candidate(i, spelled(self._tokenizer, i), float(stages[0][i]), float(stages[-1][i]), i == node.token)
            for i in best
        ]

    def _pictures(self) -> list[str]:
        s = self.session
        ids, added = [*s.prompt_ids, *s.tokens], sum(c.tokens for c in s.node.costs)
        before, text = self._text(s.tokens[:-1]), self._text(s.tokens)
        return [
            view.answer(
                self._text(s.prompt_ids), before, text[len(before) :], ENDS[s.finish_reason] if s.finish_reason else ""
            ),
            view.cache_columns(
                [spelled(self._tokenizer, i) for i in ids[max(0, s.cache.length - view.MOST_COLUMNS) : s.cache.length]],
                s.cache.length,
                len(s.prompt_ids),
                added,
                None if s.finish_reason else spelled(self._tokenizer, s.tokens[-1]),
                s.cache.nbytes // s.cache.length,
            ),
            view.candidates(self._candidates(), self._sampling()),
            view.work(self._work(added)),
            view.branches([self._branch_row(index, branch) for index, branch in enumerate(s.branches)]),
        ]

    def _work(self, computed: int) -> view.Work:
        s, costs = self.session, self.session.node.costs
        whole = cost.prefill(self._engine.config, s.cache.length)
        return view.Work(
            name=f"Decode step {len(s.tokens) - 1}" if len(s.tokens) > 1 else "Prefill",
            computed=computed,
            reused=s.cache.length - computed,
            flops=sum(c.flops for c in costs),
            flops_without_cache=whole.flops,
            weight_bytes=sum(c.weight_bytes for c in costs),
            kv_read_bytes=sum(c.kv_read_bytes for c in costs),
            kv_written_bytes=sum(c.kv_written_bytes for c in costs),
            seconds=s.node.seconds,
            least_seconds=None if self._limits is None else sum(self._limits.place(c, 1).least_seconds for c in costs),
        )

    def _branch_row(self, index: int, branch: Branch) -> view.BranchRow:
        fork = branch.forked_at or 0
        shared, whole = self._text(branch.tokens[:fork]), self._text(branch.tokens)
        return view.BranchRow(
            branch.name,
            branch.forked_at,
            shared,
            whole[len(shared) :],
            len(branch.nodes),
            index == self.session.current,
        )
