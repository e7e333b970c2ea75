"""The command mosaic_get_json_snapshot."""
from mosaic._command import Command
from mosaic.cmd.entry_point import get_json_snapshot

main = Command('mosaic_get_json_snapshot')

if __name__ == '__main__':
    main()
