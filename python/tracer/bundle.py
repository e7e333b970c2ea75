#!/usr/bin/env python3
"""bundle.py OUT.c FILE...: an archive of the files, without their folders, as a C array. The same files give the same bytes."""
import io
import sys
import zipfile
from pathlib import Path


def archive(paths):
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w', zipfile.ZIP_DEFLATED, compresslevel=9) as zipped:
        for path in sorted(map(Path, paths), key=lambda path: path.name):
            zipped.writestr(zipfile.ZipInfo(path.name), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return out.getvalue()


def main(out, *paths):
    data = archive(paths)
    rows = [','.join(map(str, data[at:at + 40])) for at in range(0, len(data), 40)]
    body = ',\n'.join(rows)
    Path(out).write_text('/* Made by python/tracer/bundle.py. */\n#include "core/tracer_archive.h"\n\n'
                         f'const unsigned char cli_tracer_archive[] = {{\n{body}}};\n'
                         f'const size_t cli_tracer_archive_size = {len(data)};\n', encoding='ascii')


if __name__ == '__main__':
    main(*sys.argv[1:])
