/* tessera/tessera.h - the stable interface: open a snapshot, ask any question, write the answer; simulate
 * a training run; allocate as PyTorch does. examples/peak.c shows it in some twenty lines.
 *
 * What these headers declare stays. A program that was built with one version runs with every later
 * one of the same major version: functions are added and never changed, handles are
 * opaque, options carry their size (tessera/options.h), rows that are handed out by pointer grow at their end
 * only, and other structs do not change. docs/stability.md has the rules.
 *
 * tessera/unstable/ has more, without these promises. */
#ifndef TESSERA_TESSERA_H
#define TESSERA_TESSERA_H

#include "tessera/allocator.h"
#include "tessera/category.h"
#include "tessera/effort.h"
#include "tessera/export.h"
#include "tessera/limits.h"
#include "tessera/model.h"
#include "tessera/options.h"
#include "tessera/output.h"
#include "tessera/query.h"
#include "tessera/rates.h"
#include "tessera/registry.h"
#include "tessera/rules.h"
#include "tessera/simulate.h"
#include "tessera/snapshot.h"
#include "tessera/status.h"
#include "tessera/study.h"
#include "tessera/types.h"
#include "tessera/version.h"

#endif
