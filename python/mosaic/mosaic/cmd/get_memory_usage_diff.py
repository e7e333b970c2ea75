"""The command mosaic_get_memory_usage_diff."""
from mosaic._command import Command
from mosaic.cmd.entry_point import get_memory_usage_diff

main = Command('mosaic_get_memory_usage_diff')

if __name__ == '__main__':
    main()
