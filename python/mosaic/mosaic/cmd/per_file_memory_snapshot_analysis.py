"""The command mosaic_per_file_memory_snapshot_analysis."""
from mosaic._command import Command

per_file_memory_analysis = main = Command('mosaic_per_file_memory_snapshot_analysis')

if __name__ == '__main__':
    main()
