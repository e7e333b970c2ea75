/* tessera/tessera.h - the whole public interface: open a snapshot, ask a question, print the
 * answer. examples/peak.c shows it in some twenty lines. */
#ifndef TESSERA_TESSERA_H
#define TESSERA_TESSERA_H

#include "tessera/allocations.h"
#include "tessera/allocator.h"
#include "tessera/answers.h"
#include "tessera/attribution.h"
#include "tessera/causes.h"
#include "tessera/check.h"
#include "tessera/export.h"
#include "tessera/frames.h"
#include "tessera/limits.h"
#include "tessera/mosaic.h"
#include "tessera/mosaic_file.h"
#include "tessera/report.h"
#include "tessera/rules.h"
#include "tessera/sidecar.h"
#include "tessera/simulate.h"
#include "tessera/snapshot.h"
#include "tessera/source.h"
#include "tessera/stages.h"
#include "tessera/status.h"
#include "tessera/steps.h"
#include "tessera/view.h"
#include "tessera/whatif.h"
#include "tessera/why.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The library's version, "MAJOR.MINOR.PATCH". Static text. */
const char *tsr_version(void);

#ifdef __cplusplus
}
#endif
#endif
