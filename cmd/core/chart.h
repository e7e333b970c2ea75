/* chart.h - memory over time as a picture in a report: of characters, or as SVG. */
#ifndef CLI_CHART_H
#define CLI_CHART_H

#include <stdbool.h>
#include <stdio.h>
#include <tessera/unstable/answers.h>

/* Whether the history of a device, which tsr_profile_compute made, is long enough to draw. */
bool cli_chart_has(const tsr_profile_device *device);
/* Rows of block characters: the largest sum in each column, with its scale and the events at the ends. */
void cli_chart_text(FILE *stream, const tsr_profile_device *device);
/* Stacked areas by group with a legend: one <figure>, which refers to nothing outside of it. False if memory ran out. */
bool cli_chart_svg(FILE *stream, const tsr_profile_device *device);

#endif
