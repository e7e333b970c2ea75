"""bundle.py: one archive for machines without a network: wheels, the static program, documentation and examples."""
from common import ROOT, VERSION, Entry, from_file, gz, tar, tracked, write

README = """\
tessera {version} for Linux on {processor}, without a network

With Python (3.9 or newer), in an environment or with --user:

    pip install --no-index --find-links wheels tessera mosaic

mosaic is for programs that use Mosaic's interface. Systems with musl (Alpine) take the wheel of that name by themselves.

Without Python: unpack {static}; it holds one program, tessera.

Documentation is in docs/ (begin with README.md and docs/tour.md), examples in examples/, templates for GitHub and GitLab in
integrations/, a skill for language models in skills/. sbom.json lists what is inside.
"""


def make(processor, wheels, static, sbom, out):
    name = f'tessera-{VERSION}-offline-{processor}'
    entries = [from_file(f'wheels/{wheel.name}', wheel) for wheel in wheels]
    entries += [from_file(static.name, static), from_file('sbom.json', sbom), from_file('LICENSE', ROOT / 'LICENSE')]
    entries += [from_file(path, ROOT / path, 0o755 if path.endswith('.sh') else 0o644) for path in tracked()
                if path.startswith(('docs/', 'examples/', 'integrations/', 'skills/')) or path in ('README.md', 'CHANGELOG.md', 'SECURITY.md', 'CONTRIBUTING.md')]
    entries.append(Entry('INSTALL', README.format(version=VERSION, processor=processor, static=static.name).encode()))
    return write(out / f'{name}.tar.gz', gz(tar([Entry(f'{name}/{one.path}', one.data, one.mode) for one in entries])))
