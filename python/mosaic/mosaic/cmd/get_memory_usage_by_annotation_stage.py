"""The command mosaic_get_memory_usage_by_annotation_stage."""
from mosaic._command import Command
from mosaic.cmd.entry_point import get_memory_usage_by_annotation_stage

main = Command('mosaic_get_memory_usage_by_annotation_stage')

if __name__ == '__main__':
    main()
