/* tessera/unstable/unstable.h - all of tessera/unstable/: the typed answers of questions, the page, Mosaic's
 * questions, the allocator's state, a snapshot's tables as they are held.
 *
 * Unstable means: these headers follow the computations and change with them, in any version and
 * without notice; structs change their layout; option structs have to be of this very version. The
 * shared library exports these functions, so that a program may use them, but it has to be built with the headers
 * of the version that it runs with (tsr_version says which). What a question
 * reports can be had in a stable form as JSON (tessera/registry.h; docs/json.md is the contract). */
#ifndef TESSERA_UNSTABLE_UNSTABLE_H
#define TESSERA_UNSTABLE_UNSTABLE_H

#include "tessera/unstable/allocations.h"
#include "tessera/unstable/allocator_state.h"
#include "tessera/unstable/answers.h"
#include "tessera/unstable/attribution.h"
#include "tessera/unstable/card.h"
#include "tessera/unstable/causes.h"
#include "tessera/unstable/check.h"
#include "tessera/unstable/columns.h"
#include "tessera/unstable/estimates.h"
#include "tessera/unstable/fields.h"
#include "tessera/unstable/findings.h"
#include "tessera/unstable/fleet.h"
#include "tessera/unstable/formats.h"
#include "tessera/unstable/frames.h"
#include "tessera/unstable/input.h"
#include "tessera/unstable/json.h"
#include "tessera/unstable/ledger.h"
#include "tessera/unstable/mosaic.h"
#include "tessera/unstable/mosaic_file.h"
#include "tessera/unstable/names.h"
#include "tessera/unstable/outside.h"
#include "tessera/unstable/params.h"
#include "tessera/unstable/planning.h"
#include "tessera/unstable/plans.h"
#include "tessera/unstable/pools.h"
#include "tessera/unstable/relations.h"
#include "tessera/unstable/runs.h"
#include "tessera/unstable/sidecar.h"
#include "tessera/unstable/simulation.h"
#include "tessera/unstable/source.h"
#include "tessera/unstable/stack_names.h"
#include "tessera/unstable/stages.h"
#include "tessera/unstable/steps.h"
#include "tessera/unstable/suggest.h"
#include "tessera/unstable/terminal.h"
#include "tessera/unstable/timeline.h"
#include "tessera/unstable/tokenizer.h"
#include "tessera/unstable/train_report.h"
#include "tessera/unstable/training.h"
#include "tessera/unstable/view.h"
#include "tessera/unstable/whatif.h"
#include "tessera/unstable/why.h"
#include "tessera/unstable/window.h"

#endif
