"""ProfilerPlotter by its older place."""
from mosaic.libmosaic.utils.profiler_plotter import ProfilerPlotter

__all__ = ['ProfilerPlotter']
