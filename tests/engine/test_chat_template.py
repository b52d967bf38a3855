"""Chat templates are programs of strangers: they may write only so much, and see nothing but the conversation."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from llmlesson import LessonError
from llmlesson.engine.chat_template import MAX_TEXT, read_template, render

MESSAGES = [{"role": "user", "content": "Hello <b>you</b>"}, {"role": "assistant", "content": "Hi"}]

# What the templates of well-known families use beyond loops and conditions.
TEMPLATES = [
    "{{ bos_token }}{% for m in messages %}[{{ loop.index }}|{{ m['role'] }}]{{ m.content | trim }}\n{% endfor %}",
    "{% set ns = namespace(found=false) %}{% for m in messages %}{% if m.role == 'assistant' %}"
    "{% set ns.found = true %}{% continue %}{% endif %}{{ m.content }}{% endfor %}{{ ns.found }}",
    "{%- for m in messages -%}\n  {%- generation %}{{ m.content }}{% endgeneration -%}\n{%- endfor -%} x",
    "{{ messages | tojson }}{{ messages | tojson(indent=2) }}",
    "{% macro say(m) %}<{{ m.content }}>{% endmacro %}{% for m in messages[::-1] %}{{ say(m) }}{% endfor %}",
    "{% if messages[0].role != 'system' %}none{% endif %}{{ messages | selectattr('role', 'eq', 'user') | list }}",
    "{{ '=' * 5 }}{{ 3 * 4 }}{{ 2 ** 5 }}{{ [1] * 3 }}{{ 'x'.join(['a', 'b']) }}{{ '%s' % 'y' }}{{ 'Z'.lower() }}",
    "{% if tools is none and documents is none %}{{ add_generation_prompt }}{{ dict(a=1).items() }}{% endif %}",
    "    {% if true %}\n    kept\n    {% endif %}\n\n{% for i in range(3) %}\n{{ i }}{% break %}\n{% endfor %}",
]


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_writes_what_it_writes_in_transformers(template):
    names = {"bos_token": "<s>"}
    [expected], _ = render_jinja_template([MESSAGES], chat_template=template, add_generation_prompt=True, **names)
    assert render(template, MESSAGES, names) == expected


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for i in range(99999) %}{% for j in range(99999) %}xxxxxxxx{% endfor %}{% endfor %}", "writes more than"),
        ("{{ 'x' * 10 ** 12 }}", "repeats a text too many times"),
        ("{{ 10 ** 12 * 'x' }}", "repeats a text too many times"),
        ("{{ [0] * 10 ** 12 }}", "repeats a text too many times"),
        ("{{ 99 ** 999999999 }}", "a power that is too large"),
        ("{{ range(10 ** 12) | list }}", "Range too big"),
        ("{{ lipsum(10 ** 9) }}", "lipsum' is undefined"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"),
        ("{{ raise_exception('only two roles') }}", "only two roles"),
        ("{% for", "can't take these messages"),
        ("{% include '/etc/passwd' %}", "no loader"),
        ("{{ messages.append(1) }}", "can't take these messages"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ namespace(__class__=1) }}", "the name '__class__'"),
        ("{{ nothing.at.all }}", "undefined"),
    ],
)
def test_a_template_without_measure_is_stopped(template, message):
    with pytest.raises(LessonError, match=message) as refused:
        render(template, MESSAGES, {})
    assert "chat template can't take these messages" in str(refused.value)


def test_what_it_may_write_is_far_more_than_a_model_reads():
    assert len(render("{{ 'x' * 9999999 }}", MESSAGES, {})) == MAX_TEXT - 1


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for another process")
def test_one_that_computes_without_end_can_be_interrupted():
    code = """
from llmlesson.engine.chat_template import render
try:
    print("begins", flush=True)
    render("{% for i in range(99999) %}{% for j in range(99999) %}{% set x = i * j %}{% endfor %}{% endfor %}", [], {})
except KeyboardInterrupt:
    print("interrupted")
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "begins\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[0] == "interrupted\n"
    finally:
        process.kill()


def test_which_template_a_folder_has(tmp_path):
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    assert read_template(tmp_path, {}) is None
    assert read_template(tmp_path, {"chat_template": "one"}) == "one"
    assert read_template(tmp_path, {"chat_template": named}) == "plain"
    for odd in (named[:1], [1, {}], {"default": "x"}, 5, None):
        assert read_template(tmp_path, {"chat_template": odd}) is None
    (tmp_path / "chat_template.jinja").write_text("file")
    assert read_template(tmp_path, {"chat_template": "one"}) == "file"
