/* report.c - the reason for an out-of-memory, as text or JSON.
 *
 *   Device 0: out of memory at event 4,512 of 4,600, by fragmentation: 2.00 GiB were asked for,
 * 91.25 MiB were free on the device, and 3.10 GiB ...
 *
 *     asked for by  train.py:40 forward
 *     ...
 *
 *   Where the memory was:
 *        bytes   share  blocks   largest  what
 *    18.00 GiB  75.0 %                    in use
 *     3.10 GiB  12.9 %      12  512.00 MiB  cached and free for such requests, in pieces
 *
 * then the memory in use, by category and by line, and the settings that would have avoided the failure.
 * `tessera at` shows the state at its event numbers. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/format.h"
#include "emit/heading.h"
#include "emit/text.h"
#include "questions/reports.h"
#include "questions/shared/findings.h"
#include "questions/shared/imbalance.h"
#include "questions/shared/moment.h"
#include "questions/shared/names.h"
#include "questions/shared/stepping.h"
#include "questions/why/outlook.h"

#define SIZE(bytes)   tsr__format_size((bytes), (char[TSR__FORMAT_BYTES]){0})
#define COUNT(number) tsr__format_count((number), (char[TSR__FORMAT_BYTES]){0})

/* ---- Outside PyTorch ---- */

static size_t count_outside(const tsr_why_device *d, tsr_card_kind kind) {
  size_t count = 0;
  for (size_t i = 0; i < d->outside_count; i++) count += d->outside[i].kind == kind;
  return count;
}

/* A name, which is cut if it is long. */
static void append_short_name(tsr__buffer *out, const char *name) {
  enum { MOST = 40 };
  size_t length = strlen(name), size = length < MOST ? length : MOST;
  while (size < length && size && ((unsigned char)name[size] & 0xc0) == 0x80) size--;
  tsr__buffer_append(out, name, size);
  if (size < length) tsr__buffer_text(out, "...");
}

/* What a part is: "the NCCL group dp (0)", "process 4711 (python3)". */
static void append_outside(tsr__buffer *out, const tsr_why_outside *o) {
  switch (o->kind) {
  case TSR_CARD_CONTEXT: tsr__buffer_text(out, "the CUDA context"); break;
  case TSR_CARD_LIBRARY: tsr__buffer_printf(out, "%s", *o->name ? o->name : "a library"); break;
  case TSR_CARD_COMMUNICATOR:
    tsr__buffer_text(out, "the NCCL group ");
    append_short_name(out, *o->name ? o->name : "without a name");
    break;
  case TSR_CARD_DRIVER: tsr__buffer_text(out, "the driver"); break;
  case TSR_CARD_PROCESS:
    tsr__buffer_printf(out, "process %" PRIu64, o->pid);
    if (*o->name) tsr__buffer_text(out, " (");
    append_short_name(out, o->name);
    if (*o->name) tsr__buffer_text(out, ")");
    break;
  default: tsr__buffer_text(out, "what nobody accounts for");
  }
}

/* The cause, in a sentence. */
static void append_outside_cause(tsr__buffer *out, const tsr_why_device *d) {
  const tsr_why_outside_cause *cause = &d->outside_causes[0];
  const tsr_why_outside *o = &d->outside[cause->part];
  size_t count = count_outside(d, o->kind);
  bool is_rest = cause->sort == TSR_WHY_OUTSIDE_REST;
  tsr__buffer_text(out, "Outside PyTorch: ");
  switch (cause->sort) {
  case TSR_WHY_OUTSIDE_GROWTH:
    append_outside(out, o);
    tsr__buffer_printf(out, " grew by %s, to %s of the card.", SIZE(o->grew_bytes), SIZE(o->bytes));
    return;
  case TSR_WHY_OUTSIDE_GROUPS:
    tsr__buffer_printf(out, "NCCL held %s of %s in %s group%s.", SIZE(cause->bytes),
                       SIZE(d->capacity_bytes), COUNT(count), tsr__plural(count));
    return;
  case TSR_WHY_OUTSIDE_PROCESS:
    if (count > 1)
      tsr__buffer_printf(out, "%s other processes", COUNT(count));
    else
      append_outside(out, o);
    break;
  default: append_outside(out, o);
  }
  tsr__buffer_printf(out, " %s %s of %s", is_rest ? "takes" : "held", SIZE(cause->bytes),
                     SIZE(d->capacity_bytes));
  if (o->kind == TSR_CARD_PROCESS && count > 1) {
    tsr__buffer_text(out, ", most of it ");
    append_outside(out, o);
  }
  tsr__buffer_text(out, ".");
}

/* What to do about it. */
static void append_remedy(tsr__buffer *out, const tsr_why_device *d,
                          const tsr_why_outside_cause *cause) {
  const tsr_why_outside *o = &d->outside[cause->part];
  bool is_group = o->kind == TSR_CARD_COMMUNICATOR;
  if (cause->sort == TSR_WHY_OUTSIDE_GROWTH) {
    tsr__buffer_text(out, "Find out what makes ");
    append_outside(out, o);
    tsr__buffer_printf(
        out, " grow%s: ", o->is_steady ? " (all the time, so any card is full at some time)" : "");
    tsr__buffer_text(out, is_group
                              ? "groups that are made again and again keep their memory until "
                                "destroy_process_group(), and connections are made when they are "
                                "first used."
                          : o->kind == TSR_CARD_PROCESS
                              ? "it is another program."
                              : "memory that a library allocates for itself, past PyTorch: its own "
                                "pools and workspaces, CUDA graphs, printf and malloc in kernels.");
    return;
  }
  switch (o->kind) {
  case TSR_CARD_PROCESS:
    tsr__buffer_text(out, "End ");
    append_outside(out, o);
    tsr__buffer_printf(out,
                       " if it is left over (ps -fp %" PRIu64 " shows what it is), or run on "
                       "another card: it holds %s.",
                       o->pid, SIZE(o->bytes));
    break;
  case TSR_CARD_COMMUNICATOR:
    tsr__buffer_text(out, "Less for NCCL: ");
    append_outside(out, o);
    tsr__buffer_printf(
        out,
        " has %s. Fewer groups (one for the same ranks can be used again), smaller "
        "buffers (NCCL_BUFFSIZE, 4 MiB by default, for each channel and connection), "
        "fewer channels (NCCL_MAX_CTAS), connections that are made when they are "
        "first used (NCCL_RUNTIME_CONNECT=1), NCCL_CUMEM_ENABLE=0.",
        SIZE(o->bytes));
    break;
  case TSR_CARD_CONTEXT:
    tsr__buffer_printf(out,
                       "A smaller CUDA context than %s: load kernels when they are first used "
                       "(CUDA_MODULE_LOADING=LAZY), and smaller stacks and heaps of the device "
                       "(cudaDeviceSetLimit).",
                       SIZE(o->bytes));
    break;
  default:
    tsr__buffer_printf(out,
                       "Find out who has the %s: nvidia-smi on the host lists processes of other "
                       "containers; what is in this process, and no part of it, is a "
                       "library's.",
                       SIZE(cause->bytes));
  }
}

static void print_outside(tsr__emitter *emitter, const tsr_why_device *d) {
  for (size_t i = 0; i < d->advice_count; i++) {
    if (d->advice[i].change != TSR_WHY_CHANGE_OUTSIDE) continue;
    tsr__emit_space(emitter);
    tsr__emit_printf(emitter, TSR__BOLD, "What would help, outside PyTorch:");
    for (size_t k = 0; k < d->outside_cause_count; k++) {
      append_remedy(&emitter->scratch, d, &d->outside_causes[k]);
      tsr__emit_paragraph(emitter, TSR__PLAIN, 2);
    }
  }
}

static const char *sort_name(tsr_why_outside_sort sort) {
  static const char *const names[] = {"process", "groups", "growth", "context", "unaccounted"};
  return names[sort];
}

static void emit_outside(tsr__emitter *emitter, const tsr_why_device *d) {
  static const tsr__column columns[] = {
      {"kind", NULL, TSR__LEFT},          {"name", NULL, TSR__LEFT},
      {"pid", NULL, TSR__RIGHT},          {"bytes", NULL, TSR__RIGHT},
      {"grew_bytes", NULL, TSR__RIGHT},   {"steady", NULL, TSR__LEFT},
      {"covers_missing", NULL, TSR__LEFT}};
  tsr__emit_table(emitter, "outside", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < d->outside_count; i++) {
    const tsr_why_outside *o = &d->outside[i];
    tsr__cell cells[] = {tsr__string(tsr_card_kind_name(o->kind)),
                         *o->name ? tsr__string(o->name) : tsr__nothing(),
                         o->kind == TSR_CARD_PROCESS ? tsr__count(o->pid) : tsr__nothing(),
                         tsr__bytes(o->bytes),
                         tsr__bytes(o->grew_bytes),
                         tsr__bool(o->is_steady),
                         tsr__bool(d->missing_bytes && o->bytes >= d->missing_bytes)};
    tsr__emit_row(emitter, cells);
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
  tsr__emit_field(emitter, "asleep_bytes", NULL, tsr__bytes(d->asleep_bytes));
  tsr__emit_field(emitter, "outside_time_us", NULL, tsr__time(d->outside_us));
  static const tsr__column cause_columns[] = {
      {"index", NULL, TSR__RIGHT}, {"sort", NULL, TSR__LEFT}, {"bytes", NULL, TSR__RIGHT}};
  tsr__emit_table(emitter, "outside_causes", cause_columns,
                  sizeof cause_columns / sizeof *cause_columns);
  for (size_t i = 0; i < d->outside_cause_count; i++) {
    const tsr_why_outside_cause *cause = &d->outside_causes[i];
    tsr__cell cells[] = {tsr__count(cause->part), tsr__string(sort_name(cause->sort)),
                         tsr__bytes(cause->bytes)};
    tsr__emit_row(emitter, cells);
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
}

/* ---- The verdict ---- */

static uint64_t free_in_all(const tsr_why_device *d) {
  return tsr__sum_u64(d->fragmentation.free_block_bytes, d->fragmentation.free_segment_bytes);
}

/* Whether the driver had too little for the segment that a much smaller request takes. */
static bool takes_more(const tsr_why_device *d) {
  return d->missing_bytes && d->needed_bytes / 2 >= d->request_bytes;
}

/* Where most of what is cached elsewhere is. */
static const char *elsewhere(const tsr_why_device *d) {
  static const char *const words[TSR_WHY_CACHE_COUNT] = {
      [TSR_WHY_CACHE_OWN] = "",
      [TSR_WHY_CACHE_OTHER_SIZE] = "for requests of another size",
      [TSR_WHY_CACHE_OTHER_STREAM] = "for other streams",
      [TSR_WHY_CACHE_OTHER_POOL] = "in other pools"};
  int most = TSR_WHY_CACHE_OTHER_SIZE;
  for (int i = most; i < TSR_WHY_CACHE_COUNT; i++)
    if (d->free[i].bytes > d->free[most].bytes) most = i;
  return words[most];
}

static void append_limit(tsr__buffer *out, const tsr_why_device *d) {
  if (d->exceeded_reserve_bytes)
    tsr__buffer_printf(out,
                       "which is enough: but no expandable segment can hold more than "
                       "expandable_segments_reserve, %s",
                       SIZE(d->exceeded_reserve_bytes));
  else
    tsr__buffer_text(
        out, "which is enough: a limit (set_per_process_memory_fraction), a private pool or "
             "another process at that moment stood in the way");
}

static void append_reason(tsr__buffer *out, const tsr_why_device *d) {
  const tsr_why_room *own = &d->free[TSR_WHY_CACHE_OWN];
  uint64_t others = tsr__drop_u64(free_in_all(d), own->bytes);
  switch (d->request_reason) {
  case TSR_WHY_FRAGMENTED:
    if (!own->bytes) {
      tsr__buffer_text(out, "which is enough for the request alone");
      break;
    }
    tsr__buffer_printf(out, "and %s that PyTorch had cached for such requests lay free",
                       SIZE(own->bytes));
    if (own->largest_bytes < d->request_bytes)
      tsr__buffer_printf(out, " in pieces of at most %s", SIZE(own->largest_bytes));
    else if (d->is_kept_whole)
      tsr__buffer_text(out, ", kept whole by max_split_size_mb for larger requests");
    else
      tsr__buffer_printf(out, ", %s of it in one piece (why that was not used is not recorded)",
                         SIZE(own->largest_bytes));
    break;
  case TSR_WHY_CACHED_ELSEWHERE:
    tsr__buffer_printf(out, "and %s lay free in PyTorch's cache, but %s, most of it %s",
                       SIZE(free_in_all(d)), own->bytes ? "of little use here" : "of no use here",
                       elsewhere(d));
    break;
  case TSR_WHY_PENDING:
    tsr__buffer_printf(out, "and %s that the program had freed still waited for another stream",
                       SIZE(d->fragmentation.waiting_bytes));
    break;
  case TSR_WHY_ROUNDED:
    tsr__buffer_printf(out, "and blocks in use held %s more than was asked for them",
                       SIZE(d->lost_bytes));
    break;
  case TSR_WHY_OUTSIDE:
    tsr__buffer_printf(out, "and %s of %s were held outside this PyTorch", SIZE(d->outside_bytes),
                       SIZE(d->capacity_bytes));
    break;
  case TSR_WHY_UNKNOWN:
    tsr__buffer_printf(out,
                       "and %s were in use; how much was cached is not known, since the file has "
                       "segments of %s",
                       SIZE(d->moment.totals.active_bytes), SIZE(d->moment.totals.reserved_bytes));
    break;
  case TSR_WHY_LIMIT: append_limit(out, d); break;
  default:
    tsr__buffer_printf(out, "and of %s reserved, %s were in use",
                       SIZE(d->moment.totals.reserved_bytes),
                       SIZE(d->moment.totals.allocated_bytes));
    if (others > d->missing_bytes / 8)
      tsr__buffer_printf(out, "; what else was cached would not have been enough");
  }
}

/* What the outlook covers: a step or an iteration, or the forward pass that failed. */
static const char *covered(const tsr_why_outlook *outlook) {
  return outlook->basis == TSR_WHY_BASIS_BLOCKS ? "forward pass"
                                                : tsr_steps_unit_name(outlook->unit);
}

static const char *reason_text(const tsr_why_device *d) {
  static const char *const words[TSR_WHY_REASON_COUNT] = {
      [TSR_WHY_NOT_RECORDED] = "",
      [TSR_WHY_LIMIT] = ", although the device had memory",
      [TSR_WHY_FRAGMENTED] = " by fragmentation",
      [TSR_WHY_CACHED_ELSEWHERE] = ", with free memory cached elsewhere",
      [TSR_WHY_PENDING] = ", with freed memory not free yet",
      [TSR_WHY_ROUNDED] = " by rounding and tails",
      [TSR_WHY_OUTSIDE] = ", because others held the card",
      [TSR_WHY_IN_USE] = ": what is in use fills the card",
      [TSR_WHY_UNKNOWN] = ""};
  uint64_t there = tsr__sum_u64(d->moment.totals.reserved_bytes, d->device_free_bytes);
  bool is_arrangement = tsr__why_is_arrangement(d->request_reason);
  if (is_arrangement && d->outlook.short_bytes) return ": it needs more than there was";
  bool is_unused = d->free[TSR_WHY_CACHE_OWN].largest_bytes >= d->request_bytes;
  if (d->request_reason == TSR_WHY_FRAGMENTED && is_unused && !d->is_kept_whole) return "";
  if (d->request_reason == TSR_WHY_IN_USE && d->request_bytes > there)
    return ": this request alone is more than there was";
  return words[(unsigned)d->request_reason < TSR_WHY_REASON_COUNT ? d->request_reason : 0];
}

static void append_story(tsr__buffer *out, const tsr_why_device *d) {
  tsr__buffer_printf(out, "Out of memory at event %s of %s%s. ", COUNT((uint64_t)d->moment.event),
                     COUNT(d->event_count), reason_text(d));
  tsr__buffer_printf(out, "%s were asked for, %s were free on the device, ", SIZE(d->request_bytes),
                     SIZE(d->device_free_bytes));
  append_reason(out, d);
  if (takes_more(d))
    tsr__buffer_printf(out, "; for %s of %s,", d->is_expandable ? "pages" : "a segment",
                       SIZE(d->needed_bytes));
  else if (d->missing_bytes)
    tsr__buffer_text(out, ";");
  if (d->missing_bytes) tsr__buffer_printf(out, " %s were missing", SIZE(d->missing_bytes));
  if (d->request_reason != TSR_WHY_IN_USE && d->request_reason != TSR_WHY_UNKNOWN)
    tsr__buffer_printf(out, ", with %s in use", SIZE(d->moment.totals.allocated_bytes));
  tsr__buffer_text(out, ".");
}

/* Where in the program it was: " in the forward pass of step 2", or "". */
static void append_where(tsr__buffer *out, const tsr_why_outlook *outlook) {
  const char *name = tsr__phase_words(outlook->phase);
  if (name) tsr__buffer_printf(out, " in %s", name);
  if (outlook->step)
    tsr__buffer_printf(out, "%s %s %s", name ? " of" : " in", tsr_steps_unit_name(outlook->unit),
                       COUNT(outlook->step));
}

static void append_short(tsr__buffer *out, const tsr_why_device *d) {
  const tsr_why_outlook *outlook = &d->outlook;
  bool is_all = outlook->basis == TSR_WHY_BASIS_STEP;
  tsr__buffer_printf(out, " %s %s (estimate)", is_all ? "about" : "at least",
                     SIZE(outlook->asked_bytes));
  if (outlook->short_bytes)
    tsr__buffer_printf(out, ", %s more than there was: no allocator setting lets the %s finish",
                       SIZE(outlook->short_bytes), covered(outlook));
}

/* What would have come after the request, in a sentence or two. */
static void append_outlook(tsr__buffer *out, const tsr_why_device *d) {
  const tsr_why_outlook *outlook = &d->outlook;
  tsr__buffer_text(out, "It failed");
  append_where(out, outlook);
  if (outlook->blocks_begun > 1 && outlook->block_bytes) {
    const char *what = outlook->block_count ? "block" : "repetition";
    tsr__buffer_printf(out, ", in %s %s", what, COUNT(outlook->blocks_begun));
    if (outlook->block_count) tsr__buffer_printf(out, " of about %s", COUNT(outlook->block_count));
    tsr__buffer_printf(out, ", with %s more in use for each", SIZE(outlook->block_bytes));
  }
  if (outlook->basis == TSR_WHY_BASIS_BLOCKS) {
    tsr__buffer_text(out, "; the remaining blocks alone would have taken it to");
    append_short(out, d);
    if (!outlook->short_bytes)
      tsr__buffer_text(out, ", and what comes after them is not in the trace");
  } else if (outlook->basis == TSR_WHY_BASIS_STEP) {
    tsr__buffer_printf(out, "; going on as the %s before did would have taken it to",
                       covered(outlook));
    append_short(out, d);
  } else if (outlook->basis == TSR_WHY_BASIS_STATES) {
    tsr__buffer_text(out,
                     "; parameters, gradients and the rest of the optimizer's state would have "
                     "taken it to");
    append_short(out, d);
  } else {
    tsr__buffer_text(out, "; what the rest of the run needs is not in the trace");
  }
  tsr__buffer_text(out, ".");
  if (outlook->step_growth_bytes)
    tsr__buffer_printf(out,
                       " Memory in use grew by %s from %s to %s, so any card is full at some "
                       "time: `tessera leaks` lists what grows.",
                       SIZE(outlook->step_growth_bytes), tsr_steps_unit_name(outlook->unit),
                       tsr_steps_unit_name(outlook->unit));
}

/* What the run needs, where that is more than there was. */
static void append_need(tsr__buffer *out, const tsr_why_device *d) {
  static const char *const needs[TSR_WHY_BASIS_COUNT] = {
      [TSR_WHY_BASIS_BLOCKS] = "The forward pass alone needs at least",
      [TSR_WHY_BASIS_STATES] = "Parameters, gradients and optimizer state alone are",
  };
  const char *text = needs[d->outlook.basis];
  if (text)
    tsr__buffer_text(out, text);
  else
    tsr__buffer_printf(out, "The %s needs about", covered(&d->outlook));
  tsr__buffer_printf(out, " %s, %s more than there was: no allocator setting can help.",
                     SIZE(d->outlook.asked_bytes), SIZE(d->outlook.short_bytes));
}

/* Who held the card: a part that the ledger names, or others in general. */
static void append_held(tsr__buffer *out, const tsr_why_device *d) {
  if (d->outside_cause_count)
    append_outside_cause(out, d);
  else
    tsr__buffer_printf(out, "Others held the card: %s of %s were outside this PyTorch.",
                       SIZE(d->outside_bytes), SIZE(d->capacity_bytes));
}

/* Too little is in the file for a cause. */
static void append_unknown(tsr__buffer *out, const tsr_why_device *d) {
  if (d->is_flat)
    tsr__buffer_printf(out, "%s were in use, %s reserved; what the device had left is not known.",
                       SIZE(d->moment.totals.active_bytes), SIZE(d->moment.totals.reserved_bytes));
  else
    tsr__buffer_printf(
        out, "What was cached is not known: %s were in use, and the file has segments of %s.",
        SIZE(d->moment.totals.active_bytes), SIZE(d->moment.totals.reserved_bytes));
}

static void append_limit_cause(tsr__buffer *out, const tsr_why_device *d) {
  if (d->exceeded_reserve_bytes)
    tsr__buffer_printf(out,
                       "No expandable segment can exceed expandable_segments_reserve, %s; the "
                       "request does.",
                       SIZE(d->exceeded_reserve_bytes));
  else
    tsr__buffer_text(out, "The device had enough: a process limit, a private pool or another "
                          "process stood in the way.");
}

/* The reason, in a line of at most 100 columns. */
static void append_cause(tsr__buffer *out, const tsr_why_device *d) {
  const tsr_why_room *own = &d->free[TSR_WHY_CACHE_OWN];
  uint64_t there = tsr__sum_u64(d->moment.totals.reserved_bytes, d->device_free_bytes);
  tsr_why_reason reason = d->request_reason;
  if (d->reason == TSR_WHY_IN_USE && d->outlook.short_bytes) {
    append_need(out, d);
    return;
  }
  switch (reason) {
  case TSR_WHY_FRAGMENTED:
    if (!own->bytes) {
      tsr__buffer_text(out, "What was free is enough for the request, but not for a segment.");
      break;
    }
    if (own->largest_bytes >= d->request_bytes && !d->is_kept_whole) {
      tsr__buffer_printf(
          out, "A piece of %s was free for such requests; why it was not used is not recorded.",
          SIZE(own->largest_bytes));
      break;
    }
    tsr__buffer_printf(out, "Fragmentation: %s cached for such requests lay free",
                       SIZE(own->bytes));
    if (own->largest_bytes < d->request_bytes)
      tsr__buffer_printf(out, " in pieces of at most %s.", SIZE(own->largest_bytes));
    else
      tsr__buffer_text(out, ", kept whole by max_split_size_mb.");
    break;
  case TSR_WHY_CACHED_ELSEWHERE:
    tsr__buffer_printf(out, "%s lay free in PyTorch's cache, but most of it %s.",
                       SIZE(free_in_all(d)), elsewhere(d));
    break;
  case TSR_WHY_PENDING:
    tsr__buffer_printf(out, "%s that the program had freed still waited for another stream.",
                       SIZE(d->fragmentation.waiting_bytes));
    break;
  case TSR_WHY_ROUNDED:
    tsr__buffer_printf(out, "Rounding: blocks in use held %s more than was asked for.",
                       SIZE(d->lost_bytes));
    break;
  case TSR_WHY_OUTSIDE: append_held(out, d); break;
  case TSR_WHY_UNKNOWN: append_unknown(out, d); break;
  case TSR_WHY_LIMIT: append_limit_cause(out, d); break;
  default:
    if (d->request_bytes > there)
      tsr__buffer_printf(out, "This request alone is more than the %s there were.", SIZE(there));
    else
      tsr__buffer_printf(out, "What is in use fills the card: %s of %s.",
                         SIZE(d->moment.totals.allocated_bytes), SIZE(there));
  }
}

static void append_segment(tsr__buffer *out, const tsr_why_device *d) {
  tsr__buffer_printf(out, "It takes %s of %s from the driver: %s missing.",
                     d->is_expandable ? "pages" : "a segment", SIZE(d->needed_bytes),
                     SIZE(d->missing_bytes));
}

/* What happened, in a line of at most 100 columns. */
static void append_headline(tsr__buffer *out, const tsr_why_device *d) {
  tsr__buffer_text(out, "out of memory");
  append_where(out, &d->outlook);
  if (d->is_flat) {
    tsr__buffer_printf(out, ": %s asked for.", SIZE(d->request_bytes));
    return;
  }
  tsr__buffer_printf(out, ": %s asked for, ", SIZE(d->request_bytes));
  if (takes_more(d))
    tsr__buffer_printf(out, "with %s free on the device.", SIZE(d->device_free_bytes));
  else if (d->missing_bytes)
    tsr__buffer_printf(out, "%s missing.", SIZE(d->missing_bytes));
  else
    tsr__buffer_printf(out, "%s free on the device.", SIZE(d->device_free_bytes));
}

static void say_cause(tsr__emitter *emitter, const tsr_why_device *d) {
  bool is_recovered = d->ooms[d->chosen].is_recovered;
  if (is_recovered)
    tsr__emit_printf(emitter, TSR__VERDICT, "The program recovered from it and went on.");
  append_cause(&emitter->scratch, d);
  tsr__emit_line(emitter, is_recovered ? TSR__PLAIN : TSR__VERDICT, 0);
}

/* The same with all its figures. */
static void say_story(tsr__emitter *emitter, const tsr_why_device *d) {
  tsr__emit_space(emitter);
  append_story(&emitter->scratch, d);
  tsr__emit_paragraph(emitter, TSR__PLAIN, 0);
  if (d->ooms[d->chosen].is_recovered) return;
  append_outlook(&emitter->scratch, d);
  tsr__emit_paragraph(emitter, TSR__PLAIN, 0);
}

/* Less is reserved than in use where the file lacks segments: then shares of it mean nothing. */
static bool knows_reserved(const tsr_why_device *d) {
  return d->moment.totals.reserved_bytes >= d->moment.totals.active_bytes;
}

static void append_when(tsr__buffer *out, const tsr_why_device *d) {
  if (!d->event_count)
    tsr__buffer_text(out, "at the end");
  else if (d->moment.event >= 0)
    tsr__buffer_printf(out, "at event %s of %s", COUNT((uint64_t)d->moment.event),
                       COUNT(d->event_count));
  else
    tsr__buffer_text(out, "before the first event");
}

/* How close it came. */
static void append_no_oom(tsr__buffer *out, const tsr_why_device *d) {
  uint64_t peak = d->moment.totals.reserved_bytes;
  tsr__buffer_printf(out, "no out-of-memory was recorded%s",
                     d->has_history   ? ""
                     : d->event_count ? ", nor a history"
                                      : ", nor any other event");
  if (!knows_reserved(d)) {
    tsr__buffer_text(out, ". How much was reserved is not known: ");
    append_when(out, d);
    tsr__buffer_printf(out, " %s were in use", SIZE(d->moment.totals.active_bytes));
    if (d->is_flat)
      tsr__buffer_text(out, ", and the file has no segments.");
    else
      tsr__buffer_printf(out, ", and the file has segments of %s.", SIZE(peak));
    return;
  }
  tsr__buffer_printf(out,
                     d->has_history   ? ". At most %s were reserved, "
                     : d->event_count ? ". %s are reserved"
                                      : ". At the end %s are reserved",
                     SIZE(peak));
  if (d->has_history) append_when(out, d);
  if (d->capacity_bytes >= peak && d->capacity_bytes)
    tsr__buffer_printf(out, ", which leaves %s of %s",
                       SIZE(tsr__drop_u64(d->capacity_bytes - peak, d->outside_bytes)),
                       SIZE(d->capacity_bytes));
  else if (d->capacity_bytes)
    tsr__buffer_printf(out, ", more than %s", SIZE(d->capacity_bytes));
  tsr__buffer_printf(out, "; %s of them in use, %s cached and free.",
                     SIZE(d->moment.totals.active_bytes), SIZE(free_in_all(d)));
}

static void print_verdict(tsr__emitter *emitter, const tsr_why_device *d) {
  tsr__emit_space(emitter);
  if (!tsr__emitter_is_text(emitter)) return;
  char name[TSR__FORMAT_BYTES];
  tsr__buffer_printf(&emitter->scratch, "%s: ", tsr__device_title(d->device, name));
  if (d->oom_count)
    append_headline(&emitter->scratch, d);
  else
    append_no_oom(&emitter->scratch, d);
  tsr__emit_line(emitter, d->oom_count ? TSR__ALARM : TSR__VERDICT, 0);
  if (d->oom_count && takes_more(d)) {
    append_segment(&emitter->scratch, d);
    tsr__emit_line(emitter, TSR__VERDICT, 0);
  }
  if (d->oom_count) say_cause(emitter, d);
}

/* ---- The failure ---- */

static void emit_ooms(tsr__emitter *emitter, const tsr_why_device *d) {
  static const tsr__column columns[] = {{"event", NULL, TSR__RIGHT},
                                        {"time_us", NULL, TSR__LEFT},
                                        {"request_bytes", NULL, TSR__RIGHT},
                                        {"device_free_bytes", NULL, TSR__RIGHT},
                                        {"recovered", NULL, TSR__LEFT}};
  if (tsr__emitter_is_text(emitter)) return;
  tsr__emit_table(emitter, "ooms", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < d->oom_count; i++) {
    const tsr_why_oom *oom = &d->ooms[i];
    tsr__cell cells[] = {tsr__index(oom->event), tsr__time(oom->time_us),
                         tsr__bytes(oom->request_bytes), tsr__bytes(oom->device_free_bytes),
                         tsr__bool(oom->is_recovered)};
    tsr__emit_row(emitter, cells);
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
}

static void say_which(tsr__emitter *emitter, const tsr_why_device *d) {
  size_t recovered = 0, shown = d->oom_count < 8 ? d->oom_count : 8;
  for (size_t i = 0; i < d->oom_count; i++) recovered += d->ooms[i].is_recovered;
  if (d->oom_count < 2 || !tsr__emitter_is_text(emitter)) return;
  tsr__buffer *out = &emitter->scratch;
  tsr__buffer_printf(out, "It ran out of memory %s times and got over it %s time%s: at events",
                     COUNT(d->oom_count), COUNT(recovered), tsr__plural(recovered));
  for (size_t i = 0; i < shown; i++)
    tsr__buffer_printf(out, "%s %s", i ? "," : "", COUNT((uint64_t)d->ooms[i].event));
  tsr__buffer_printf(out, "%s. --event N explains another.", d->oom_count > shown ? ", ..." : "");
  tsr__emit_line(emitter, TSR__PLAIN, 2);
}

static void emit_asker(tsr__stack_printer *printer, const tsr_why_device *d) {
  tsr__buffer *name = &printer->emitter->scratch;
  if (!tsr__emitter_is_text(printer->emitter)) return;
  tsr__stack_append_name(printer, TSR__LABEL_STACK, d->stack);
  tsr__emit_field(printer->emitter, NULL, "asked for by",
                  tsr__text((tsr_text){name->data, name->size}));
  name->size = 0;
}

static void emit_request(tsr__stack_printer *printer, const tsr_why_device *d) {
  tsr__emitter *emitter = printer->emitter;
  emit_ooms(emitter, d);
  if (!d->oom_count) {
    tsr__emit_field(emitter, "request", NULL, tsr__nothing());
    return;
  }
  tsr__emit_object(emitter, "request");
  emit_asker(printer, d);
  tsr__emit_field(emitter, "request_bytes", "asked for, rounded up", tsr__bytes(d->request_bytes));
  tsr__emit_field(emitter, "needed_bytes",
                  d->is_expandable ? "pages needed for it, at most" : "segment needed for it",
                  tsr__bytes(d->needed_bytes));
  tsr__emit_field(emitter, "device_free_bytes", "free on the device",
                  tsr__bytes(d->device_free_bytes));
  tsr__emit_field(emitter, "missing_bytes", d->missing_bytes ? "missing" : NULL,
                  tsr__bytes(d->missing_bytes));
  tsr__emit_field(emitter, "reason", NULL, tsr__string(tsr_why_reason_name(d->request_reason)));
  tsr__emit_field(emitter, "stream", NULL, tsr__count(d->stream));
  tsr__emit_inline_array(emitter, "pool");
  tsr__emit_item(emitter, tsr__count(d->pool.first));
  tsr__emit_item(emitter, tsr__count(d->pool.second));
  tsr__emit_end(emitter);
  tsr__frame_emit(printer, "frame", d->frame);
  tsr__frame_emit(printer, "layer", d->layer);
  tsr__stack_emit(printer, d->stack);
  tsr__emit_end(emitter);
}

/* ---- Where the memory was ---- */

/* One row; 0 blocks print no number. Rows of 0 bytes are omitted. */
static void memory_row(tsr__emitter *emitter, uint64_t bytes, uint64_t whole,
                       const tsr_why_room *room, const char *what) {
  if (!bytes) return;
  tsr__cell cells[] = {tsr__bytes(bytes), tsr__percent(bytes, whole),
                       room ? tsr__count(room->blocks) : tsr__string(""),
                       room ? tsr__bytes(room->largest_bytes) : tsr__string(""), tsr__string(what)};
  tsr__emit_row(emitter, cells);
  tsr__emit_row_end(emitter);
}

static const char *cache_text(const tsr_why_device *d, int cache) {
  static const char *const oom[TSR_WHY_CACHE_COUNT] = {
      "cached and free for such requests", "cached and free, for requests of another size",
      "cached and free, for other streams", "cached and free, in other pools"};
  static const char *const none[TSR_WHY_CACHE_COUNT] = {
      "cached and free, large pool", "cached and free, small pool",
      "cached and free, for other streams", "cached and free, in private pools"};
  bool has_one = d->device >= TSR_DEVICE_CPU || d->is_flat;
  if (has_one && cache == TSR_WHY_CACHE_OWN) return "cached and free";
  return d->oom_count ? oom[cache] : none[cache];
}

/* The parts are those of `peak`: what was requested, and what blocks take beyond it. */
static void print_in_use(tsr__emitter *emitter, const tsr_why_device *d, uint64_t whole) {
  char requested[2 * TSR__FORMAT_BYTES + 64];
  uint64_t waiting = d->fragmentation.waiting_bytes;
  (void)snprintf(requested, sizeof requested,
                 waiting ? "requested; %s wait for a stream" : "requested by the program",
                 SIZE(waiting));
  memory_row(emitter, d->moment.totals.requested_bytes, whole, NULL, requested);
  memory_row(emitter, d->fragmentation.rounding_bytes, whole, NULL, "lost to rounding");
  memory_row(emitter, d->fragmentation.unsplit_bytes, whole, NULL, "lost to unsplit tails");
}

/* What is not PyTorch's: its parts, if the ledger names them and they are no more than there was. */
static void print_not_ours(tsr__emitter *emitter, const tsr_why_device *d, uint64_t whole) {
  enum { SHOWN = 6 };
  uint64_t named = 0, rest = d->outside_bytes;
  size_t shown = 0;
  for (size_t i = 0; i < d->outside_count; i++)
    if (d->outside[i].kind < TSR_CARD_HERE) named = tsr__sum_u64(named, d->outside[i].bytes);
  bool has_parts = named && named <= d->outside_bytes;
  for (size_t i = 0; has_parts && i < d->outside_count && shown < SHOWN; i++) {
    tsr__buffer name = {0};
    if (d->outside[i].kind >= TSR_CARD_HERE) continue;
    tsr__buffer_text(&name, "not PyTorch's: ");
    append_outside(&name, &d->outside[i]);
    tsr__buffer_append(&name, "", 1);
    if (name.failed) emitter->scratch.failed = true;
    if (!name.failed) memory_row(emitter, d->outside[i].bytes, whole, NULL, name.data);
    tsr__buffer_release(&name);
    rest -= d->outside[i].bytes;
    shown++;
  }
  memory_row(emitter, rest, whole, NULL,
             has_parts ? "not PyTorch's: the rest"
                       : "not PyTorch's: driver, CUDA context, libraries, other processes");
}

static void print_memory(tsr__emitter *emitter, const tsr_why_device *d) {
  const tsr__column columns[] = {{NULL, "bytes", TSR__RIGHT},
                                 {NULL, knows_reserved(d) ? "share" : NULL, TSR__RIGHT},
                                 {NULL, "blocks", TSR__RIGHT},
                                 {NULL, "largest", TSR__SPARE},
                                 {NULL, "what", TSR__LEFT}};
  uint64_t reserved = d->moment.totals.reserved_bytes;
  uint64_t whole = tsr__sum_u64(reserved, tsr__sum_u64(d->device_free_bytes, d->outside_bytes));
  uint64_t others = tsr__sum_u64(reserved, d->outside_bytes);
  uint64_t unused = !d->oom_count ? tsr__drop_u64(d->capacity_bytes, others) : 0;
  if (!tsr__emitter_is_text(emitter)) return;
  if (unused) whole = d->capacity_bytes;
  tsr__emit_space(emitter);
  tsr__emit_printf(emitter, TSR__BOLD,
                   !knows_reserved(d) ? "Where the memory was, as far as it is known:"
                   : d->oom_count     ? "Where the memory was:"
                   : !d->has_history  ? "Where the memory is:"
                                      : "Where the memory was when most was reserved:");
  tsr__emit_table(emitter, NULL, columns, sizeof columns / sizeof *columns);
  print_in_use(emitter, d, whole);
  for (int i = 0; i < TSR_WHY_CACHE_COUNT; i++)
    memory_row(emitter, d->free[i].bytes, whole, d->is_flat ? NULL : &d->free[i], cache_text(d, i));
  memory_row(emitter, d->device_free_bytes, whole, NULL, "free on the device");
  print_not_ours(emitter, d, whole);
  memory_row(emitter, unused, whole, NULL, "never reserved");
  tsr__emit_table_end(emitter);
  if (d->asleep_bytes)
    tsr__emit_printf(emitter, TSR__DIM,
                     "  Of PyTorch's memory, %s were in sleeping pools, and not on the card.",
                     SIZE(d->asleep_bytes));
  if (d->oom_count && !d->capacity_bytes && !d->is_flat)
    tsr__emit_printf(
        emitter, TSR__DIM,
        "  What others held of the card is not in a snapshot: say --capacity SIZE, the "
        "card's memory.");
  if (d->private_pool_count) {
    tsr__emit_space(emitter);
    tsr__emit_private_pools(emitter, d->private_pools, d->private_pool_count);
  }
}

static void emit_memory(tsr__emitter *emitter, const tsr_why_device *d) {
  static const tsr__column columns[] = {{"cache", NULL, TSR__LEFT},
                                        {"bytes", NULL, TSR__RIGHT},
                                        {"blocks", NULL, TSR__RIGHT},
                                        {"largest_bytes", NULL, TSR__RIGHT},
                                        {"segment_bytes", NULL, TSR__RIGHT}};
  if (tsr__emitter_is_text(emitter)) return;
  tsr__emit_field(emitter, "capacity_bytes", NULL,
                  d->capacity_bytes ? tsr__bytes(d->capacity_bytes) : tsr__nothing());
  bool is_told = d->capacity_bytes && (d->oom_count || d->outside_bytes);
  tsr__emit_field(emitter, "capacity_from", NULL,
                  d->capacity_bytes
                      ? tsr__string(d->is_capacity_from_sidecar ? "sidecar" : "option")
                      : tsr__nothing());
  tsr__emit_field(emitter, "outside_bytes", NULL,
                  is_told ? tsr__bytes(d->outside_bytes) : tsr__nothing());
  emit_outside(emitter, d);
  tsr__emit_field(emitter, "lost_bytes", NULL, tsr__bytes(d->lost_bytes));
  tsr__emit_table(emitter, "free", columns, sizeof columns / sizeof *columns);
  for (int i = 0; i < TSR_WHY_CACHE_COUNT; i++) {
    const tsr_why_room *room = &d->free[i];
    tsr__cell cells[] = {tsr__string(tsr_why_cache_name((tsr_why_cache)i)), tsr__bytes(room->bytes),
                         tsr__count(room->blocks), tsr__bytes(room->largest_bytes),
                         tsr__bytes(room->segment_bytes)};
    tsr__emit_row(emitter, cells);
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
  tsr__emit_fragmentation(emitter, &d->fragmentation);
  tsr__emit_private_pools(emitter, d->private_pools, d->private_pool_count);
}

/* ---- What held it ---- */

static void emit_kinds(tsr__emitter *emitter, const tsr_why_device *d) {
  static const tsr__column columns[] = {{NULL, "of allocated", TSR__RIGHT},
                                        {"bytes", "bytes", TSR__RIGHT},
                                        {"block_bytes", NULL, TSR__RIGHT},
                                        {"allocations", "allocations", TSR__RIGHT},
                                        {"category", "requested, by category", TSR__CATEGORY}};
  tsr__emit_space(emitter);
  tsr__emit_table(emitter, "categories", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < d->category_count; i++) {
    const tsr_category_share *share = &d->categories[i];
    tsr__cell cells[] = {tsr__percent(share->bytes, tsr__whole_of(&d->moment.totals)),
                         tsr__bytes(share->bytes), tsr__bytes(share->block_bytes),
                         tsr__count(share->allocations),
                         tsr__string(tsr_category_name(share->category))};
    tsr__emit_row(emitter, cells);
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
}

static bool is_enough(const tsr_why_device *d, uint64_t bytes) {
  return d->missing_bytes && bytes >= d->missing_bytes;
}

static void emit_cause(tsr__stack_printer *printer, const tsr_why_device *d, size_t i) {
  tsr__emitter *emitter = printer->emitter;
  const tsr_cause *cause = &d->causes[i];
  tsr__buffer *name = &emitter->scratch;
  if (tsr__emitter_is_text(emitter) && cause->is_older)
    tsr__buffer_text(name, TSR__LABEL_BEFORE);
  else if (tsr__emitter_is_text(emitter))
    tsr__stack_append_name(printer, TSR__LABEL_LINE, cause->stack);
  tsr__append_names(emitter, d->names, &cause->names);
  tsr__cell cells[] = {tsr__count(i + 1),
                       tsr__percent(cause->bytes, tsr__whole_of(&d->moment.totals)),
                       tsr__bytes(cause->bytes),
                       tsr__bytes(cause->block_bytes),
                       tsr__count(cause->allocations),
                       tsr__bool(is_enough(d, cause->bytes)),
                       tsr__string(tsr_category_name(cause->category)),
                       tsr__text((tsr_text){name->data, name->size})};
  tsr__emit_row(emitter, cells);
  name->size = 0;
  tsr__frame_emit(printer, "frame", cause->frame);
  tsr__frame_emit(printer, "layer", cause->layer);
  tsr__emit_names(emitter, d->names, &cause->names);
  if (cause->stack == TSR_NONE && !tsr__emitter_is_text(emitter))
    tsr__emit_field(emitter, "before_recording", NULL, tsr__bool(cause->is_older));
  tsr__stack_emit(printer, cause->stack);
  tsr__emit_row_end(emitter);
}

static void emit_causes(tsr__stack_printer *printer, const tsr_why_device *d) {
  tsr__emitter *emitter = printer->emitter;
  const tsr__column columns[] = {{NULL, "#", TSR__RIGHT},
                                 {NULL, "of allocated", TSR__RIGHT},
                                 {"bytes", "bytes", TSR__RIGHT},
                                 {"block_bytes", NULL, TSR__RIGHT},
                                 {"allocations", "allocations", TSR__RIGHT},
                                 {"covers_missing", NULL, TSR__LEFT},
                                 {"category", "category", TSR__CATEGORY},
                                 {NULL, "requested, by line", TSR__ELASTIC}};
  tsr__emit_space(emitter);
  tsr__emit_table(emitter, "causes", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < d->cause_count; i++) emit_cause(printer, d, i);
  tsr__emit_table_end(emitter);
  tsr__emit_field(emitter, "omitted_causes", NULL, tsr__count(d->omitted_causes));
  tsr__emit_field(emitter, "omitted_bytes", NULL, tsr__bytes(d->omitted_bytes));
  tsr__emit_field(emitter, "omitted_block_bytes", NULL, tsr__bytes(d->omitted_block_bytes));
  if (d->omitted_causes)
    tsr__emit_printf(emitter, TSR__DIM, "  ... and %s more line%s, %s (--top 0 shows all)",
                     COUNT(d->omitted_causes), tsr__plural(d->omitted_causes),
                     SIZE(d->omitted_bytes));
}

/* ---- What would have avoided it ---- */

/* Largest first: those that suffice are the first ones. */
static void append_causes_that_suffice(tsr__buffer *out, const tsr_why_device *d) {
  size_t enough = 0;
  while (enough < d->cause_count && is_enough(d, d->causes[enough].bytes)) enough++;
  if (!enough)
    tsr__buffer_text(out, "No single line above holds as much.");
  else if (enough == 1)
    tsr__buffer_printf(out, "%s above holds as much.",
                       d->cause_count > 1 || !d->omitted_causes ? "Only #1" : "#1");
  else
    tsr__buffer_printf(out, "Each of the first %s lines above holds as much.", COUNT(enough));
}

static void say_saving(tsr__emitter *emitter, const tsr_why_device *d) {
  if (!d->missing_bytes || !knows_reserved(d) || !tsr__emitter_is_text(emitter)) return;
  tsr__buffer_printf(&emitter->scratch,
                     "%s less in use, freed in whole segments, would have been enough for this "
                     "request. ",
                     SIZE(d->missing_bytes));
  append_causes_that_suffice(&emitter->scratch, d);
  tsr__emit_space(emitter);
  tsr__emit_line(emitter, TSR__PLAIN, 0);
}

static const char *fits_text(const tsr_why_device *d, const tsr_why_trial *trial,
                             char text[2 * TSR__FORMAT_BYTES]) {
  if (trial->is_given_up) return "given up";
  if (trial->fits) return "yes";
  if (trial->failed_event < 0) return "no, from the start";
  if (trial->failed_event != d->moment.event)
    (void)snprintf(text, 2 * TSR__FORMAT_BYTES, "no, fails at event %s already",
                   COUNT((uint64_t)trial->failed_event));
  else
    (void)snprintf(text, 2 * TSR__FORMAT_BYTES, "no, %s missing", SIZE(trial->missing_bytes));
  return text;
}

/* Whether what would have come next is served too. */
static const char *rest_text(const tsr_why_trial *trial, char text[2 * TSR__FORMAT_BYTES]) {
  if (!trial->is_rest_known) return "";
  if (trial->is_rest_served) return "yes";
  (void)snprintf(text, 2 * TSR__FORMAT_BYTES, "no, at least %s missing",
                 SIZE(trial->rest_missing_bytes));
  return text;
}

static void emit_trial(tsr__emitter *emitter, const tsr_why_device *d, const tsr_why_trial *trial) {
  char name[TSR_ALLOCATOR_SETTINGS_TEXT_BYTES], fits[2 * TSR__FORMAT_BYTES],
      rest[2 * TSR__FORMAT_BYTES];
  (void)tsr_allocator_settings_text(&trial->settings, name);
  tsr__cell cells[] = {
      tsr__string(name[0] ? name : "defaults"), tsr__string(trial->is_recorded ? "recorded" : ""),
      tsr__bytes(trial->reserved_peak_bytes),   tsr__bytes(trial->reserved_bytes),
      tsr__string(fits_text(d, trial, fits)),   tsr__string(rest_text(trial, rest))};
  tsr__emit_row(emitter, cells);
  tsr__emit_field(emitter, "recorded", NULL, tsr__bool(trial->is_recorded));
  tsr__emit_field(emitter, "fits", NULL, tsr__bool(trial->fits));
  tsr__emit_field(emitter, "failed_event", NULL,
                  trial->fits ? tsr__nothing() : tsr__index(trial->failed_event));
  tsr__emit_field(emitter, "missing_bytes", NULL, tsr__bytes(trial->missing_bytes));
  tsr__emit_field(emitter, "given_up", NULL, tsr__bool(trial->is_given_up));
  tsr__emit_field(emitter, "rest_fits", NULL,
                  trial->is_rest_known ? tsr__bool(trial->is_rest_served) : tsr__nothing());
  tsr__emit_field(emitter, "rest_missing_bytes", NULL, tsr__bytes(trial->rest_missing_bytes));
  tsr__emit_row_end(emitter);
}

/* The trial of the recorded settings; NULL if nothing was tried. */
static const tsr_why_trial *recorded_trial(const tsr_why_device *d) {
  for (size_t i = 0; i < d->trial_count; i++)
    if (d->trials[i].is_recorded) return &d->trials[i];
  return NULL;
}

/* The rows in text: all that fit, the recorded settings, and the best if none fits; -v shows all. */
static bool is_shown(const tsr__emitter *emitter, const tsr_why_device *d, size_t i) {
  const tsr_why_trial *trial = &d->trials[i];
  return !tsr__emitter_is_text(emitter) || emitter->options.verbose || trial->fits ||
         trial->is_recorded || i == 0;
}

static void say_hidden(tsr__emitter *emitter, const tsr_why_device *d) {
  size_t hidden = 0, fitting = 0;
  for (size_t i = 0; i < d->trial_count; i++) {
    hidden += !is_shown(emitter, d, i);
    fitting += d->trials[i].fits;
  }
  if (hidden)
    tsr__emit_printf(emitter, TSR__DIM, "  ... and %s more setting%s that would %s (-v shows all)",
                     COUNT(hidden), tsr__plural(hidden),
                     fitting ? "not have served it" : "have done no better");
}

/* "In the 6.00 GiB there were, other settings would ..." */
static const char *trials_text(const tsr_why_device *d) {
  const tsr_why_trial *best = d->trials;
  bool is_step = d->outlook.basis >= TSR_WHY_BASIS_STEP;
  bool is_iteration = d->outlook.unit == TSR_STEPS_UNIT_ITERATION;
  if (!best->fits) return "no setting tried would have served this request";
  if (d->ooms[d->chosen].is_recovered) return "other settings would have served this request";
  if (!best->is_rest_known)
    return "other settings would have served this request; whether they would have served the "
           "rest of the run is not known";
  if (!best->is_rest_served)
    return is_step
               ? is_iteration
                     ? "other settings would have served this request, but not the rest of the "
                       "iteration"
                     : "other settings would have served this request, but not the rest of the step"
               : "other settings would have served this request, but not the rest of the forward "
                 "pass";
  return is_step
             ? is_iteration
                   ? "other settings would have served this request and iterations like the one "
                     "before"
                   : "other settings would have served this request and steps like the one before"
             : "other settings would have served this request and the rest of the forward pass";
}

/* The table's conclusion; or a note that the model does not fail as the program did. */
static void say_trials(tsr__emitter *emitter, const tsr_why_device *d, bool agrees) {
  const tsr_why_trial *recorded = recorded_trial(d);
  if (!tsr__emitter_is_text(emitter)) return;
  tsr__emit_space(emitter);
  if (agrees)
    tsr__buffer_printf(&emitter->scratch,
                       "In the %s there were, %s:", SIZE(d->trial_capacity_bytes), trials_text(d));
  else
    tsr__buffer_printf(
        &emitter->scratch,
        "What other settings would have done is unknown: under the recorded ones the model of "
        "the allocator %s%s",
        recorded && recorded->fits ? "serves this request too" : "fails earlier already",
        emitter->options.verbose ? ":" : " (-v shows what it says).");
  tsr__emit_line(emitter, TSR__BOLD, 0);
}

/* If nothing can help, a sentence replaces the table. */
static void say_beyond(tsr__emitter *emitter, const tsr_why_device *d) {
  if (!tsr__emitter_is_text(emitter)) return;
  tsr__buffer_printf(&emitter->scratch,
                     "No allocator setting could have served this request: with it %s are "
                     "asked for, rounding aside, and there were %s.",
                     SIZE(tsr__sum_u64(d->asked_bytes, d->request_bytes)),
                     SIZE(d->trial_capacity_bytes));
  tsr__emit_space(emitter);
  tsr__emit_line(emitter, TSR__PLAIN, 0);
}

static void emit_trials(tsr__emitter *emitter, const tsr_why_device *d) {
  const char *rest = d->outlook.basis < TSR_WHY_BASIS_STEP         ? "rest of the forward pass"
                     : d->outlook.unit == TSR_STEPS_UNIT_ITERATION ? "rest of the iteration"
                                                                   : "rest of the step";
  const tsr__column columns[] = {{"settings", "settings", TSR__LEFT},
                                 {NULL, "", TSR__LEFT},
                                 {"reserved_peak_bytes", "peak reserved", TSR__RIGHT},
                                 {"reserved_bytes", "in the end", TSR__RIGHT},
                                 {NULL, "this request", TSR__LEFT},
                                 {NULL, d->outlook.basis ? rest : NULL, TSR__LEFT}};
  const tsr_why_trial *recorded = recorded_trial(d);
  bool agrees = recorded && recorded->failed_event == d->moment.event;
  if (!d->oom_count) return;
  tsr__emit_field(emitter, "trial_capacity_bytes", NULL, tsr__bytes(d->trial_capacity_bytes));
  tsr__emit_field(emitter, "asked_bytes", NULL, tsr__bytes(d->asked_bytes));
  tsr__emit_field(emitter, "beyond_settings", NULL, tsr__bool(d->is_beyond_settings));
  tsr__emit_field(emitter, "model_agrees", NULL, recorded ? tsr__bool(agrees) : tsr__nothing());
  if (d->is_beyond_settings) say_beyond(emitter, d);
  if (recorded) say_trials(emitter, d, agrees);
  if (!agrees && tsr__emitter_is_text(emitter) && !emitter->options.verbose) return;
  tsr__emit_table(emitter, "trials", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < d->trial_count; i++)
    if (is_shown(emitter, d, i)) emit_trial(emitter, d, &d->trials[i]);
  tsr__emit_table_end(emitter);
  if (tsr__emitter_is_text(emitter)) say_hidden(emitter, d);
}

/* ---- What would come next, and what would help ---- */

static tsr__cell known_bytes(uint64_t bytes, bool is_known) {
  return is_known ? tsr__bytes(bytes) : tsr__nothing();
}

static void emit_outlook(tsr__emitter *emitter, const tsr_why_device *d) {
  const tsr_why_outlook *outlook = &d->outlook;
  bool is_known = outlook->basis != TSR_WHY_BASIS_NONE;
  if (tsr__emitter_is_text(emitter)) return;
  tsr__emit_object(emitter, "outlook");
  tsr__emit_field(emitter, "basis", NULL, tsr__string(tsr_why_basis_name(outlook->basis)));
  tsr__emit_field(emitter, "phase", NULL, tsr__string(tsr_phase_name(outlook->phase)));
  tsr__emit_field(emitter, "step", NULL,
                  outlook->step ? tsr__count(outlook->step) : tsr__nothing());
  tsr__emit_field(emitter, "unit", NULL, tsr__string(tsr_steps_unit_name(outlook->unit)));
  tsr__emit_field(emitter, "like_event", NULL,
                  outlook->like_event < 0 ? tsr__nothing() : tsr__index(outlook->like_event));
  tsr__emit_field(emitter, "blocks_begun", NULL,
                  outlook->blocks_begun ? tsr__count(outlook->blocks_begun) : tsr__nothing());
  tsr__emit_field(emitter, "block_count", NULL,
                  outlook->block_count ? tsr__count(outlook->block_count) : tsr__nothing());
  tsr__emit_field(emitter, "block_bytes", NULL,
                  known_bytes(outlook->block_bytes, outlook->blocks_begun != 0));
  tsr__emit_field(emitter, "step_growth_bytes", NULL, tsr__bytes(outlook->step_growth_bytes));
  tsr__emit_field(emitter, "peak_bytes", NULL, known_bytes(outlook->peak_bytes, is_known));
  tsr__emit_field(emitter, "asked_bytes", NULL, known_bytes(outlook->asked_bytes, is_known));
  tsr__emit_field(emitter, "short_bytes", NULL, known_bytes(outlook->short_bytes, is_known));
  tsr__emit_end(emitter);
}

/* `saved_bytes` is 0 if no finding says how much. */
static void append_checkpoint_peak(tsr__buffer *out, const tsr_why_device *d,
                                   const tsr_why_advice *advice, uint64_t saved_bytes) {
  bool is_too_much = advice->peak_bytes > d->trial_capacity_bytes;
  if (advice->is_enough || is_too_much)
    tsr__buffer_printf(out, ": a peak of about %s%s.", SIZE(advice->peak_bytes),
                       is_too_much ? ", which alone is still too much" : "");
  else if (saved_bytes)
    tsr__buffer_printf(out, ": saves about %s; whether that is enough is not known.",
                       SIZE(saved_bytes));
  else
    tsr__buffer_text(out, "; whether that is enough is not known.");
}

/* What takes too much whatever the batch. */
static void append_model(tsr__buffer *out, const tsr_why_device *d, const tsr_why_advice *advice) {
  bool may_fit = advice->peak_bytes <= d->trial_capacity_bytes; /* but for the optimizer's step */
  tsr__buffer_text(out, may_fit ? "An optimizer with fused=True, a smaller model or sharding"
                                : "A smaller model, a smaller optimizer state or sharding");
  tsr__buffer_printf(out,
                     ": whatever the batch, %sparameters, gradients and %s state take about %s",
                     advice->is_adam_assumed ? "with Adam " : "",
                     advice->is_adam_assumed ? "its" : "the optimizer's", SIZE(advice->peak_bytes));
  if (may_fit)
    tsr__buffer_printf(out, ", and PyTorch's default step up to %s more",
                       SIZE(advice->update_bytes));
  tsr__buffer_text(out, ".");
}

static void append_advice(tsr__buffer *out, const tsr_why_device *d, const tsr_why_advice *advice) {
  char name[TSR_ALLOCATOR_SETTINGS_TEXT_BYTES];
  switch (advice->change) {
  case TSR_WHY_CHANGE_SETTINGS:
    (void)tsr_allocator_settings_text(&advice->settings, name);
    tsr__buffer_printf(out, "%s%s ", name[0] ? "PYTORCH_CUDA_ALLOC_CONF=" : "",
                       name[0] ? name : "PyTorch's default settings");
    if (advice->is_enough)
      tsr__buffer_text(out, "should let the run finish, if its steps are alike.");
    else
      tsr__buffer_text(out, "would have served this request; the run may fail later.");
    break;
  case TSR_WHY_CHANGE_BATCH:
    if (!advice->batch_percent)
      tsr__buffer_text(out, "A smaller batch; how much smaller is not known.");
    else
      tsr__buffer_printf(out, "A batch of %s %% of this one would fit: a peak of about %s%s.",
                         COUNT(advice->batch_percent), SIZE(advice->peak_bytes),
                         advice->is_adam_assumed ? ", with the gradients and Adam's state" : "");
    break;
  case TSR_WHY_CHANGE_CHECKPOINT:
    tsr__buffer_text(out, "Recomputing each block in backward (activation checkpointing)");
    append_checkpoint_peak(out, d, advice, 0);
    break;
  case TSR_WHY_CHANGE_MODEL: append_model(out, d, advice); break;
  case TSR_WHY_CHANGE_OUTSIDE: append_remedy(out, d, &d->outside_causes[0]); break;
  default:
    tsr__buffer_printf(out, "Freeing what grows by %s in each %s.",
                       SIZE(d->outlook.step_growth_bytes), tsr_steps_unit_name(d->outlook.unit));
  }
}

static bool is_setting(const tsr_why_advice *advice) {
  return advice->change == TSR_WHY_CHANGE_SETTINGS;
}

/* The finding that says the same as an advice, with a line and evidence: of the blocks to checkpoint, or of what
 * grows. NULL if none does. */
static const tsr_finding *found_of(const tsr_why_device *d, const tsr_why_advice *advice) {
  tsr_finding_rule rule = TSR_FINDING_RULE_COUNT;
  if (advice->change == TSR_WHY_CHANGE_CHECKPOINT) rule = TSR_FINDING_CHECKPOINT;
  if (advice->change == TSR_WHY_CHANGE_GROWTH) rule = TSR_FINDING_LEAK;
  for (size_t i = 0; i < d->finding_count; i++)
    if (d->findings[i].rule == rule) return &d->findings[i];
  return NULL;
}

/* Whether an advice is about the same as a finding. */
static bool is_advised(const tsr_why_device *d, const tsr_finding *finding) {
  for (size_t i = 0; i < d->advice_count; i++)
    if (found_of(d, &d->advice[i]) == finding) return true;
  return false;
}

static void print_settings(tsr__emitter *emitter, const tsr_why_device *d) {
  bool has_heading = false;
  for (size_t i = 0; i < d->advice_count; i++) {
    if (!is_setting(&d->advice[i])) continue;
    if (!has_heading) {
      tsr__emit_space(emitter);
      tsr__emit_printf(emitter, TSR__BOLD, "What would help, as a setting (estimates):");
    }
    has_heading = true;
    append_advice(&emitter->scratch, d, &d->advice[i]);
    tsr__emit_line(emitter, TSR__PLAIN, 2);
  }
}

/* One advice, with the line and the evidence of a finding that says the same. */
static void print_change(tsr__stack_printer *printer, const tsr_why_device *d,
                         const tsr_why_advice *advice) {
  tsr__emitter *emitter = printer->emitter;
  const tsr_finding *found = found_of(d, advice);
  tsr__namer *namer = found ? tsr__stack_namer(printer) : NULL;
  append_advice(&emitter->scratch, d, advice);
  if (namer && found->rule == TSR_FINDING_CHECKPOINT) {
    emitter->scratch.size = 0;
    tsr__finding_append_block(namer, found, &emitter->scratch);
    append_checkpoint_peak(&emitter->scratch, d, advice, found->saved_bytes);
  }
  tsr__emit_line(emitter, TSR__PLAIN, 2);
  if (namer) tsr__finding_print_evidence(printer, found);
}

static void print_program_heading(tsr__emitter *emitter, bool *is_printed) {
  if (!*is_printed) {
    tsr__emit_space(emitter);
    tsr__emit_printf(emitter, TSR__BOLD,
                     "What would help, in the program (estimates, each by itself):");
  }
  *is_printed = true;
}

static bool is_vague(const tsr_why_advice *advice) {
  return advice->change == TSR_WHY_CHANGE_BATCH && !advice->batch_percent;
}

/* What the program can change: the estimates of what is left to do, then the habits that were found, each
 * once, and last what has no figure. */
static void print_changes(tsr__stack_printer *printer, const tsr_why_device *d) {
  tsr__emitter *emitter = printer->emitter;
  bool has_heading = false;
  const tsr_why_advice *vague = NULL;
  for (size_t i = 0; i < d->advice_count; i++) {
    const tsr_why_advice *advice = &d->advice[i];
    if (is_vague(advice)) vague = advice;
    if (is_setting(advice) || is_vague(advice) || advice->change == TSR_WHY_CHANGE_OUTSIDE)
      continue;
    print_program_heading(emitter, &has_heading);
    print_change(printer, d, advice);
  }
  for (size_t i = 0; i < d->finding_count; i++) {
    if (is_advised(d, &d->findings[i])) continue;
    print_program_heading(emitter, &has_heading);
    tsr__findings_print(printer, NULL, &d->findings[i], 1);
  }
  if (!vague) return;
  print_program_heading(emitter, &has_heading);
  print_change(printer, d, vague);
}

static void emit_advice(tsr__emitter *emitter, const tsr_why_device *d) {
  static const tsr__column columns[] = {
      {"change", NULL, TSR__LEFT},      {"enough", NULL, TSR__LEFT},
      {"settings", NULL, TSR__LEFT},    {"batch_percent", NULL, TSR__RIGHT},
      {"peak_bytes", NULL, TSR__RIGHT}, {"update_bytes", NULL, TSR__RIGHT},
      {"assumes", NULL, TSR__LEFT}};
  if (tsr__emitter_is_text(emitter)) return;
  tsr__emit_table(emitter, "advice", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < d->advice_count; i++) {
    const tsr_why_advice *advice = &d->advice[i];
    char name[TSR_ALLOCATOR_SETTINGS_TEXT_BYTES];
    (void)tsr_allocator_settings_text(&advice->settings, name);
    tsr__cell cells[] = {tsr__string(tsr_why_change_name(advice->change)),
                         advice->is_enough ? tsr__bool(true) : tsr__nothing(),
                         is_setting(advice) ? tsr__string(name[0] ? name : "defaults")
                                            : tsr__nothing(),
                         advice->batch_percent ? tsr__count(advice->batch_percent) : tsr__nothing(),
                         known_bytes(advice->peak_bytes, advice->peak_bytes != 0),
                         known_bytes(advice->update_bytes, advice->change == TSR_WHY_CHANGE_MODEL),
                         advice->is_adam_assumed ? tsr__string("adam") : tsr__nothing()};
    tsr__emit_row(emitter, cells);
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
}

/* ---- The whole ---- */

static void print_stacks(tsr__stack_printer *printer, const tsr_why_device *d) {
  tsr__emitter *emitter = printer->emitter;
  if (!tsr__emitter_is_text(emitter) || !emitter->options.verbose) return;
  for (size_t i = 0; i < d->cause_count; i++) {
    const tsr_cause *cause = &d->causes[i];
    if (cause->stack == TSR_NONE) continue;
    tsr__emit_space(emitter);
    tsr__emit_printf(emitter, TSR__BOLD, "#%s  %s in %s allocation%s, %s", COUNT(i + 1),
                     SIZE(cause->bytes), COUNT(cause->allocations), tsr__plural(cause->allocations),
                     tsr_category_name(cause->category));
    tsr__stack_print(printer, cause->stack);
  }
}

/* Where the request was made: `app/model.py:31 forward`, a line for each frame of the program. */
static void print_frame(tsr__emitter *emitter, const tsr_snapshot *snapshot, uint32_t id,
                        size_t indent) {
  tsr_frame frame = tsr_snapshot_frame(snapshot, id);
  tsr_text file = tsr_snapshot_string(snapshot, frame.file);
  tsr_text name = tsr_snapshot_string(snapshot, frame.name);
  size_t from = file.size_bytes, slashes = 0;
  while (from) {
    slashes += file.data[from - 1] == '/' || file.data[from - 1] == '\\';
    if (slashes == 2) break;
    from--;
  }
  tsr__buffer_append(&emitter->scratch, file.data + from, file.size_bytes - from);
  if (frame.line && frame.line != TSR_LINE_UNKNOWN)
    tsr__buffer_printf(&emitter->scratch, ":%" PRIu64, frame.line);
  tsr__buffer_text(&emitter->scratch, " ");
  tsr__buffer_append(&emitter->scratch, name.data, name.size_bytes);
  tsr__emit_unbroken(emitter, TSR__PLAIN, indent);
}

/* Outermost first; -v has the frames between, and whole paths. */
static void print_asker(tsr__stack_printer *printer, const tsr_why_device *d) {
  enum { MOST_FRAMES = 12, DEEPEST = 24 };
  tsr__emitter *emitter = printer->emitter;
  if (!tsr__emitter_is_text(emitter) || d->stack == TSR_NONE) return;
  tsr__emit_space(emitter);
  tsr__emit_printf(emitter, TSR__BOLD,
                   "Asked for at event %s of %s:", COUNT((uint64_t)d->moment.event),
                   COUNT(d->event_count));
  tsr_stack stack = tsr_snapshot_stack(printer->snapshot, d->stack);
  uint32_t *frames = TSR__NEW_ARRAY(uint32_t, stack.depth);
  size_t count = frames ? tsr__stack_shown(printer, d->stack, frames) : 0;
  if (!frames) emitter->scratch.failed = true;
  if (!stack.depth) {
    tsr__emit_printf(emitter, TSR__PLAIN, "  (no stack recorded)");
  } else if (emitter->options.verbose || emitter->options.full_stacks || !count) {
    tsr__stack_print(printer, d->stack);
  } else {
    size_t hidden = count > MOST_FRAMES ? count - MOST_FRAMES : 0, indent = 2;
    if (hidden)
      tsr__emit_printf(emitter, TSR__DIM, "  ... %s outer frame%s (-v shows all)", COUNT(hidden),
                       tsr__plural(hidden));
    for (size_t i = hidden; i < count; i++) {
      print_frame(emitter, printer->snapshot, frames[i], indent);
      if (indent < DEEPEST) indent += 2;
    }
  }
  tsr__free(frames);
}

/* Whether the page lists these allocations as those of the peak. */
static bool is_shown_at_peak(const tsr__emitter *emitter, const tsr_why_device *d) {
  return emitter->options.is_on_page && d->moment.totals.allocated_bytes == d->most_allocated_bytes;
}

/* A failure in text: who asked, what would help, what held the memory; -v has the rest. */
static void print_failure(tsr__stack_printer *printer, const tsr_why_device *d) {
  enum { NAMED_TRIALS = 3 }; /* so few are those that the user named */
  tsr__emitter *emitter = printer->emitter;
  bool is_verbose = emitter->options.verbose;
  say_which(emitter, d);
  print_asker(printer, d);
  print_outside(emitter, d);
  print_settings(emitter, d);
  print_changes(printer, d);
  if (is_verbose) {
    say_story(emitter, d);
    emit_request(printer, d);
  }
  print_memory(emitter, d);
  if (is_verbose) emit_kinds(emitter, d);
  if (!is_shown_at_peak(emitter, d)) emit_causes(printer, d);
  if (is_verbose) say_saving(emitter, d);
  if (is_verbose || d->trial_count <= NAMED_TRIALS) emit_trials(emitter, d);
  if (!is_verbose && !emitter->options.is_on_page)
    tsr__emit_printf(emitter, TSR__DIM,
                     "  -v shows the figures, the settings tried and whole stacks.");
  print_stacks(printer, d);
}

/* Findings are about the peak of allocated memory, which may be another moment than that of reserved memory. */
static void print_findings(tsr__stack_printer *printer, const tsr_why_device *d) {
  char heading[TSR__FORMAT_BYTES + 64] = "What to do";
  if (d->allocated_event != d->moment.event && d->allocated_event >= 0)
    (void)snprintf(heading, sizeof heading, "What to do about the most allocated, at event %s",
                   COUNT((uint64_t)d->allocated_event));
  tsr__findings_print(printer, heading, d->findings, d->finding_count);
}

/* `is_brief`: another device failed; in text this one is a line. */
static void emit_device(tsr__stack_printer *printer, const tsr_why_device *d, bool is_brief) {
  tsr__emitter *emitter = printer->emitter;
  bool is_text = tsr__emitter_is_text(emitter);
  print_verdict(emitter, d);
  tsr__emit_loss(emitter, d->is_partial);
  if (is_brief && is_text) return;
  if (d->oom_count && is_text) {
    print_failure(printer, d);
    return;
  }
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "device", NULL, tsr__device(d->device));
  tsr__emit_field(emitter, "events", NULL, tsr__count(d->event_count));
  tsr__emit_field(emitter, "has_history", NULL, tsr__bool(d->has_history));
  tsr__emit_field(emitter, "reason", NULL, tsr__string(tsr_why_reason_name(d->reason)));
  tsr__emit_object(emitter, "moment");
  tsr__emit_field(emitter, "event", NULL, tsr__index(d->moment.event));
  tsr__emit_field(emitter, "time_us", NULL, tsr__time(d->moment.time_us));
  tsr__emit_totals(emitter, "totals", &d->moment.totals);
  tsr__emit_end(emitter);
  tsr__emit_field(emitter, "peak_reserved_bytes", NULL, tsr__bytes(d->peak_reserved_bytes));
  emit_request(printer, d);
  print_memory(emitter, d);
  emit_memory(emitter, d);
  emit_kinds(emitter, d);
  emit_causes(printer, d);
  emit_trials(emitter, d);
  if (d->oom_count) emit_outlook(emitter, d);
  if (d->oom_count) emit_advice(emitter, d);
  tsr__findings_emit(printer, d->findings, d->finding_count);
  print_findings(printer, d);
  print_stacks(printer, d);
  tsr__emit_end(emitter);
}

int tsr__report_why(const tsr_report_input *input, const tsr_why *why,
                    const tsr_report_options *options, tsr_write_fn *write, void *context,
                    tsr_error *error) {
  tsr__emitter emitter;
  tsr__stack_printer printer;
  tsr__warning_list warnings = {0};
  bool has_oom = false;
  tsr__emitter_init(&emitter, options, write, context);
  tsr__stack_printer_init(&printer, &emitter, input->snapshot);
  tsr__heading_begin(&emitter, &tsr__fields_why, input);
  tsr__imbalance_emit(&emitter, &why->imbalance);
  tsr__emit_array(&emitter, "devices");
  if (!why->device_count)
    tsr__emit_printf(&emitter, TSR__VERDICT, "No device has events or segments.");
  for (size_t i = 0; i < why->device_count; i++) has_oom |= why->devices[i].oom_count != 0;
  /* In text, devices that failed come first; JSON keeps their order. */
  for (int pass = 0; pass < 2; pass++) {
    for (size_t i = 0; i < why->device_count; i++) {
      const tsr_why_device *device = &why->devices[i];
      bool is_late = has_oom && !device->oom_count && tsr__emitter_is_text(&emitter);
      if (is_late != (pass == 1)) continue;
      emit_device(&printer, device, has_oom && !device->oom_count);
    }
  }
  for (size_t i = 0; i < why->device_count; i++)
    tsr__warnings_add(&warnings, why->devices[i].warnings, why->devices[i].warning_count);
  tsr__stack_printer_release(&printer);
  return tsr__heading_close(&emitter, input, &warnings, error);
}
