/* report.c - pools and what is pinned in them, as text or JSON.
 *
 *   Device 0: 24.39 GiB are reserved at the peak, event 3,737: 23.76 GiB in use, 370.51 MiB free
 *     but pinned, 274.00 MiB releasable, 82.55 MiB kept by private pools.
 *
 *   3 blocks of 6.00 MiB in all keep 60 segments, in which 1.20 GiB are free: train.py:31 log
 *
 *     pool    size   reserved     in use   free  most reserved  made by
 *
 *     #   pinned  segments  blocks  of bytes  shared  by the blocks of
 *
 *     moment         reserved  in use  pinned  releasable  pinned most by
 *
 *     pools          peak reserved     saved
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/checked.h"
#include "base/format.h"
#include "emit/emitter.h"
#include "emit/heading.h"
#include "emit/text.h"
#include "questions/reports.h"
#include "questions/shared/moment.h"
#include "stacks/stacks.h"

enum { TEXT_POOLS = 20, TEXT_ENDS = 3 }; /* rows in text, unless verbose */

/* ---- parts ---- */

static bool is_private(const tsr_pools_pool *pool) {
  return pool->pool.first || pool->pool.second;
}

static const char *size_name(const tsr_pools_pool *pool) {
  return pool->is_large ? "large" : "small";
}

static void append_id(tsr__buffer *out, tsr_pool id) {
  tsr__buffer_printf(out, "(%" PRIu64 ", %" PRIu64 ")", id.first, id.second);
}

/* "default", "graph (1, 0)", "pool (0, 2)". */
static void append_pool(tsr__buffer *out, const tsr_pools_pool *pool) {
  if (!is_private(pool)) {
    tsr__buffer_text(out, "default");
    return;
  }
  tsr__buffer_text(out, pool->kind == TSR_POOLS_GRAPH ? "graph " : "pool ");
  append_id(out, pool->pool);
}

static void emit_id(tsr__emitter *emitter, tsr_pool id) {
  tsr__emit_inline_array(emitter, "pool");
  tsr__emit_item(emitter, tsr__count(id.first));
  tsr__emit_item(emitter, tsr__count(id.second));
  tsr__emit_end(emitter);
}

/* JSON: which pool. */
static void emit_which(tsr__emitter *emitter, const tsr_pools_pool *pool) {
  if (tsr__emitter_is_text(emitter)) return;
  emit_id(emitter, pool->pool);
  tsr__emit_field(emitter, "stream", NULL, tsr__count(pool->stream));
  tsr__emit_field(emitter, "size", NULL, tsr__string(size_name(pool)));
}

static void emit_sums(tsr__emitter *emitter, const tsr_pools_sums *sums) {
  tsr__emit_field(emitter, "reserved_bytes", NULL, tsr__bytes(sums->reserved_bytes));
  tsr__emit_field(emitter, "used_bytes", NULL, tsr__bytes(sums->used_bytes));
  tsr__emit_field(emitter, "pinned_bytes", NULL, tsr__bytes(sums->pinned_bytes));
  tsr__emit_field(emitter, "releasable_bytes", NULL, tsr__bytes(sums->releasable_bytes));
  tsr__emit_field(emitter, "kept_bytes", NULL, tsr__bytes(sums->kept_bytes));
}

static uint64_t free_of(const tsr_pools_sums *sums) {
  return tsr__drop_u64(sums->reserved_bytes, sums->used_bytes);
}

/* ---- the verdict ---- */

static void append_part(tsr__buffer *out, uint64_t bytes, const char *what) {
  char size[TSR__FORMAT_BYTES];
  if (bytes) tsr__buffer_printf(out, ", %s %s", tsr__format_size(bytes, size), what);
}

static void append_when(tsr__buffer *out, const tsr_pools_device *device) {
  char event[TSR__FORMAT_BYTES], count[TSR__FORMAT_BYTES];
  int64_t at = device->moment.event;
  if (!device->event_count) {
    tsr__buffer_text(out, "at the end");
    return;
  }
  if (at < 0) {
    tsr__buffer_text(out, "before the first event");
    return;
  }
  static const char *const words[TSR_POOLS_REASON_COUNT] = {
      "at the peak, event ", "where memory ran out, event ", "after event "};
  tsr__buffer_printf(out, "%s%s of %s", words[device->reason],
                     tsr__format_count((uint64_t)at, event),
                     tsr__format_count(device->event_count, count));
}

static void print_verdict(tsr__emitter *emitter, const tsr_pools_device *device) {
  tsr__emit_space(emitter);
  if (!tsr__emitter_is_text(emitter)) return;
  tsr__buffer *out = &emitter->scratch;
  const tsr_pools_sums *sums = &device->sums;
  char name[TSR__FORMAT_BYTES], reserved[TSR__FORMAT_BYTES], used[TSR__FORMAT_BYTES];
  tsr__buffer_printf(out, "%s: ", tsr__device_title(device->device, name));
  if (!device->has_history) {
    tsr__say_no_history(out, device->event_count);
    tsr__buffer_text(out, "; ");
  }
  tsr__buffer_printf(out, "%s reserved ", tsr__format_size(sums->reserved_bytes, reserved));
  append_when(out, device);
  tsr__buffer_printf(out, ": %s in use", tsr__format_size(sums->used_bytes, used));
  append_part(out, sums->pinned_bytes, "free but pinned");
  append_part(out, sums->releasable_bytes, "releasable");
  append_part(out, sums->kept_bytes, "kept by private pools");
  tsr__buffer_text(out, ".");
  tsr__emit_paragraph(emitter, TSR__VERDICT, 0);
}

/* More than the card has is no contradiction. */
static void print_managed(tsr__emitter *emitter, const tsr_pools_device *device) {
  char card[TSR__FORMAT_BYTES];
  if (!tsr__emitter_is_text(emitter) || !device->card_bytes ||
      device->sums.reserved_bytes <= device->card_bytes)
    return;
  tsr__buffer_printf(&emitter->scratch,
                     "That is more than the card's %s, so some of it is managed memory, which is "
                     "paged to the host (torch.cuda._use_uvm, or a MemPool's own allocator).",
                     tsr__format_size(device->card_bytes, card));
  tsr__emit_paragraph(emitter, TSR__PLAIN, 2);
}

/* The first of a default pool, which would be released, if it is worth a sentence: a hundredth of what is reserved. */
static void print_first_holder(tsr__stack_printer *printer, const tsr_pools_device *device) {
  tsr__emitter *emitter = printer->emitter;
  if (!tsr__emitter_is_text(emitter) || !device->holder_count) return;
  size_t index = 0;
  while (index < device->holder_count && is_private(&device->pools[device->holders[index].pool]))
    index++;
  if (index == device->holder_count) return;
  const tsr_pools_holder *first = &device->holders[index];
  char blocks[TSR__FORMAT_BYTES], size[TSR__FORMAT_BYTES], segments[TSR__FORMAT_BYTES],
      bytes[TSR__FORMAT_BYTES];
  if (!first->free_bytes || first->free_bytes < device->sums.reserved_bytes / 100) return;
  bool is_page = false, is_one = first->blocks == 1;
  for (size_t i = 0; i < device->segment_count; i++)
    is_page |= device->segments[i].pool == first->pool && device->segments[i].is_page;
  tsr__buffer *out = &emitter->scratch;
  tsr__buffer_printf(
      out, "%s block%s, %s%s, keep%s %s %s%s that would otherwise be empty, with %s free: ",
      tsr__format_count(first->blocks, blocks), is_one ? "" : "s",
      tsr__format_size(first->block_bytes, size), is_one ? "" : " in all", is_one ? "s" : "",
      tsr__format_count(first->segments, segments), is_page ? "page" : "segment",
      first->segments == 1 ? "" : "s", tsr__format_size(first->free_bytes, bytes));
  if (first->stack == TSR_NONE)
    tsr__buffer_text(out, "(no stack recorded)");
  else
    tsr__stack_append_name(printer, TSR__LABEL_STACK, first->stack);
  tsr__emit_paragraph(emitter, TSR__PLAIN, 2);
}

/* ---- pools ---- */

static bool has_streams(const tsr_pools_device *device) {
  for (size_t i = 1; i < device->pool_count; i++)
    if (device->pools[i].stream != device->pools[0].stream) return true;
  return false;
}

static void emit_pool(tsr__stack_printer *printer, const tsr_pools_pool *pool, tsr_text name) {
  tsr__emitter *emitter = printer->emitter;
  char stream[32];
  tsr__buffer *out = &emitter->scratch;
  append_pool(out, pool);
  (void)snprintf(stream, sizeof stream, pool->stream > 9 ? "0x%" PRIx64 : "%" PRIu64, pool->stream);
  tsr__emit_row(emitter,
                (tsr__cell[]){tsr__text((tsr_text){out->data, out->size}),
                              tsr__string(size_name(pool)), tsr__string(stream),
                              tsr__bytes(pool->at.reserved_bytes), tsr__bytes(pool->at.used_bytes),
                              tsr__bytes(free_of(&pool->at)), tsr__bytes(pool->most_reserved_bytes),
                              tsr__bytes(pool->most_used_bytes), tsr__text(name)});
  out->size = 0;
  if (!tsr__emitter_is_text(emitter)) {
    emit_sums(emitter, &pool->at);
    emit_which(emitter, pool);
    tsr__emit_field(emitter, "kind", NULL, tsr__string(tsr_pools_kind_name(pool->kind)));
    tsr__emit_field(emitter, "segments", NULL, tsr__count(pool->segments));
    tsr__emit_field(emitter, "end_reserved_bytes", NULL, tsr__bytes(pool->end_reserved_bytes));
    tsr__emit_field(emitter, "end_used_bytes", NULL, tsr__bytes(pool->end_used_bytes));
    tsr__emit_field(emitter, "most_reserved_bytes", NULL, tsr__bytes(pool->most_reserved_bytes));
    tsr__emit_field(emitter, "most_reserved_event", NULL, tsr__index(pool->most_reserved_event));
    tsr__emit_field(emitter, "most_used_bytes", NULL, tsr__bytes(pool->most_used_bytes));
    tsr__stack_emit(printer, pool->stack);
  }
  tsr__emit_row_end(emitter);
}

static void emit_pools(tsr__stack_printer *printer, const tsr_pools_device *device) {
  tsr__emitter *emitter = printer->emitter;
  bool has_history = device->has_history;
  const tsr__column columns[] = {{NULL, "pool", TSR__LEFT},
                                 {NULL, "size", TSR__LEFT},
                                 {NULL, has_streams(device) ? "stream" : NULL, TSR__LEFT},
                                 {NULL, "reserved", TSR__RIGHT},
                                 {NULL, "in use", TSR__SPARE},
                                 {NULL, "free", TSR__RIGHT},
                                 {NULL, has_history ? "most reserved" : NULL, TSR__SPARE},
                                 {NULL, has_history ? "most in use" : NULL, TSR__SPARE},
                                 {NULL, has_history ? "made by" : "largest block", TSR__ELASTIC}};
  tsr__row_names names;
  size_t count = device->pool_count;
  bool is_cut = tsr__emitter_is_text(emitter) && !emitter->options.verbose && count > TEXT_POOLS;
  if (is_cut) count = TEXT_POOLS;
  TSR__STACK_NAMES(printer, tsr_pools_pool, device->pools, count, &names);
  tsr__emit_space(emitter);
  tsr__emit_table(emitter, "pools", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < count; i++)
    emit_pool(printer, &device->pools[i], tsr__stack_name(&names, i));
  tsr__emit_table_end(emitter);
  tsr__row_names_release(&names);
  if (!is_cut) return;
  char more[TSR__FORMAT_BYTES], size[TSR__FORMAT_BYTES];
  uint64_t bytes = 0;
  for (size_t i = count; i < device->pool_count; i++)
    bytes = tsr__sum_u64(bytes, device->pools[i].at.reserved_bytes);
  tsr__emit_printf(emitter, TSR__DIM, "  ... and %s more pools, %s reserved (-v shows all)",
                   tsr__format_count(device->pool_count - count, more),
                   tsr__format_size(bytes, size));
}

/* ---- what is pinned ---- */

static void emit_holder_fields(tsr__stack_printer *printer, const tsr_pools_device *device,
                               const tsr_pools_holder *holder) {
  tsr__emitter *emitter = printer->emitter;
  emit_which(emitter, &device->pools[holder->pool]);
  tsr__emit_field(emitter, "segments", NULL, tsr__count(holder->segments));
  tsr__emit_field(emitter, "segment_bytes", NULL, tsr__bytes(holder->segment_bytes));
  tsr__emit_field(emitter, "free_bytes", NULL, tsr__bytes(holder->free_bytes));
  tsr__emit_field(emitter, "blocks", NULL, tsr__count(holder->blocks));
  tsr__emit_field(emitter, "block_bytes", NULL, tsr__bytes(holder->block_bytes));
  tsr__emit_field(emitter, "shared_segments", NULL, tsr__count(holder->shared_segments));
  tsr__emit_field(emitter, "shared_free_bytes", NULL, tsr__bytes(holder->shared_free_bytes));
  tsr__stack_emit(printer, holder->stack);
}

static bool any_private(const tsr_pools_device *device) {
  for (size_t i = 0; i < device->pool_count; i++)
    if (is_private(&device->pools[i])) return true;
  return false;
}

static void emit_holders(tsr__stack_printer *printer, const tsr_pools_device *device) {
  tsr__emitter *emitter = printer->emitter;
  const tsr__column columns[] = {{NULL, "#", TSR__RIGHT},
                                 {NULL, "free", TSR__RIGHT},
                                 {NULL, "segments", TSR__RIGHT},
                                 {NULL, "blocks", TSR__RIGHT},
                                 {NULL, "bytes", TSR__RIGHT},
                                 {NULL, "shared", TSR__RIGHT},
                                 {NULL, any_private(device) ? "pool" : NULL, TSR__LEFT},
                                 {NULL, "kept by blocks from", TSR__ELASTIC}};
  tsr__row_names names;
  TSR__STACK_NAMES(printer, tsr_pools_holder, device->holders, device->holder_count, &names);
  tsr__emit_space(emitter);
  tsr__emit_table(emitter, "holders", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < device->holder_count; i++) {
    const tsr_pools_holder *holder = &device->holders[i];
    append_pool(&emitter->scratch, &device->pools[holder->pool]);
    tsr__emit_row(emitter,
                  (tsr__cell[]){tsr__count(i + 1), tsr__bytes(holder->free_bytes),
                                tsr__count(holder->segments), tsr__count(holder->blocks),
                                tsr__bytes(holder->block_bytes),
                                tsr__bytes(holder->shared_free_bytes),
                                tsr__text((tsr_text){emitter->scratch.data, emitter->scratch.size}),
                                tsr__text(tsr__stack_name(&names, i))});
    emitter->scratch.size = 0;
    if (!tsr__emitter_is_text(emitter)) emit_holder_fields(printer, device, holder);
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
  tsr__row_names_release(&names);
  tsr__emit_field(emitter, "omitted_holders", NULL, tsr__count(device->omitted_holders));
  tsr__emit_field(emitter, "omitted_holder_bytes", NULL, tsr__bytes(device->omitted_holder_bytes));
  char count[TSR__FORMAT_BYTES], size[TSR__FORMAT_BYTES];
  if (device->omitted_holders)
    tsr__emit_printf(emitter, TSR__DIM, "  ... and %s more, %s (--top 0 shows all)",
                     tsr__format_count(device->omitted_holders, count),
                     tsr__format_size(device->omitted_holder_bytes, size));
}

static void emit_segments(tsr__stack_printer *printer, const tsr_pools_device *device) {
  tsr__emitter *emitter = printer->emitter;
  if (tsr__emitter_is_text(emitter)) return;
  tsr__emit_array(emitter, "segments");
  for (size_t i = 0; i < device->segment_count; i++) {
    const tsr_pools_segment *segment = &device->segments[i];
    tsr__emit_object(emitter, NULL);
    tsr__emit_field(emitter, "address", NULL, tsr__count(segment->address));
    tsr__emit_field(emitter, "size_bytes", NULL, tsr__bytes(segment->size_bytes));
    tsr__emit_field(emitter, "free_bytes", NULL, tsr__bytes(segment->free_bytes));
    emit_which(emitter, &device->pools[segment->pool]);
    tsr__emit_field(emitter, "page", NULL, tsr__bool(segment->is_page));
    tsr__emit_field(emitter, "blocks", NULL, tsr__count(segment->blocks));
    tsr__emit_field(emitter, "block_bytes", NULL, tsr__bytes(segment->block_bytes));
    tsr__emit_field(emitter, "stacks", NULL, tsr__count(segment->stacks));
    tsr__stack_emit(printer, segment->stack);
    tsr__emit_end(emitter);
  }
  tsr__emit_end(emitter);
  tsr__emit_field(emitter, "omitted_segments", NULL, tsr__count(device->omitted_segments));
  tsr__emit_field(emitter, "omitted_segment_bytes", NULL,
                  tsr__bytes(device->omitted_segment_bytes));
}

/* ---- other moments ---- */

static void emit_moment_fields(tsr__stack_printer *printer, const tsr_pools_device *device,
                               const tsr_pools_moment *moment) {
  tsr__emitter *emitter = printer->emitter;
  emit_sums(emitter, &moment->sums);
  tsr__emit_field(emitter, "at", NULL, tsr__string(moment->is_step_end ? "step_end" : "phase"));
  if (moment->is_step_end) tsr__emit_field(emitter, "step", NULL, tsr__count(moment->step));
  tsr__emit_field(emitter, "phase", NULL, tsr__string(tsr_phase_name(moment->phase)));
  tsr__emit_field(emitter, "event", NULL, tsr__index(moment->event));
  tsr__emit_field(emitter, "time_us", NULL, tsr__time(moment->time_us));
  tsr__emit_array(emitter, "pools");
  for (size_t i = 0; i < device->pool_count; i++) {
    if (!moment->pools[i].reserved_bytes) continue;
    tsr__emit_inline_object(emitter, NULL);
    emit_sums(emitter, &moment->pools[i]);
    emit_which(emitter, &device->pools[i]);
    tsr__emit_end(emitter);
  }
  tsr__emit_end(emitter);
  if (!moment->holder.free_bytes) {
    tsr__emit_field(emitter, "holder", NULL, tsr__nothing());
    return;
  }
  tsr__emit_object(emitter, "holder");
  emit_holder_fields(printer, device, &moment->holder);
  tsr__emit_end(emitter);
}

static void append_moment(tsr__buffer *out, const tsr_pools_device *device,
                          const tsr_pools_moment *moment) {
  char step[TSR__FORMAT_BYTES];
  if (!moment->is_step_end) {
    tsr__buffer_printf(out, "%s, worst", tsr_phase_name(moment->phase));
    return;
  }
  tsr__buffer_printf(out, "%s %s ends", tsr_steps_unit_name(device->unit),
                     tsr__format_count(moment->step, step));
}

static size_t count_ends(const tsr_pools_device *device) {
  size_t ends = 0;
  for (size_t i = 0; i < device->moment_count; i++) ends += device->moments[i].is_step_end;
  return ends;
}

static void emit_moments(tsr__stack_printer *printer, const tsr_pools_device *device) {
  tsr__emitter *emitter = printer->emitter;
  const tsr__column columns[] = {{NULL, "moment", TSR__LEFT},
                                 {NULL, "event", TSR__SPARE},
                                 {NULL, "reserved", TSR__RIGHT},
                                 {NULL, "pinned", TSR__RIGHT},
                                 {NULL, "releasable", TSR__SPARE},
                                 {NULL, any_private(device) ? "kept" : NULL, TSR__RIGHT},
                                 {NULL, "pinned most by", TSR__ELASTIC}};
  tsr__row_names names;
  tsr__buffer *out = &emitter->scratch;
  bool is_brief = tsr__emitter_is_text(emitter) && !emitter->options.verbose;
  size_t ends = count_ends(device), skipped = is_brief && ends > TEXT_ENDS ? ends - TEXT_ENDS : 0;
  size_t left = skipped;
  tsr__stack_names_in(printer, device->moments, device->moment_count, sizeof *device->moments,
                      offsetof(tsr_pools_moment, holder.stack), &names);
  tsr__emit_space(emitter);
  tsr__emit_table(emitter, "moments", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < device->moment_count; i++) {
    const tsr_pools_moment *moment = &device->moments[i];
    if (moment->is_step_end && left && left--) continue;
    append_moment(out, device, moment);
    tsr__emit_row(
        emitter,
        (tsr__cell[]){
            tsr__text((tsr_text){out->data, out->size}), tsr__index(moment->event),
            tsr__bytes(moment->sums.reserved_bytes), tsr__bytes(moment->sums.pinned_bytes),
            tsr__bytes(moment->sums.releasable_bytes), tsr__bytes(moment->sums.kept_bytes),
            moment->holder.free_bytes ? tsr__text(tsr__stack_name(&names, i)) : tsr__string("-")});
    out->size = 0;
    if (!tsr__emitter_is_text(emitter)) emit_moment_fields(printer, device, moment);
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
  tsr__row_names_release(&names);
  tsr__emit_field(emitter, "omitted_step_ends", NULL, tsr__count(device->omitted_ends));
  char count[TSR__FORMAT_BYTES], rest[TSR__FORMAT_BYTES];
  if (skipped && device->omitted_ends)
    tsr__emit_printf(emitter, TSR__DIM,
                     "  ... and %s earlier end%s (-v shows all); %s others were not measured",
                     tsr__format_count(skipped, count), tsr__plural(skipped),
                     tsr__format_count(device->omitted_ends, rest));
  else if (skipped)
    tsr__emit_printf(emitter, TSR__DIM, "  ... and %s earlier end%s (-v shows all)",
                     tsr__format_count(skipped, count), tsr__plural(skipped));
  else if (device->omitted_ends)
    tsr__emit_printf(emitter, TSR__DIM, "  ... and %s more ends that were not measured",
                     tsr__format_count(device->omitted_ends, count));
}

/* ---- trials ---- */

static void append_trial(tsr__buffer *out, const tsr_pools_trial *trial) {
  if (trial->is_shared) {
    tsr__buffer_text(out, "one private pool for all");
  } else if (trial->is_all) {
    tsr__buffer_text(out, "no private pools");
  } else {
    tsr__buffer_text(out, "without ");
    append_id(out, trial->pool);
  }
}

static void emit_trial(tsr__emitter *emitter, const tsr_pools_device *device,
                       const tsr_pools_trial *trial) {
  tsr__buffer *out = &emitter->scratch;
  uint64_t before = device->recorded_peak_reserved_bytes, after = trial->peak_reserved_bytes;
  char size[TSR__FORMAT_BYTES];
  append_trial(out, trial);
  size_t named = out->size;
  if (trial->is_given_up)
    tsr__buffer_text(out, "given up");
  else if (after > before)
    tsr__buffer_printf(out, "%s more", tsr__format_size(after - before, size));
  else
    tsr__buffer_printf(out, "%s%s less", trial->is_least ? "at most " : "",
                       tsr__format_size(before - after, size));
  if (out->failed) return;
  tsr__emit_row(emitter,
                (tsr__cell[]){tsr__text((tsr_text){out->data, named}), tsr__bytes(after),
                              tsr__text((tsr_text){out->data + named, out->size - named})});
  out->size = 0;
  if (!tsr__emitter_is_text(emitter)) {
    tsr__emit_field(emitter, "pools", NULL,
                    tsr__string(trial->is_shared ? "shared"
                                : trial->is_all  ? "none"
                                                 : "without"));
    if (!trial->is_shared && !trial->is_all) emit_id(emitter, trial->pool);
    tsr__emit_field(emitter, "peak_reserved_bytes", NULL, tsr__bytes(after));
    tsr__emit_field(emitter, "at_least", NULL, tsr__bool(trial->is_least));
    tsr__emit_field(emitter, "given_up", NULL, tsr__bool(trial->is_given_up));
  }
  tsr__emit_row_end(emitter);
}

static void emit_trials(tsr__emitter *emitter, const tsr_pools_device *device) {
  static const tsr__column columns[] = {{NULL, "with other pools", TSR__LEFT},
                                        {NULL, "peak reserved", TSR__RIGHT},
                                        {NULL, "than recorded", TSR__LEFT}};
  tsr__emit_field(emitter, "recorded_peak_reserved_bytes", NULL,
                  tsr__bytes(device->recorded_peak_reserved_bytes));
  tsr__emit_space(emitter);
  tsr__emit_table(emitter, "trials", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < device->trial_count; i++) emit_trial(emitter, device, &device->trials[i]);
  tsr__emit_table_end(emitter);
  bool is_least = false, shares = false;
  for (size_t i = 0; i < device->trial_count; i++) {
    const tsr_pools_trial *trial = &device->trials[i];
    is_least |= trial->is_least;
    shares |= trial->is_shared && trial->peak_reserved_bytes < device->recorded_peak_reserved_bytes;
  }
  if (shares)
    tsr__emit_printf(
        emitter, TSR__DIM,
        "  Graphs share a pool if they are captured with pool=first.pool() and replayed "
        "in that order.");
  if (is_least)
    tsr__emit_printf(emitter, TSR__DIM,
                     "  Without its pool, a graph's replays would allocate, too.");
}

/* ---- the whole ---- */

static void print_stacks(tsr__stack_printer *printer, const tsr_pools_device *device) {
  const tsr_report_options *options = &printer->emitter->options;
  char rank[TSR__FORMAT_BYTES], size[TSR__FORMAT_BYTES];
  if (!options->verbose && !options->full_stacks) return;
  for (size_t i = 0; i < device->holder_count; i++) {
    const tsr_pools_holder *holder = &device->holders[i];
    if (holder->stack == TSR_NONE) continue;
    tsr__emit_space(printer->emitter);
    tsr__emit_printf(printer->emitter, TSR__BOLD, "#%s  keeps %s", tsr__format_count(i + 1, rank),
                     tsr__format_size(holder->free_bytes, size));
    tsr__stack_print(printer, holder->stack);
  }
}

static void emit_device(tsr__stack_printer *printer, const tsr_pools_device *device) {
  tsr__emitter *emitter = printer->emitter;
  print_verdict(emitter, device);
  tsr__emit_loss(emitter, device->is_partial);
  print_managed(emitter, device);
  print_first_holder(printer, device);
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "device", NULL, tsr__device(device->device));
  tsr__emit_field(emitter, "events", NULL, tsr__count(device->event_count));
  tsr__emit_field(emitter, "has_history", NULL, tsr__bool(device->has_history));
  tsr__emit_field(emitter, "reason", NULL, tsr__string(tsr_pools_reason_name(device->reason)));
  tsr__emit_object(emitter, "moment");
  tsr__emit_field(emitter, "event", NULL, tsr__index(device->moment.event));
  tsr__emit_field(emitter, "time_us", NULL, tsr__time(device->moment.time_us));
  tsr__emit_field(emitter, "requested_bytes", NULL,
                  tsr__bytes(device->moment.totals.requested_bytes));
  tsr__emit_field(emitter, "allocated_bytes", NULL,
                  tsr__bytes(device->moment.totals.allocated_bytes));
  tsr__emit_field(emitter, "active_bytes", NULL, tsr__bytes(device->moment.totals.active_bytes));
  tsr__emit_field(emitter, "reserved_bytes", NULL,
                  tsr__bytes(device->moment.totals.reserved_bytes));
  tsr__emit_end(emitter);
  tsr__emit_object(emitter, "sums");
  emit_sums(emitter, &device->sums);
  tsr__emit_end(emitter);
  tsr__emit_field(emitter, "card_bytes", NULL,
                  device->card_bytes ? tsr__bytes(device->card_bytes) : tsr__nothing());
  emit_pools(printer, device);
  emit_holders(printer, device);
  emit_segments(printer, device);
  emit_moments(printer, device);
  emit_trials(emitter, device);
  tsr__emit_end(emitter);
  if (tsr__emitter_is_text(emitter)) print_stacks(printer, device);
}

int tsr__report_pools(const tsr_report_input *input, const tsr_pools *pools,
                      const tsr_report_options *options, tsr_write_fn *write, void *context,
                      tsr_error *error) {
  tsr__emitter emitter;
  tsr__stack_printer printer;
  tsr__warning_list warnings = {0};
  tsr_report_options screen_options = tsr__screen_options(options);
  tsr__emitter_init(&emitter, &screen_options, write, context);
  tsr__stack_printer_init(&printer, &emitter, input->snapshot);
  tsr__heading_open(&emitter, &tsr__fields_pools, input);
  if (!pools->device_count)
    tsr__emit_printf(&emitter, TSR__VERDICT,
                     pools->leaves_host ? "Nothing but pinned host memory is in the file."
                                        : "No device has events or segments.");
  for (size_t i = 0; i < pools->device_count; i++) {
    emit_device(&printer, &pools->devices[i]);
    tsr__warnings_add(&warnings, pools->devices[i].warnings, pools->devices[i].warning_count);
  }
  static const tsr_warning no_host = {"host-left-out", 1,
                                      "pinned host memory is left out: its blocks are whole "
                                      "segments, and no graph has a pool there"};
  if (pools->leaves_host) tsr__warnings_add(&warnings, &no_host, 1);
  tsr__stack_printer_release(&printer);
  return tsr__heading_close(&emitter, input, &warnings, error);
}
