"""recipes.py: the recipes of other packagers, homebrew/ and conda/, with the address and the checksum of the sources filled in."""
import wheel
from common import ROOT, VERSION, say, sha256, write

FILES = {'homebrew/tessera.rb': 'tessera.rb', 'conda/recipe.yaml': 'recipe.yaml'}
UNKNOWN = 'https://tessera.invalid'


def filled(name, url, checksum):
    text = (ROOT / 'packaging' / name).read_text(encoding='utf-8')
    return text.replace('@VERSION@', VERSION).replace('@HOME@', url).replace('@SHA256@', checksum)


def make(sources, out):
    """The recipes that build from an archive of sources."""
    url = wheel.home() or UNKNOWN
    if url == UNKNOWN:
        say('the checkout has no origin on the web: the recipes have an address that does not exist')
    return [write(out / f'{place}', filled(name, url, sha256(sources)).encode()) for name, place in FILES.items()]
