"""targets.py: what is built for, a row for each: by ./run build (build.py) and by ./run package (packaging/)."""
import re
from dataclasses import dataclass

from fetch import ROOT


@dataclass(frozen=True)
class Target:
    """What is built for."""
    system: str     # as ./run build calls it: Linux is 'linux' with glibc, and 'musl'
    name: str       # of its folder
    triple: str     # as zig spells it
    kernel: str     # as meson spells the system
    processor: str  # as meson spells it
    cmake: str      # CMAKE_SYSTEM_NAME
    tag: str        # of wheels
    debian: str = ''  # what Debian calls the processor

    @property
    def is_linux(self):
        return self.kernel == 'linux'

    @property
    def is_musl(self):
        return self.system == 'musl'


TARGETS = [
    # glibc 2.28 is what PyTorch's own wheels ask for: Debian 10, Ubuntu 18.10, RHEL 8 and later.
    Target('linux', 'x86_64', 'x86_64-linux-gnu.2.28', 'linux', 'x86_64', 'Linux', 'manylinux_2_28_x86_64', 'amd64'),
    Target('linux', 'aarch64', 'aarch64-linux-gnu.2.28', 'linux', 'aarch64', 'Linux', 'manylinux_2_28_aarch64', 'arm64'),
    Target('musl', 'x86_64', 'x86_64-linux-musl', 'linux', 'x86_64', 'Linux', 'musllinux_1_2_x86_64'),
    Target('musl', 'aarch64', 'aarch64-linux-musl', 'linux', 'aarch64', 'Linux', 'musllinux_1_2_aarch64'),
    Target('windows', 'x86_64', 'x86_64-windows-gnu', 'windows', 'x86_64', 'Windows', 'win_amd64'),
    Target('macos', 'arm64', 'aarch64-macos.11.0', 'darwin', 'aarch64', 'Darwin', 'macosx_11_0_arm64'),
    Target('macos', 'x86_64', 'x86_64-macos.11.0', 'darwin', 'x86_64', 'Darwin', 'macosx_11_0_x86_64'),
]
SYSTEMS = list(dict.fromkeys(target.system for target in TARGETS))


def version():
    """tessera's, as meson.build has it."""
    return re.search(r"version: '([\d.]+)'", (ROOT / 'meson.build').read_text(encoding='utf-8')).group(1)


def major_version():
    """By which programs find the shared library."""
    return version().partition('.')[0]


def of(system):
    """The targets of a system."""
    return [target for target in TARGETS if target.system == system]
