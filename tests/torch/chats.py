#!/usr/bin/env python3
"""chats.py --check [NAME...]: chat templates, as tessera and as transformers render them, for random conversations.

The templates are written the way those of common models are, and at random: texts, tags with all ways to control white space, and
expressions. The library is that of `./run build`. --seed N and --count N choose other random ones.
"""
import argparse
import ctypes
import json
import random
import tempfile
from pathlib import Path

import jinja2
from transformers.utils.chat_template_utils import _compile_jinja_template

from tokens import LIBRARY, Error, load, text_of

TEMPLATES = {
    'llama2': ("{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}"
               "{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
               "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}"
               "{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + "
               "message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
               "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
               "{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"),
    'llama3': ("{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + "
               "'<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}"
               "{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"),
    'llama3.1': '''{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- This block extracts the system message, so we can slot it into the right place. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{#- System message + builtin tools #}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if builtin_tools is defined or tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{%- if builtin_tools is defined %}
    {{- "Tools: " + builtin_tools | reject('equalto', 'code_interpreter') | join(", ") + "\\n\\n"}}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {%- for arg_name, arg_val in tool_call.arguments | items %}
            {{- arg_name + '="' + arg_val + '"' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
''',
    'qwen2.5': '''{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- for tool_call in message.tool_calls %}
            {{- tool_call.arguments | tojson }}
        {%- endfor %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
''',
    'qwen3': '''{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}''',
    'chatml': ("{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% for message in messages %}"
               "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
               "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"),
    'mistral': ("{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
                "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
                "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
                "{{ message['content'] + eos_token}}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}"
                "{% endfor %}"),
    'gemma': ("{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
              "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
              "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
              "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}"
              "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
              "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"),
    'zephyr': ("{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n"
               "{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n"
               "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n"
               "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}"),
    'phi3': ("{% for message in messages %}{% if message['role'] in ['user', 'system'] %}{{'<|' ~ message.role ~ '|>\n' ~ message.content ~ '<|end|>\n'}}"
             "{% else %}{% generation %}{{ message.content }}{{ '<|end|>\n' }}{% endgeneration %}{% endif %}{% endfor %}"
             "{{ '<|assistant|>\n' if add_generation_prompt else eos_token }}"),
}
ATOMS = ["'a'", '"b\\n"', '1', '0', '-3', 'true', 'false', 'none', 'missing', 'bos_token', "messages[0].content", "messages[-1]['role']",
         'messages|length', "messages[0]['nothing']", 'add_generation_prompt', "'é😀x'[1:]", "'abc'[-2:]", 'ns.x', "[1, 'a', none]", "'x' in 'xyz'",
         "'  y '|trim", "'xx1x'.strip('x')", "'A,b'.split(',')[-1]", 'tools', "missing|default('d')", "'q\"é\n'|tojson", "messages[1:]|length",
         'messages[5] is defined', "messages is not string", "'a' ~ 1 ~ none", '7 // 2', '-7 % 3', "'u' if missing else 'v'", "'Ab'.lower()",
         "not missing", "(1 == 1) == true", "1 in [1, 2]", "'z' not in 'abc'", "'b' > 'a'", "'t'.startswith('t')", "'aXa'.replace('X', '--')"]
TOKENS = {'bos_token': '<s>', 'eos_token': '</s>'}
WRITE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t)


class Message(ctypes.Structure):
    _fields_ = [('role', ctypes.c_char_p), ('content', ctypes.c_char_p)]


def render(library, folder, template, messages, adds):
    """What tessera makes of it, or the message of its error."""
    (folder / 'tokenizer_config.json').write_text(json.dumps({**TOKENS, 'chat_template': template}), encoding='utf-8')
    chat, error, out = ctypes.c_void_p(), Error(), []

    def write(_context, data, size):
        out.append(ctypes.string_at(data, size))
        return 0
    given = (Message * len(messages))(*((m['role'].encode(), m['content'].encode()) for m in messages))
    status = library.tsr_chat_open(str(folder).encode(), ctypes.byref(chat), ctypes.byref(error))
    status = status or library.tsr_chat_render(chat, given, len(messages), adds, WRITE(write), None, ctypes.byref(error))
    library.tsr_chat_free(chat)
    return error.message.decode(errors='replace') if status else b''.join(out).decode(), status


def expected(template, messages, adds):
    """What transformers renders; None for an error, Ellipsis for what is no template."""
    try:
        return _compile_jinja_template(template).render(messages=messages, tools=None, documents=None, add_generation_prompt=adds, **TOKENS)
    except jinja2.TemplateSyntaxError:
        return ...
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, AttributeError):
        return None


def conversation(r):
    roles = ['system'] * (r.random() < 0.4) + ['user', 'assistant'] * 3
    roles = roles[:r.randrange(1, 6)] if r.random() < 0.8 else [r.choice(['user', 'assistant', 'system']) for _ in range(r.randrange(1, 5))]
    thoughts = ['', '', '', '<think>\nhm\n</think>\n\n', '<tool_response>x</tool_response>']
    return [{'role': role, 'content': r.choice(thoughts) + text_of(r, 8).replace('\0', '')} for role in roles]


def expression(r):
    atoms = [r.choice(ATOMS) for _ in range(r.choice([1, 1, 1, 2, 2, 3]))]
    text = atoms[0]
    for atom in atoms[1:]:
        text += r.choice([' == ', ' and ', ' or ', ' + ', ' ~ ', ' != ', ' < ', ' in ', ' if ']) + (f'({atom})' if r.random() < 0.3 else atom)
    return text + r.choice(['', '', '', '|string', '|trim', ' is defined', ' is none', ' is not string'])


def tag(r, kind, inside):
    left, right = {'%': ('{%', '%}'), '{': ('{{', '}}'), '#': ('{#', '#}')}[kind]
    signs = ['', '', '-'] + ['+'] * (kind != '{')
    return f'{left}{r.choice(signs)} {inside} {r.choice(signs)}{right}'


def random_template(r, depth=0):
    out = []
    for _ in range(r.randrange(1, 6)):
        out.append(r.choice(['', ' ', '\n', '\n\n', '  ', 'x', 'line\n', ' \n  ', 'a b', '\t', '\r\n', '{', '}', "'"]))
        k = r.random()
        if k < 0.4 or depth > 2:
            out.append(tag(r, '{', expression(r)))
        elif k < 0.5:
            out.append(tag(r, '#', 'a comment'))
        elif k < 0.6:
            out.append(tag(r, '%', f"set {r.choice(['v', 'ns.x', 'w'])} = {expression(r)}"))
        elif k < 0.8:
            out += [tag(r, '%', f'if {expression(r)}'), random_template(r, depth + 1)]
            if r.random() < 0.3:
                out += [tag(r, '%', f'elif {expression(r)}'), random_template(r, depth + 1)]
            if r.random() < 0.4:
                out += [tag(r, '%', 'else'), random_template(r, depth + 1)]
            out.append(tag(r, '%', 'endif'))
        else:
            out += [tag(r, '%', 'for m in ' + r.choice(['messages', 'messages[1:]', "[1, 2]", 'messages if m.role == "user"', 'missing'])),
                    random_template(r, depth + 1), tag(r, '{', r.choice(['loop.index', 'loop.first', 'loop.last', 'm', 'v', 'loop.length'])),
                    tag(r, '%', 'endfor')]
    return ''.join(out)


def difference(library, folder, template, r):
    messages, adds = conversation(r), r.random() < 0.5
    want = expected(template, messages, adds)
    if want is ...:
        return None
    got, status = render(library, folder, template, messages, adds)
    if (want is None) != bool(status) and not (status and 'not supported' in got):
        return f'{template!r} with {messages} {adds}: {want!r} is {got!r}'
    return f'{template!r} with {messages} {adds}: {want!r} is {got!r}' if not status and got != want else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--check', action='store_true')
    parser.add_argument('--seed', default='1')
    parser.add_argument('--count', type=int, default=3000)
    parser.add_argument('names', nargs='*', metavar='NAME')
    given = parser.parse_args()
    if not LIBRARY.exists():
        print('ok 1 - chat templates # SKIP ./run build makes the library')
        return
    library = load(LIBRARY)
    library.tsr_chat_open.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]
    library.tsr_chat_render.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_bool, WRITE, ctypes.c_void_p, ctypes.c_void_p]
    library.tsr_chat_free.argtypes = [ctypes.c_void_p]
    names = [name for name in [*TEMPLATES, 'random'] if not given.names or name in given.names]
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(names, 1):
            r = random.Random(f'{given.seed} {name}')
            count = given.count if name == 'random' else given.count // 10
            wrong = next(filter(None, (difference(library, Path(folder), TEMPLATES.get(name) or "{% set ns = namespace(x='n') %}" + random_template(r), r)
                                       for _ in range(count))), None)
            print(f'{"not " if wrong else ""}ok {number} - {name}' + (f'\n# {wrong}' if wrong else ''), flush=True)
    print(f'1..{len(names)}')


if __name__ == '__main__':
    main()
