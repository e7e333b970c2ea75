"""The command mosaic_mcp: `tessera mcp`, which has Mosaic's tools and tessera's."""
from mosaic._command import Command

cli = Command('mosaic_mcp')

if __name__ == '__main__':
    cli()
