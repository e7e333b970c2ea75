"""The command mosaic_get_memory_usage_peak."""
from mosaic._command import Command
from mosaic.cmd.entry_point import get_memory_usage_peak

main = Command('mosaic_get_memory_usage_peak')

if __name__ == '__main__':
    main()
