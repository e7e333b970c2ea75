"""The command mosaic_get_memory_usage."""
from mosaic._command import Command
from mosaic.cmd.entry_point import get_memory_usage

main = Command('mosaic_get_memory_usage')

if __name__ == '__main__':
    main()
