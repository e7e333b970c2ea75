#!/usr/bin/env python3
"""client.py --tessera PATH --work FOLDER: `tessera mcp` as the official Python client sees it, as TAP.

The client comes from PyPI into a virtual environment under FOLDER, which is kept; where PyPI cannot
be reached, the tests are skipped and say so."""
import asyncio
import subprocess
import sys
import venv

import support
from support import Skip, expect, expect_that

PACKAGE = 'mcp'


def client_python(work):
    """A Python that has the client, or None."""
    folder = work / 'client'
    python = folder / 'bin' / 'python'
    has_it = [python, '-c', 'import mcp.client.stdio']
    try:
        if python.exists() and subprocess.run(has_it, check=False).returncode == 0:
            return python
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run([python, '-m', 'pip', 'install', '-q', '--disable-pip-version-check',
                        '--retries', '1', PACKAGE], check=True, capture_output=True,
                       timeout=support.HANG_S)
        subprocess.run(has_it, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return python


def field(value, name):
    """Fields are snake_case from version 2 of the client on, and camelCase before."""
    camel = ''.join(part.title() if at else part for at, part in enumerate(name.split('_')))
    return getattr(value, name) if hasattr(value, name) else getattr(value, camel)


async def converse(session, path):
    """What every version of the protocol must give."""
    tools = {tool.name: tool for tool in (await session.list_tools()).tools}
    expect_that('tools', {'tessera_peak', 'peak_memory_analysis'} <= set(tools))
    expect_that('a schema', 'path' in field(tools['tessera_peak'], 'input_schema')['required'])
    expect('read only', field(tools['tessera_peak'].annotations, 'read_only_hint'), True)
    result = await session.call_tool('tessera_peak', {'path': path, 'top': 2})
    expect('is error', bool(field(result, 'is_error')), False)
    answer = field(result, 'structured_content')
    expect_that('a verdict', answer['verdict'][0].startswith('Device 0: peak '))
    expect('stacks', len(answer['devices'][0]['stacks']), 2)
    expect_that('text', result.content[0].text.startswith('{"verdict"'))
    result = await session.call_tool('tessera_peak', {'path': '/no/such/file'})
    expect('is error', bool(field(result, 'is_error')), True)
    expect_that('why', 'No such file' in result.content[0].text)
    result = await session.call_tool('categorical_profiling', {'snapshot_path': path})
    expect('status', field(result, 'structured_content')['status'], 'ok')


def parameters(options):
    from mcp import StdioServerParameters
    return StdioServerParameters(command=str(options.tessera), args=['mcp'])


def check_a_session_with_a_handshake(options):
    from mcp import ClientSession
    from mcp.client.stdio import stdio_client

    async def talk():
        async with stdio_client(parameters(options)) as (read, write):
            async with ClientSession(read, write) as session:
                started = await session.initialize()
                expect('name', field(started, 'server_info').name, 'tessera')
                await session.send_ping()
                await converse(session, str(options.work / 'fixtures' / 'train.pickle'))
    asyncio.run(asyncio.wait_for(talk(), support.HANG_S))


def talk_as(options, **how):
    try:
        from mcp import Client
    except ImportError:
        raise Skip('this client has sessions with a handshake only') from None
    from mcp.client.stdio import stdio_client

    async def talk():
        async with Client(stdio_client(parameters(options)), **how) as client:
            await converse(client, str(options.work / 'fixtures' / 'train.pickle'))
            return client.protocol_version
    return asyncio.run(asyncio.wait_for(talk(), support.HANG_S))


def check_a_client_that_asks_for_the_newest(options):
    expect_that('a version of 2026 or later', talk_as(options) >= '2026')


def check_a_client_of_the_old_kind(options):
    expect_that('a version of 2025', talk_as(options, mode='legacy').startswith('2025'))


def main():
    options = support.arguments(__doc__)
    checks = [value for key, value in globals().items() if key.startswith('check_')]
    try:
        import mcp.client.stdio  # noqa: F401
    except ImportError:
        python = client_python(options.work)
        if python:
            return subprocess.run([python, *sys.argv], check=False).returncode
        print(f'1..0 # SKIP the package {PACKAGE} could not be installed from PyPI')
        return 0
    return support.tap.run(support.tap.named(checks, options))


if __name__ == '__main__':
    sys.exit(main())
