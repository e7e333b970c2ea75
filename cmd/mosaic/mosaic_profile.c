/* mosaic_profile.c - mosaic_get_memory_profile: the peak by category, and a page. See mosaic.h.
 *
 *   Memory Usage At Peak:
 *   Total Allocated: 0.91GiB
 *   Category Profile:
 *   AllocationType.UNKNOWN: 298.24MB
 *   Annotation Profile:
 *   Compile Context Profile:
 *   Custom Profile:
 *
 * Groups are in the order of their first allocation, including those that hold nothing at the peak.
 * Mosaic reads device 0 only and ignores events without a time; tessera takes the first device that
 * has a trace, and counts every event. Indexes for the plot count its entries, of which
 * there is one for every microsecond in which something happens. The page is that of `tessera view`.
 * As in Mosaic, it is written even if nobody asked for it, into the current folder.
 */
#define _POSIX_C_SOURCE 200809L

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/page.h"
#include "core/rules.h"
#include "mosaic.h"

/* --profile's words, in their order. */
static const tsr_profile_by kinds[] = {TSR_PROFILE_BY_MOSAIC_CATEGORY, TSR_PROFILE_BY_ANNOTATION,
                                       TSR_PROFILE_BY_COMPILE_CONTEXT, TSR_PROFILE_BY_RULES,
                                       TSR_PROFILE_BY_COMPILE_CONTEXT};

/* ---- what is printed ---- */

/* A number as Python prints round(value, 2). */
static const char *rounded(double value, char text[64]) {
  snprintf(text, 64, "%.2f", value);
  size_t length = strlen(text);
  if (text[length - 1] == '0') text[length - 1] = '\0';
  return text;
}

static void print_size(FILE *stream, uint64_t bytes) {
  static const char *const units[] = {"GiB", "MB", "KB"};
  char text[64];
  for (unsigned i = 0; i < 3; i++) {
    uint64_t factor = UINT64_C(1) << (30 - 10 * i);
    if (bytes < factor) continue;
    fprintf(stream, "%s%s\n", rounded((double)bytes / (double)factor, text), units[i]);
    return;
  }
  fprintf(stream, "%" PRIu64 ".0B\n", bytes);
}

static int by_first_event(const void *a, const void *b) {
  const tsr_profile_group *x = a, *y = b;
  if (x->first_event != y->first_event) return x->first_event < y->first_event ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  if (x->allocations != y->allocations) return x->allocations < y->allocations ? 1 : -1;
  return strcmp(x->name, y->name);
}

static void print_groups(FILE *stream, tsr_profile_by by, const tsr_profile_device *device) {
  for (size_t i = 0; device && i < device->group_count; i++) {
    const char *name = device->groups[i].name;
    if (by == TSR_PROFILE_BY_MOSAIC_CATEGORY) {
      fputs("AllocationType.", stream);
      for (; *name; name++) fputc(toupper((unsigned char)*name), stream);
    } else if (cli_mosaic_is_shown()) {
      cli_put_clean(stream, name);
    } else {
      fputs(name, stream);
    }
    fputs(": ", stream);
    print_size(stream, device->groups[i].bytes);
  }
}

static int print(cli_session *session, const tsr_profile *profile) {
  static const struct {
    tsr_profile_by by;
    const char *heading;
  } lists[] = {{TSR_PROFILE_BY_MOSAIC_CATEGORY, "Category Profile:"},
               {TSR_PROFILE_BY_ANNOTATION, "Annotation Profile:"},
               {TSR_PROFILE_BY_COMPILE_CONTEXT, "Compile Context Profile:"},
               {TSR_PROFILE_BY_RULES, "Custom Profile:"}};
  const tsr_profile_device *device = profile->device_count ? profile->devices : NULL;
  FILE *stream = cli_output_stream(&session->output);
  char text[64];
  if (!stream) return TSR_ERROR_WRITE;
  if (device && device->group_count)
    qsort(device->groups, device->group_count, sizeof *device->groups, by_first_event);
  fprintf(stream, "Memory Usage At Peak:\nTotal Allocated: %sGiB\n",
          rounded(device ? (double)device->peak_bytes / (1 << 30) : 0, text));
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    fprintf(stream, "%s\n", lists[i].heading);
    if (lists[i].by == profile->by) print_groups(stream, profile->by, device);
  }
  return 0;
}

/* ---- which device ---- */

/* The first that has a trace, otherwise the first; false without devices. Logs which others have
 * traces, because their memory is not in the answer. */
static bool choose_device(const tsr_snapshot *snapshot, uint32_t *device) {
  size_t count, traced = 0;
  const uint32_t *devices = tsr_snapshot_gpus(snapshot, &count);
  for (size_t i = count; i-- > 0;) {
    if (!tsr_snapshot_events(snapshot, devices[i]).count) continue;
    *device = devices[i];
    traced++;
  }
  if (!traced && count) *device = devices[0];
  if (traced && *device != 0)
    cli_mosaic_warn("device 0 has no trace; this is the profile of device %" PRIu32, *device);
  if (traced > 1)
    cli_mosaic_warn("%zu more device%s a trace; 'tessera profile' shows all", traced - 1,
                    traced == 2 ? " has" : "s have");
  return count > 0;
}

static void warn(const tsr_profile *profile) {
  for (size_t i = 0; i < profile->device_count; i++)
    for (size_t k = 0; k < profile->devices[i].warning_count; k++) {
      const tsr_warning *warning = &profile->devices[i].warnings[k];
      cli_mosaic_warn("%s (%" PRIu64 " times)", warning->message, warning->count);
    }
}

/* Mosaic leaves out events without a time, and prints zeros where none has one. */
static void warn_of_times(const tsr_snapshot *snapshot, uint32_t device) {
  const tsr_events events = tsr_snapshot_events(snapshot, device);
  uint64_t without = 0;
  for (uint64_t i = 0; i < events.count; i++) without += events.time_us[i] == TSR_TIME_NONE;
  if (without)
    cli_mosaic_warn("events without a time: Mosaic leaves them out, tessera counts them "
                    "(%" PRIu64 " times)",
                    without);
}

static void warn_of_rules(const tsr_rules *rules) {
  size_t count;
  const tsr_rule_problem *problems = tsr_rules_skipped(rules, &count);
  for (size_t i = 0; i < count; i++)
    cli_mosaic_warn("Invalid regex pattern '%s' for '%s': %s, at offset %zu; it is skipped",
                    problems[i].rule.pattern, problems[i].rule.name, problems[i].message,
                    problems[i].offset_bytes);
}

/* ---- the window of the plot ---- */

/* Whether this event starts an entry of Mosaic's plot. All events in one microsecond share an entry. */
static bool begins_entry(const tsr_events *events, uint64_t event, int64_t *last_us) {
  int64_t time_us = events->time_us[event];
  if (time_us == TSR_TIME_NONE || events->action[event] == TSR_ACTION_OOM || time_us == *last_us)
    return false;
  *last_us = time_us;
  return true;
}

/* Resolve an index as Python's slices do. */
static uint64_t place(const tsr_params *own, const char *name, uint64_t count, uint64_t absent) {
  int64_t index = tsr_params_integer(own, name);
  if (!tsr_params_has(own, name)) return absent;
  if (index >= 0) return (uint64_t)index < count ? (uint64_t)index : count;
  uint64_t back = UINT64_C(0) - (uint64_t)index;
  return back < count ? count - back : 0;
}

/* The range that the page shows at first. The page is lossless, so a sampling rate has no effect. */
static void choose_window(const tsr_events *events, const tsr_params *own, tsr_page_options *how) {
  uint64_t count = 0, at = 0, begin = events->count, end = events->count;
  int64_t last_us = TSR_TIME_NONE;
  if (!tsr_params_has(own, "plotter_start_idx") && !tsr_params_has(own, "plotter_end_idx")) return;
  for (uint64_t i = 0; i < events->count; i++) count += begins_entry(events, i, &last_us);
  uint64_t first = place(own, "plotter_start_idx", count, 0),
           last = place(own, "plotter_end_idx", count, count);
  last_us = TSR_TIME_NONE;
  for (uint64_t i = 0; i < events->count; i++) {
    if (!begins_entry(events, i, &last_us)) continue;
    if (at == first) begin = i;
    if (at++ == last) end = i;
  }
  if (end <= begin) cli_mosaic_warn("the plot's indexes select nothing; everything is shown");
  if (end <= begin) return;
  how->first_event = begin;
  how->event_count = end - begin;
}

/* Write the page, unless --out-path is empty. */
static int save_page(cli_session *session, const cli_input *input, const tsr_profile_options *how,
                     const tsr_query *query) {
  const char *path = tsr_params_text(session->options->own, "out_path");
  cli_page_from from = {.inputs = input, .count = 1, .rules = how->rules, .query = query};
  if (!path) path = session->options->command->default_output;
  if (!*path) return 0;
  from.options.by = cli_page_grouping(how->by);
  from.options.is_ordered = tsr_params_flag(session->options->own, "preserve_allocation_order");
  tsr_events events = {0};
  if (query->device_count) events = tsr_snapshot_events(input->snapshot, query->devices[0]);
  choose_window(&events, session->options->own, &from.options);
  return cli_page_save(session, &from, path);
}

/* ---- the command ---- */

static int read_options(const cli_session *session, tsr_profile_options *how, tsr_rules **rules) {
  const tsr_params *own = session->options->own;
  how->by = kinds[tsr_params_has(own, "profile") ? tsr_params_choice(own, "profile") : 0];
  const bool has_rules = tsr_params_text(own, "custom_profile") != NULL;
  if ((how->by == TSR_PROFILE_BY_RULES) != has_rules)
    return cli_usage_error(session->options->command,
                           has_rules ? "--custom-profile only valid with --profile=custom"
                                     : "--custom-profile required when --profile=custom");
  if (!tsr_params_text(own, "custom_profile")) return 0;
  int status = cli_rules_load(session, "custom-profile", tsr_params_text(own, "custom_profile"),
                              TSR_RULES_LENIENT, rules);
  how->rules = *rules;
  if (status == 0) warn_of_rules(*rules);
  return status;
}

static double seconds_now(void) {
  struct timespec now;
  return clock_gettime(CLOCK_MONOTONIC, &now) ? 0 : (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int cli_mosaic_profile(cli_session *session) {
  const tsr_params *own = session->options->own;
  const double start_s = seconds_now();
  cli_input input = {0};
  tsr_profile *profile = NULL;
  tsr_rules *rules = NULL;
  tsr_profile_options how = {0};
  uint32_t device;
  tsr_query query = {.devices = &device};
  int status = read_options(session, &how, &rules);
  if (status == 0)
    status = cli_mosaic_open(session, "snapshot", tsr_params_text(own, "snapshot"), &input);
  if (status == 0) {
    query.device_count = choose_device(input.snapshot, &device);
    status = tsr_profile_compute(input.study, &how, &query, &profile, &session->error);
  }
  if (status == 0) {
    warn(profile);
    if (query.device_count) warn_of_times(input.snapshot, device);
    status = print(session, profile);
  }
  if (status == 0) status = save_page(session, &input, &how, &query);
  if (status == 0)
    cli_mosaic_info("Profiling function took: %.16g seconds to run", seconds_now() - start_s);
  tsr_profile_free(profile);
  cli_close(&input);
  tsr_rules_free(rules);
  return status;
}
