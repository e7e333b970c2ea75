/* mcp_mosaic.c - the tools that Mosaic's server has, under their names and in their format.
 *
 * Their numbers are those of Mosaic's commands (tessera/unstable/mosaic.h): memory counted from
 * zero at the first event, and next to it what was there before. What Mosaic gets wrong is
 * corrected here:
 *
 *   device           the one with the highest peak, not the first with a trace; "device" says which
 *   callstack_hash   of the files and lines of the stack alone, the same in every process
 *   differences      between the absolute peaks (tsr_diff); "grown" and "shrunk" are added
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/answers.h>
#include <tessera/unstable/mosaic.h>

#include "mcp.h"

#define GIB              (1024.0 * 1024.0 * 1024.0)
#define ADDRESSES_LISTED 16 /* of one stack's allocations */

/* The device of a snapshot that is answered for. */
typedef struct trace {
  tsr_study *study;
  const tsr_snapshot *snapshot; /* the study's */
  uint32_t device;
  tsr_recorded recorded;
} trace;

static json_t *gib_of(double bytes) {
  return json_real(bytes / GIB);
}

static json_t *number(uint64_t value) {
  return json_integer((json_int_t)(value > INT64_MAX ? INT64_MAX : value));
}

/* The integer, or the nearest that JSON has. */
static json_int_t whole(double value) {
  if (value >= 0x1p63) return INT64_MAX;
  return value <= -0x1p63 ? INT64_MIN : (json_int_t)value;
}

/* "NAME_bytes" and "NAME_gib". */
static void set_bytes(json_t *out, const char *name, double signed_bytes) {
  char key[64];
  (void)snprintf(key, sizeof key, "%s_bytes", name);
  json_object_set_new(out, key, json_integer(whole(signed_bytes)));
  (void)snprintf(key, sizeof key, "%s_gib", name);
  json_object_set_new(out, key, gib_of(signed_bytes));
}

/* ---- Stacks ---- */

static bool text_is(tsr_text text, const char *whole) {
  return text.size_bytes == strlen(whole) && memcmp(text.data, whole, text.size_bytes) == 0;
}

/* The path from the last folder on that is the root of a code base as known as torch. */
static tsr_text shorten(tsr_text file) {
  static const char *const roots[] = {"torch/",  "torchrec/",  "hammer/", "minimal_viable_ai/",
                                      "mosaic/", "aiplatform/"};
  for (size_t at = file.size_bytes; at-- > 0;) {
    if (file.data[at] != '/') continue;
    tsr_text rest = {file.data + at + 1, file.size_bytes - at - 1};
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
      size_t size = strlen(roots[i]);
      if (rest.size_bytes >= size && memcmp(rest.data, roots[i], size) == 0) return rest;
    }
  }
  return file;
}

static json_t *call_stack(const tsr_snapshot *snapshot, uint32_t id) {
  tsr_stack stack = id == TSR_NONE ? (tsr_stack){0} : tsr_snapshot_stack(snapshot, id);
  json_t *list = json_array();
  for (uint32_t i = 0; i < stack.depth; i++) {
    tsr_frame frame = tsr_snapshot_frame(snapshot, stack.frames[i]);
    tsr_text name = tsr_snapshot_string(snapshot, frame.name);
    if (text_is(name, "_call_impl") || text_is(name, "_wrapped_call_impl")) continue;
    json_t *line = frame.line > INT64_MAX ? json_null() : number(frame.line);
    json_array_append_new(list,
                          json_pack("{s:o, s:o, s:o}", "name", mcp_string(name), "filename",
                                    mcp_string(shorten(tsr_snapshot_string(snapshot, frame.file))),
                                    "line", line));
  }
  return list;
}

static void hash_more(uint64_t *hash, const void *data, size_t size) {
  const unsigned char *bytes = data;
  for (size_t i = 0; i < size; i++) *hash = (*hash ^ bytes[i]) * UINT64_C(0x100000001b3);
}

/* FNV-1a of the files and lines, cut to what every reader of JSON holds exactly. */
static uint64_t hash_of(const tsr_snapshot *snapshot, uint32_t id) {
  tsr_stack stack = id == TSR_NONE ? (tsr_stack){0} : tsr_snapshot_stack(snapshot, id);
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (uint32_t i = 0; i < stack.depth; i++) {
    char line[32];
    tsr_frame frame = tsr_snapshot_frame(snapshot, stack.frames[i]);
    tsr_text file = tsr_snapshot_string(snapshot, frame.file);
    hash_more(&hash, file.data, file.size_bytes);
    int size = snprintf(line, sizeof line, ":%" PRIu64 "\n", frame.line);
    hash_more(&hash, line, (size_t)size);
  }
  return (hash ^ (hash >> 52)) & ((UINT64_C(1) << 52) - 1);
}

/* "activation" as Mosaic spells it: "ACTIVATION", after `prefix`. */
static json_t *category_name(const char *prefix, const char *name) {
  char text[64];
  (void)snprintf(text, sizeof text, "%s%s", prefix, name);
  for (char *c = text + strlen(prefix); *c; c++) *c = (char)toupper((unsigned char)*c);
  return json_string(text);
}

/* One entry of Mosaic's lists. */
static json_t *entry(const tsr_snapshot *snapshot, uint32_t stack, uint64_t calls, uint64_t bytes,
                     tsr_mosaic_category category, bool has_stack) {
  return json_pack("{s:o, s:o, s:o, s:o, s:{}, s:o, s:o}", "callstack_hash",
                   number(hash_of(snapshot, stack)), "num_calls", number(calls), "memory_bytes",
                   number(bytes), "memory_gib", gib_of((double)bytes), "memory_bytes_per_call",
                   "allocation_type", category_name("", tsr_mosaic_category_name(category)),
                   "call_stack", has_stack ? call_stack(snapshot, stack) : json_array());
}

/* ---- The device ---- */

static json_t *fail_memory(mcp_call *call) {
  call->error = (tsr_error){.status = TSR_ERROR_MEMORY, .offset = TSR_OFFSET_NONE};
  return NULL;
}

/* The device with the highest peak of a snapshot; false after a failure. */
static bool open_trace(mcp_call *call, const char *name, trace *t) {
  tsr_peak *peak = NULL;
  tsr_query query = {.top = 1};
  *t = (trace){0};
  if (!mcp_open(call, name, &t->study)) return false;
  t->snapshot = tsr_study_snapshot(t->study);
  if (tsr_peak_compute(t->study, &query, &peak, &call->error)) return false;
  t->recorded.peak_event = -1;
  for (size_t i = 0; i < peak->device_count && peak->devices[i].device < TSR_DEVICE_CPU; i++)
    if (i == 0 || peak->devices[i].recorded.overall_bytes > t->recorded.overall_bytes) {
      t->device = peak->devices[i].device;
      t->recorded = peak->devices[i].recorded;
    }
  tsr_peak_free(peak);
  return true;
}

/* ---- Peak ---- */

/* The groups of the peak, that of what has no stack among them, largest first. NULL when out of
 * memory. */
static tsr_mosaic_group *rank(const tsr_mosaic_groups *groups, size_t *count) {
  tsr_mosaic_group *out = calloc(groups->count + 1, sizeof *out);
  *count = groups->count;
  if (!out) return NULL;
  if (*count) memcpy(out, groups->items, *count * sizeof *out);
  if (!groups->rest.allocations) return out;
  size_t at = (*count)++;
  for (; at && out[at - 1].bytes < groups->rest.bytes; at--) out[at] = out[at - 1];
  out[at] = groups->rest;
  return out;
}

/* Mosaic's categories, by stack id. NULL when that fails. */
static uint8_t *stack_categories(mcp_call *call, tsr_study *study) {
  uint8_t *out = malloc((size_t)tsr_snapshot_stack_count(tsr_study_snapshot(study)) + 1);
  if (out && !tsr_mosaic_category_of_stacks(study, out, &call->error)) return out;
  free(out);
  return NULL;
}

/* Sizes by address, of the first allocations of a group. */
static json_t *sizes_of(const trace *t, const tsr_mosaic_groups *groups,
                        const tsr_mosaic_group *g) {
  json_t *out = json_object();
  tsr_events events = tsr_snapshot_events(t->snapshot, t->device);
  for (uint64_t i = 0; i < g->allocations && i < ADDRESSES_LISTED; i++) {
    char address[32];
    uint64_t event = groups->events[g->first + i];
    (void)snprintf(address, sizeof address, "%" PRIu64, events.addr[event]);
    json_object_set_new(out, address, number(events.size[event]));
  }
  return out;
}

static json_t *peak_summary(const trace *t, const tsr_mosaic_peak *peak, size_t groups,
                            size_t listed) {
  json_t *out = json_object();
  set_bytes(out, "dynamic_peak", (double)peak->bytes);
  set_bytes(out, "static_memory", (double)t->recorded.static_bytes);
  set_bytes(out, "overall_peak", (double)peak->bytes + (double)t->recorded.static_bytes);
  json_object_set_new(out, "peak_event_count", number(groups));
  json_object_set_new(out, "returned_event_count", number(listed));
  return out;
}

static json_t *peak_entries(mcp_call *call, const trace *t, const tsr_mosaic_peak *peak,
                            const tsr_mosaic_group *ranked, size_t listed) {
  uint8_t *categories = stack_categories(call, t->study);
  if (!categories) return NULL;
  json_t *events = json_array();
  for (size_t i = 0; i < listed; i++) {
    const tsr_mosaic_group *g = &ranked[i];
    tsr_mosaic_category category = g->stack == TSR_NONE ? TSR_MOSAIC_CATEGORY_UNKNOWN
                                                        : (tsr_mosaic_category)categories[g->stack];
    json_t *item = entry(t->snapshot, g->stack, g->allocations, g->bytes, category,
                         mcp_flag(call, "print_stack"));
    json_object_set_new(item, "memory_bytes_per_call", sizes_of(t, &peak->groups, g));
    json_array_append_new(events, item);
  }
  free(categories);
  return events;
}

static json_t *describe_peak(mcp_call *call, const trace *t, const tsr_mosaic_peak *peak) {
  size_t count, top = (size_t)mcp_integer(call, "top_n");
  tsr_mosaic_group *ranked = rank(&peak->groups, &count);
  if (!ranked) return fail_memory(call);
  size_t listed = top && top < count ? top : count;
  json_t *events = peak_entries(call, t, peak, ranked, listed);
  free(ranked);
  if (!events) return call->error.status ? NULL : fail_memory(call);
  return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "status", "ok", "tool", call->tool->name,
                   "snapshot_path", mcp_text(call, "snapshot_path"), "device", number(t->device),
                   "summary", peak_summary(t, peak, count, listed), "events", events);
}

json_t *mcp_mosaic_peak(mcp_call *call) {
  trace t;
  tsr_mosaic_peak *peak = NULL;
  json_t *out = NULL;
  if (!open_trace(call, "snapshot_path", &t)) return NULL;
  tsr_mosaic_window window = {.has_device = true, .device = t.device};
  if (tsr_mosaic_peak_compute(t.study, &window, &peak, &call->error) == 0)
    out = describe_peak(call, &t, peak);
  tsr_mosaic_peak_free(peak);
  return out;
}

/* ---- Categories ---- */

/* Bytes by category at the recorded peak; `*total` is their sum. */
static json_t *categories_of(mcp_call *call, const trace *t, uint64_t *total) {
  tsr_profile *profile = NULL;
  tsr_query query = {.devices = &t->device, .device_count = 1};
  json_t *out = json_object();
  *total = t->recorded.dynamic_peak_bytes;
  if (!tsr_snapshot_events(t->snapshot, t->device).count) return out;
  const tsr_profile_options how = {.by = TSR_PROFILE_BY_MOSAIC_CATEGORY};
  if (tsr_profile_compute(t->study, &how, &query, &profile, &call->error)) {
    json_decref(out);
    return NULL;
  }
  for (size_t i = 0; i < profile->devices[0].group_count; i++) {
    const tsr_profile_group *g = &profile->devices[0].groups[i];
    json_t *name = category_name("AllocationType.", g->name);
    json_object_set_new(out, json_string_value(name), number(g->bytes));
    json_decref(name);
  }
  tsr_profile_free(profile);
  return out;
}

json_t *mcp_mosaic_categories(mcp_call *call) {
  trace t;
  uint64_t total;
  const char *name;
  json_t *bytes;
  if (!open_trace(call, "snapshot_path", &t)) return NULL;
  json_t *categories = categories_of(call, &t, &total), *list = json_object();
  json_object_foreach(categories, name, bytes) {
    double value = (double)json_integer_value(bytes);
    json_object_set_new(
        list, name, json_pack("{s:O, s:o}", "memory_bytes", bytes, "memory_gib", gib_of(value)));
  }
  json_t *summary = json_object();
  set_bytes(summary, "peak_total_allocated", (double)total);
  json_object_set_new(summary, "category_count", number(json_object_size(list)));
  json_t *out = json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "status", "ok", "tool",
                          call->tool->name, "snapshot_path", mcp_text(call, "snapshot_path"),
                          "device", number(t.device), "summary", summary, "categories", list);
  if (!categories) {
    json_decref(out);
    out = NULL;
  }
  json_decref(categories);
  return out;
}

/* ---- Annotations ---- */

static json_t *stage_name(const json_t *name, const json_t *stage, uint64_t repeat) {
  const char *before = json_string_value(name), *after = json_string_value(stage);
  json_t *out = repeat ? json_sprintf("%s_%s(%" PRIu64 ")", before, after, repeat)
                       : json_sprintf("%s_%s", before, after);
  return out ? out : json_string("");
}

static json_t *describe_stage(const trace *t, const tsr_annotation *annotation,
                              const tsr_mosaic_stage *at) {
  json_t *name = mcp_string(tsr_snapshot_string(t->snapshot, annotation->name));
  json_t *stage = mcp_string(tsr_snapshot_string(t->snapshot, annotation->stage));
  json_t *key = stage_name(name, stage, at->repeat);
  return json_pack("{s:o, s:{s:o, s:o, s:I, s:I}, s:I, s:o}", "stage", key, "annotation", "name",
                   name, "stage", stage, "device", (json_int_t)annotation->device, "time_us",
                   (json_int_t)annotation->time_us, "memory_bytes", (json_int_t)at->bytes,
                   "memory_gib", gib_of((double)at->bytes));
}

json_t *mcp_mosaic_annotations(mcp_call *call) {
  trace t;
  size_t count;
  tsr_mosaic_stages *answer = NULL;
  const char *filter = mcp_text(call, "annotation");
  if (!open_trace(call, "snapshot_path", &t)) return NULL;
  tsr_mosaic_stages_options how = {
      .texts = &filter, .text_count = filter != NULL, .has_device = true, .device = t.device};
  if (tsr_mosaic_stages_of(t.study, &how, &answer, &call->error)) return NULL;
  const tsr_annotation *annotations = tsr_snapshot_annotations(t.snapshot, &count);
  json_t *stages = json_array();
  for (size_t i = 0; i < answer->count; i++)
    json_array_append_new(
        stages, describe_stage(&t, &annotations[answer->items[i].annotation], &answer->items[i]));
  tsr_mosaic_stages_free(answer);
  return json_pack("{s:s, s:s, s:s, s:o, s:s?, s:o, s:o}", "status", "ok", "tool", call->tool->name,
                   "snapshot_path", mcp_text(call, "snapshot_path"), "device", number(t.device),
                   "annotation_filter", filter, "stage_count", number(json_array_size(stages)),
                   "stages", stages);
}

/* ---- Two snapshots ---- */

/* Both, their difference, and the device of it with the highest new peak. */
typedef struct both {
  trace traces[2];
  uint8_t *categories[2]; /* by stack id */
  tsr_diff *diff;
  const tsr_diff_device *device; /* NULL if absent */
} both;

static bool open_both(mcp_call *call, both *b) {
  *b = (both){0};
  if (!open_trace(call, "snapshot_path_1", &b->traces[0]) ||
      !open_trace(call, "snapshot_path_2", &b->traces[1]) ||
      tsr_diff_compute(b->traces[0].study, b->traces[1].study, TSR_DIFF_BY_STACK, NULL, &b->diff,
                       &call->error))
    return false;
  for (int k = 0; k < 2; k++)
    if (!(b->categories[k] = stack_categories(call, b->traces[k].study))) return false;
  for (size_t i = 0; i < b->diff->device_count; i++) {
    const tsr_diff_device *device = &b->diff->devices[i];
    if (device->device >= TSR_DEVICE_CPU) continue;
    if (!b->device || device->new_side.peak.totals.allocated_bytes >
                          b->device->new_side.peak.totals.allocated_bytes)
      b->device = device;
  }
  return true;
}

/* Snapshots stay open: the server keeps them. */
static void close_both(both *b) {
  free(b->categories[0]);
  free(b->categories[1]);
  tsr_diff_free(b->diff);
}

/* The changes of one status, at most `top` of them (0 = all). */
static json_t *changes_of(const both *b, tsr_change_status status, size_t top, size_t *count) {
  json_t *list = json_array();
  bool is_old = status == TSR_CHANGE_REMOVED;
  *count = 0;
  for (size_t i = 0; b->device && i < b->device->change_count; i++) {
    const tsr_change *c = &b->device->changes[i];
    if (c->status != status || ((*count)++ >= top && top)) continue;
    uint32_t stack = is_old ? c->old_stack : c->new_stack;
    tsr_mosaic_category category = stack == TSR_NONE
                                       ? TSR_MOSAIC_CATEGORY_UNKNOWN
                                       : (tsr_mosaic_category)b->categories[is_old ? 0 : 1][stack];
    json_t *item = entry(b->traces[is_old ? 0 : 1].snapshot, stack,
                         is_old ? c->old_allocations : c->new_allocations,
                         is_old ? c->old_bytes : c->new_bytes, category, true);
    if (status == TSR_CHANGE_GROWN || status == TSR_CHANGE_SHRUNK) {
      json_object_set_new(item, "old_memory_bytes", number(c->old_bytes));
      json_object_set_new(item, "delta_bytes", json_integer(c->delta_bytes));
    }
    json_array_append_new(list, item);
  }
  return list;
}

static void set_path(mcp_call *call, json_t *out) {
  json_object_set_new(out, "snapshot_path_1", json_string(mcp_text(call, "snapshot_path_1")));
  json_object_set_new(out, "snapshot_path_2", json_string(mcp_text(call, "snapshot_path_2")));
}

json_t *mcp_mosaic_diff(mcp_call *call) {
  static const struct {
    const char *list, *count, *total;
  } names[] = {[TSR_CHANGE_ADDED] = {"added", "added_count", "added_total"},
               [TSR_CHANGE_REMOVED] = {"removed", "removed_count", "removed_total"},
               [TSR_CHANGE_GROWN] = {"grown", "grown_count", "grown_total"},
               [TSR_CHANGE_SHRUNK] = {"shrunk", "shrunk_count", "shrunk_total"}};
  both b;
  json_t *out = NULL;
  if (open_both(call, &b)) {
    static const tsr_diff_device none;
    const tsr_diff_device *d = b.device ? b.device : &none;
    const uint64_t sums[] = {d->added_bytes, d->removed_bytes, d->grown_bytes, d->shrunk_bytes};
    json_t *summary = json_object();
    out = json_pack("{s:s, s:s}", "status", "ok", "tool", call->tool->name);
    set_path(call, out);
    json_object_set_new(out, "device", number(d->device));
    json_object_set(out, "summary", summary);
    for (int status = TSR_CHANGE_ADDED; status <= TSR_CHANGE_SHRUNK; status++) {
      size_t count, top = (size_t)mcp_integer(call, "top_n");
      json_t *list = changes_of(&b, (tsr_change_status)status, top, &count);
      json_object_set_new(out, names[status].list, list);
      json_object_set_new(summary, names[status].count, number(count));
      set_bytes(summary, names[status].total, (double)sums[status]);
    }
    set_bytes(summary, "net_delta", (double)d->added_bytes - (double)d->removed_bytes);
    set_bytes(summary, "peak_delta",
              (double)d->new_side.peak.totals.allocated_bytes -
                  (double)d->old_side.peak.totals.allocated_bytes);
    if (d->compared_phase)
      json_object_set_new(summary, "compared_phase",
                          json_string(tsr_phase_name(d->compared_phase)));
    json_decref(summary);
  }
  close_both(&b);
  return out;
}

/* Two numbers in GiB and the second less the first. */
static json_t *side_by_side(double first, double second) {
  return json_pack("{s:o, s:o, s:o}", "snapshot_1_gib", gib_of(first), "snapshot_2_gib",
                   gib_of(second), "delta_gib", gib_of(second - first));
}

static json_t *compare_categories(mcp_call *call, const both *b) {
  uint64_t total;
  const char *name;
  json_t *bytes, *out = json_object();
  json_t *first = categories_of(call, &b->traces[0], &total);
  json_t *second = categories_of(call, &b->traces[1], &total);
  bool ok = first && second;
  json_object_foreach(first, name, bytes) {
    double after = (double)json_integer_value(json_object_get(second, name));
    json_object_set_new(out, name, side_by_side((double)json_integer_value(bytes), after));
  }
  json_object_foreach(second, name, bytes) if (!json_object_get(first, name))
      json_object_set_new(out, name, side_by_side(0, (double)json_integer_value(bytes)));
  json_decref(first);
  json_decref(second);
  if (ok) return out;
  json_decref(out);
  return NULL;
}

static json_t *compare_stacks(mcp_call *call, const both *b) {
  static const tsr_diff_device none;
  const tsr_diff_device *d = b->device ? b->device : &none;
  size_t top = (size_t)mcp_integer(call, "top_n"), counts[4];
  json_t *lists[4];
  for (int status = TSR_CHANGE_ADDED; status <= TSR_CHANGE_SHRUNK; status++)
    lists[status] = changes_of(b, (tsr_change_status)status, top, &counts[status]);
  double added = (double)d->added_bytes, removed = (double)d->removed_bytes;
  return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "added_count",
                   number(counts[TSR_CHANGE_ADDED]), "removed_count",
                   number(counts[TSR_CHANGE_REMOVED]), "grown_count",
                   number(counts[TSR_CHANGE_GROWN]), "shrunk_count",
                   number(counts[TSR_CHANGE_SHRUNK]), "added_total_gib", gib_of(added),
                   "removed_total_gib", gib_of(removed), "net_delta_gib", gib_of(added - removed),
                   "top_added", lists[TSR_CHANGE_ADDED], "top_removed", lists[TSR_CHANGE_REMOVED],
                   "top_grown", lists[TSR_CHANGE_GROWN], "top_shrunk", lists[TSR_CHANGE_SHRUNK]);
}

json_t *mcp_mosaic_compare(mcp_call *call) {
  both b;
  json_t *out = NULL, *categories = NULL;
  if (open_both(call, &b) && (categories = compare_categories(call, &b)) != NULL) {
    out = json_pack("{s:s, s:s}", "status", "ok", "tool", "compare_snapshots");
    set_path(call, out);
    json_object_set_new(out, "peak_memory",
                        side_by_side((double)b.traces[0].recorded.overall_bytes,
                                     (double)b.traces[1].recorded.overall_bytes));
    json_object_set(out, "categories", categories);
    json_object_set_new(out, "diff", compare_stacks(call, &b));
  }
  json_decref(categories);
  close_both(&b);
  return out;
}

/* ---- Errors ---- */

json_t *mcp_mosaic_failure(const mcp_call *call) {
  static const char *const paths[] = {"snapshot_path", "snapshot_path_1", "snapshot_path_2"};
  char text[1280];
  const char *type = "ValueError";
  if (call->error.status == TSR_ERROR_IO) type = "OSError";
  if (call->error.status == TSR_ERROR_MEMORY) type = "MemoryError";
  bool compares = strcmp(call->tool->name, "compare_snapshots_tool") == 0;
  json_t *out = json_pack("{s:s, s:s}", "status", "error", "tool",
                          compares ? "compare_snapshots" : call->tool->name);
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
    json_t *value = json_object_get(call->arguments, paths[i]);
    if (value) json_object_set(out, paths[i], value);
  }
  json_object_set_new(
      out, "error",
      json_pack("{s:s, s:s}", "type", type, "message", mcp_failure(call, text, sizeof text)));
  return out;
}
