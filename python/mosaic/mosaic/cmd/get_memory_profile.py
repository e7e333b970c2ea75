"""The command mosaic_get_memory_profile."""
from mosaic._command import Command
from mosaic.cmd.entry_point import get_memory_profile

main = Command('mosaic_get_memory_profile')

if __name__ == '__main__':
    main()
