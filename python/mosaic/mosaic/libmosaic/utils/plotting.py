"""ProfilerPlotter under its older module name."""
from mosaic.libmosaic.utils.profiler_plotter import ProfilerPlotter

__all__ = ['ProfilerPlotter']
