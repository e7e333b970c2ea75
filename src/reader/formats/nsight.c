/* nsight.c - from the tables of an export of Nsight Systems to events.
 *
 *   CUDA_GPU_MEMORY_USAGE_EVENTS --> rows, sorted by time
 *        | correlationId, process          NVTX_EVENTS --> ranges
 *        v
 *   RUNTIME --> calls --> CALLCHAINS --> steps of stacks --> StringIds
 *
 * Only what belongs to a row is kept of the other tables, which may have millions of rows: calls and ranges are read once,
 * front to back, and names are looked up by their number.
 *
 * Several processes may have the same addresses, so bits that no address has are set to the position of the process. If
 * they share a device, the process becomes the outermost frame of each stack, so that every list of stacks shows
 * who has what. */
#include "formats/nsight.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/sort.h"
#include "formats/flat.h"
#include "formats/sqlite_file.h"

/* The file of a frame without one, as PyTorch writes it: such frames are not the user's code. */
static const char NO_FILE[] = "??";

static const char EVENTS_TABLE[] = "CUDA_GPU_MEMORY_USAGE_EVENTS";

/* Values of memKind. */
enum { PAGEABLE, PINNED, DEVICE, ARRAY, MANAGED, STATIC, MANAGED_STATIC };

/* An allocation or a free. */
typedef struct event {
  uint64_t address, bytes;
  int64_t start_ns;
  uint32_t process, device; /* an index of processes; a number or TSR_DEVICE_HOST */
  uint32_t call;            /* index of calls, or TSR_NONE */
  uint32_t name;            /* string id of a variable, or TSR_NONE */
  uint64_t stream;
  bool is_free;
} event;

/* A call of CUDA's interface that allocates or frees, which several rows may be of. */
typedef struct call {
  int64_t name, chain; /* numbers of StringIds and CALLCHAINS; 0: none */
  uint32_t stack;      /* id, once it is made; TSR_NONE before */
} call;

/* A step of a stack. */
typedef struct step {
  int64_t chain, depth, symbol, module;
} step;

typedef struct process {
  uint32_t pid;
  uint32_t frame;   /* id of the frame that names it, or TSR_NONE */
  uint32_t says;    /* string id of the same name, or TSR_NONE */
  tsr__map devices; /* those that it has allocations on */
} process;

/* A device of a process, for ranges. */
typedef struct place {
  uint32_t process, device;
} place;

/* One end of a range. */
typedef struct range_end {
  int64_t time_ns;
  uint32_t name, process; /* string id; index */
  bool is_start;
} range_end;

typedef struct nsight {
  tsr__assembler *assembler;
  tsr__builder *builder;
  tsr__access access;
  tsr__sqlite db;
  tsr_error *error;
  TSR__VECTOR(event) events;
  TSR__VECTOR(call) calls;
  tsr__map call_of; /* process and correlation -> index of calls */
  TSR__VECTOR(step) steps;
  tsr__map chains; /* wanted -> index of its first step, once they are sorted */
  TSR__VECTOR(process) processes;
  tsr__map process_of; /* pid -> index */
  TSR__VECTOR(place) places;
  TSR__VECTOR(range_end) ends;
  TSR__VECTOR(uint32_t) frames; /* scratch */
  tsr__sqlite_table strings;
  bool has_strings;
  tsr__map string_of; /* number in StringIds -> string id */
  int64_t epoch_ns;
  bool has_kinds, has_cut_stacks;
  uint64_t allocations;
  uint64_t counted; /* rows since the memory was looked at */
} nsight;

/* ---- values ---- */

static int64_t integer_of(const tsr__sqlite_value *value, int64_t other) {
  return value->type == TSR__SQLITE_INTEGER ? value->integer : other;
}

static uint32_t pid_of(int64_t global) {
  return (uint32_t)((uint64_t)global / 0x1000000 % 0x1000000);
}

/* Every so often: does what is held keep to the limits? */
static int check_memory(nsight *n) {
  enum { ROWS_BETWEEN = 1 << 16 };
  if (++n->counted % ROWS_BETWEEN) return 0;
  uint64_t held = tsr__access_held(&n->access) + n->events.capacity * sizeof(event) +
                  n->calls.capacity * (sizeof(call) + 2 * sizeof(tsr__map_slot)) +
                  n->steps.capacity * sizeof(step) + n->ends.capacity * sizeof(range_end) +
                  n->string_of.count * 2 * sizeof(tsr__map_slot);
  return tsr__check_memory(n->assembler, held, n->access.source, 0, n->error);
}

static int read_process(nsight *n, uint32_t pid, uint32_t *out) {
  bool added;
  const uint64_t *index = tsr__map_put(&n->process_of, pid, n->processes.count, &added);
  if (!index) return tsr__fail_memory(n->error);
  *out = (uint32_t)*index;
  if (added &&
      !TSR__VECTOR_PUSH(&n->processes, (process){.pid = pid, .frame = TSR_NONE, .says = TSR_NONE}))
    return tsr__fail_memory(n->error);
  return 0;
}

/* A text of the database: its string id. */
static int read_text(nsight *n, const tsr__sqlite_value *value, uint32_t *out) {
  size_t size = value->size_bytes;
  if (size > n->assembler->limits.string_bytes) size = n->assembler->limits.string_bytes;
  *out = tsr__builder_string(n->builder, value->text, size);
  return *out == TSR_NONE ? tsr__fail_memory(n->error) : 0;
}

/* ---- tables that need not be there ---- */

/* Find a table and its columns. False if it is absent or lacks one of the first `needed` columns. */
static int find_table(nsight *n, const char *name, const char *const *names, int count, int needed,
                      tsr__sqlite_table *table, int *columns, bool *found) {
  int status = tsr__sqlite_find(&n->db, name, table, found, n->error);
  for (int i = 0; !status && *found && i < count; i++) {
    columns[i] = tsr__sqlite_column(table, names[i]);
    if (columns[i] < 0 && i < needed) *found = false;
  }
  return status;
}

/* A table that only adds names, stacks or ranges may be damaged: what it lacks is reported. */
static int forgive(nsight *n, int status) {
  if (status != TSR_ERROR_FORMAT) return status;
  tsr__builder_warn(n->builder, TSR__WARN_TABLES_UNREADABLE);
  return 0;
}

/* Scan a table with these columns, if it exists. */
static int scan_table(nsight *n, const char *name, const char *const *names, int count, int needed,
                      tsr__sqlite_visit *visit) {
  int columns[TSR__SQLITE_WANTED];
  tsr__sqlite_table table;
  bool found;
  int status = find_table(n, name, names, count, needed, &table, columns, &found);
  if (status || !found) return forgive(n, status);
  return forgive(n, tsr__sqlite_scan(&n->db, &table, columns, count, visit, n, n->error));
}

/* ---- names ---- */

typedef struct lookup {
  nsight *nsight;
  uint32_t id;
} lookup;

static int take_string(void *context, int64_t row, const tsr__sqlite_value *values,
                       tsr_error *error) {
  lookup *l = context;
  (void)row, (void)error;
  return values[0].type == TSR__SQLITE_TEXT ? read_text(l->nsight, &values[0], &l->id) : 0;
}

/* The string with a number of StringIds; that of an empty text if it is absent. */
static int find_string(nsight *n, int64_t number, uint32_t *out) {
  const uint64_t *known = tsr__map_find(&n->string_of, (uint64_t)number);
  lookup l = {n, TSR_NONE};
  int status = 0;
  *out = known ? (uint32_t)*known : TSR_NONE;
  if (known) return 0;
  if (n->has_strings) {
    int column = tsr__sqlite_column(&n->strings, "value");
    status = forgive(
        n, tsr__sqlite_seek(&n->db, &n->strings, number, &column, 1, take_string, &l, n->error));
  }
  if (!status && l.id == TSR_NONE) l.id = tsr__builder_text(n->builder, "");
  if (!status && (l.id == TSR_NONE || !tsr__map_put(&n->string_of, (uint64_t)number, l.id, NULL)))
    status = tsr__fail_memory(n->error);
  *out = l.id;
  return status ? status : check_memory(n);
}

/* ---- events ---- */

enum {
  START,
  BYTES,
  OPERATION,
  ADDRESS,
  PROCESS,
  DEVICE_ID,
  KIND,
  NAME,
  CORRELATION,
  STREAM,
  POOL
};
static const char *const EVENT_COLUMNS[] = {"start",
                                            "bytes",
                                            "memoryOperationType",
                                            "address",
                                            "globalPid",
                                            "deviceId",
                                            "memKind",
                                            "name",
                                            "correlationId",
                                            "streamId",
                                            "localMemoryPoolAddress"};
enum { EVENT_COLUMN_COUNT = sizeof EVENT_COLUMNS / sizeof *EVENT_COLUMNS, EVENT_NEEDED = 4 };

/* Where memory of a kind is counted, and what is to be said of it. */
static uint32_t device_of(nsight *n, int64_t kind, int64_t device, bool is_free) {
  if (kind == PINNED) return TSR_DEVICE_HOST;
  if (kind == PAGEABLE) return TSR_DEVICE_CPU;
  if (!is_free && (kind == MANAGED || kind == MANAGED_STATIC))
    tsr__builder_warn(n->builder, TSR__WARN_MANAGED);
  if (!is_free && (kind < DEVICE || kind > MANAGED_STATIC))
    tsr__builder_warn(n->builder, TSR__WARN_KINDS_MISSING);
  return (uint32_t)device;
}

/* The call with this correlation in a process, made if it is new; 0: there is no call. */
static int add_call(nsight *n, uint32_t pid, int64_t correlation, uint32_t *out) {
  uint64_t key = (uint64_t)pid << 32 | (uint32_t)correlation;
  bool added;
  *out = TSR_NONE;
  if (!correlation) return 0;
  const uint64_t *index = tsr__map_put(&n->call_of, key, n->calls.count, &added);
  if (!index) return tsr__fail_memory(n->error);
  *out = (uint32_t)*index;
  return !added || TSR__VECTOR_PUSH(&n->calls, (call){.stack = TSR_NONE})
             ? 0
             : tsr__fail_memory(n->error);
}

static int take_event(void *context, int64_t row, const tsr__sqlite_value *values,
                      tsr_error *error) {
  nsight *n = context;
  (void)row, (void)error;
  int64_t operation = integer_of(&values[OPERATION], -1);
  int64_t device = integer_of(&values[DEVICE_ID], 0);
  bool is_whole = values[START].type == TSR__SQLITE_INTEGER &&
                  values[BYTES].type == TSR__SQLITE_INTEGER &&
                  values[ADDRESS].type == TSR__SQLITE_INTEGER;
  if (!is_whole || operation < 0 || operation > 1 || device < 0 ||
      device >= n->assembler->limits.devices) {
    tsr__builder_warn(n->builder, TSR__WARN_ROWS_MALFORMED);
    return 0;
  }
  uint32_t pid = pid_of(integer_of(&values[PROCESS], 0));
  event e = {.address = (uint64_t)values[ADDRESS].integer,
             .bytes = (uint64_t)values[BYTES].integer,
             .start_ns = values[START].integer,
             .stream = (uint64_t)integer_of(&values[STREAM], 0),
             .name = TSR_NONE,
             .is_free = operation == 1};
  e.device = device_of(n, integer_of(&values[KIND], n->has_kinds ? -1 : DEVICE), device, e.is_free);
  if (!e.is_free && integer_of(&values[POOL], 0))
    tsr__builder_warn(n->builder, TSR__WARN_DRIVER_POOLS);
  int status = read_process(n, pid, &e.process);
  if (!status) status = add_call(n, pid, integer_of(&values[CORRELATION], 0), &e.call);
  if (!status && values[NAME].type == TSR__SQLITE_TEXT && values[NAME].size_bytes)
    status = read_text(n, &values[NAME], &e.name);
  if (status) return status;
  if (!TSR__VECTOR_PUSH(&n->events, e)) return tsr__fail_memory(n->error);
  n->allocations += !e.is_free;
  return check_memory(n);
}

static int by_time(const void *a, const void *b) {
  const event *x = a, *y = b;
  return x->start_ns < y->start_ns ? -1 : x->start_ns > y->start_ns;
}

static int read_events(nsight *n) {
  int columns[EVENT_COLUMN_COUNT];
  tsr__sqlite_table table;
  bool found;
  int status = tsr__sqlite_find(&n->db, EVENTS_TABLE, &table, &found, n->error);
  if (status) return status;
  if (!found)
    return tsr__fail(n->error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                     "an SQLite database without the table %s: not an export of Nsight Systems, or "
                     "recorded without --cuda-memory-usage=true",
                     EVENTS_TABLE);
  for (int i = 0; i < EVENT_COLUMN_COUNT; i++) {
    columns[i] = tsr__sqlite_column(&table, EVENT_COLUMNS[i]);
    if (columns[i] < 0 && i < EVENT_NEEDED)
      return tsr__fail(n->error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE, "the table %s has no column %s",
                       EVENTS_TABLE, EVENT_COLUMNS[i]);
  }
  n->has_kinds = columns[KIND] >= 0;
  status = tsr__sqlite_scan(&n->db, &table, columns, EVENT_COLUMN_COUNT, take_event, n, n->error);
  if (status) return status;
  if (!n->has_kinds) tsr__builder_warn_times(n->builder, TSR__WARN_KINDS_MISSING, n->allocations);
  tsr__sort(n->events.items, n->events.count, sizeof *n->events.items, by_time);
  return 0;
}

/* ---- calls and their stacks ---- */

enum { CALL_CORRELATION, CALL_THREAD, CALL_NAME, CALL_CHAIN };

static int take_call(void *context, int64_t row, const tsr__sqlite_value *values,
                     tsr_error *error) {
  nsight *n = context;
  (void)row, (void)error;
  uint64_t correlation = (uint32_t)integer_of(&values[CALL_CORRELATION], 0);
  uint64_t key = (uint64_t)pid_of(integer_of(&values[CALL_THREAD], 0)) << 32 | correlation;
  const uint64_t *index = tsr__map_find(&n->call_of, key);
  if (!index) return 0;
  call *c = &n->calls.items[*index];
  c->name = integer_of(&values[CALL_NAME], 0);
  c->chain = integer_of(&values[CALL_CHAIN], 0);
  if (c->chain && !tsr__map_put(&n->chains, (uint64_t)c->chain, TSR_NONE, NULL))
    return tsr__fail_memory(n->error);
  return check_memory(n);
}

enum { STEP_CHAIN, STEP_DEPTH, STEP_SYMBOL, STEP_MODULE };

static int take_step(void *context, int64_t row, const tsr__sqlite_value *values,
                     tsr_error *error) {
  nsight *n = context;
  (void)row, (void)error;
  step s = {integer_of(&values[STEP_CHAIN], 0), integer_of(&values[STEP_DEPTH], 0),
            integer_of(&values[STEP_SYMBOL], 0), integer_of(&values[STEP_MODULE], 0)};
  if (!tsr__map_find(&n->chains, (uint64_t)s.chain)) return 0;
  if (!TSR__VECTOR_PUSH(&n->steps, s)) return tsr__fail_memory(n->error);
  return check_memory(n);
}

static int by_chain(const void *a, const void *b) {
  const step *x = a, *y = b;
  if (x->chain != y->chain) return x->chain < y->chain ? -1 : 1;
  return x->depth < y->depth ? -1 : x->depth > y->depth;
}

static int read_calls(nsight *n) {
  static const char *const call_columns[] = {"correlationId", "globalTid", "nameId", "callchainId"};
  static const char *const step_columns[] = {"id", "stackDepth", "symbol", "module"};
  int status = 0;
  if (n->calls.count)
    status = scan_table(n, "CUPTI_ACTIVITY_KIND_RUNTIME", call_columns, 4, 3, take_call);
  if (!status && n->chains.count)
    status = scan_table(n, "CUDA_CALLCHAINS", step_columns, 4, 3, take_step);
  if (status) return status;
  tsr__sort(n->steps.items, n->steps.count, sizeof *n->steps.items, by_chain);
  for (size_t i = n->steps.count; i--;)
    *tsr__map_find(&n->chains, (uint64_t)n->steps.items[i].chain) = i;
  return 0;
}

/* Append a frame to the stack being made. */
static int push_frame(nsight *n, uint32_t name, uint32_t file) {
  if (file == TSR_NONE) file = tsr__builder_text(n->builder, NO_FILE);
  uint32_t frame = tsr__builder_frame(n->builder, (tsr_frame){name, file, 0});
  if (frame == TSR_NONE || !TSR__VECTOR_PUSH(&n->frames, frame)) return tsr__fail_memory(n->error);
  return 0;
}

/* The steps of a chain. It is put together for each call, so one that is long for many calls is cut. */
static int push_chain(nsight *n, int64_t chain) {
  enum { FRAMES_MAX = 2048 };
  const uint64_t *first = tsr__map_find(&n->chains, (uint64_t)chain);
  int status = 0;
  if (!first || *first == TSR_NONE) return 0;
  for (size_t i = (size_t)*first; !status && i < n->steps.count && n->steps.items[i].chain == chain;
       i++) {
    uint32_t name, file;
    if (n->frames.count >= FRAMES_MAX) {
      n->has_cut_stacks = true;
      break;
    }
    status = find_string(n, n->steps.items[i].symbol, &name);
    if (!status) status = find_string(n, n->steps.items[i].module, &file);
    if (!status) status = push_frame(n, name, file);
  }
  return status;
}

/* The stack of an event: the variable, the function of CUDA, its callers, and the process. */
static int make_stack(nsight *n, const event *e, uint32_t *stack) {
  call *c = e->call == TSR_NONE ? NULL : &n->calls.items[e->call];
  uint32_t name, owner = n->processes.items[e->process].frame;
  int status = 0;
  *stack = c ? c->stack : TSR_NONE;
  if (*stack != TSR_NONE && e->name == TSR_NONE) return 0;
  n->frames.count = 0;
  if (e->name != TSR_NONE) status = push_frame(n, e->name, TSR_NONE);
  if (!status && c && c->name) {
    status = find_string(n, c->name, &name);
    if (!status) status = push_frame(n, name, TSR_NONE);
  }
  if (!status && c && c->chain) status = push_chain(n, c->chain);
  if (!status && owner != TSR_NONE && !TSR__VECTOR_PUSH(&n->frames, owner))
    status = tsr__fail_memory(n->error);
  if (status || !n->frames.count) return status;
  *stack = tsr__builder_stack(n->builder, n->frames.items, (uint32_t)n->frames.count);
  if (*stack == TSR_NONE) return tsr__fail_memory(n->error);
  if (c && e->name == TSR_NONE) c->stack = *stack;
  return check_memory(n);
}

/* ---- processes ---- */

/* Which devices each process has, and whether one device has several. */
static int place_processes(nsight *n, bool *is_shared) {
  tsr__map owners = {0}; /* device -> index of its first process */
  uint64_t sharing = 0;
  int status = 0;
  for (size_t i = 0; i < n->events.count && !status; i++) {
    const event *e = &n->events.items[i];
    bool added;
    if (e->is_free) continue;
    if (!tsr__map_put(&n->processes.items[e->process].devices, e->device, 1, &added))
      status = tsr__fail_memory(n->error);
    if (status || !added) continue;
    const uint64_t *owner = tsr__map_put(&owners, e->device, e->process, NULL);
    if (!owner || !TSR__VECTOR_PUSH(&n->places, (place){e->process, e->device}))
      status = tsr__fail_memory(n->error);
    else if (e->device != TSR_DEVICE_HOST)
      sharing += *owner != e->process;
  }
  tsr__map_release(&owners);
  *is_shared = sharing;
  return status;
}

enum { PROCESS_ID, PROCESS_NAME };

static int take_process(void *context, int64_t row, const tsr__sqlite_value *values,
                        tsr_error *error) {
  enum { NAME_BYTES_MAX = 100 };
  nsight *n = context;
  char text[160];
  (void)row, (void)error;
  uint32_t pid = pid_of(integer_of(&values[PROCESS_ID], 0));
  const uint64_t *index = tsr__map_find(&n->process_of, pid);
  if (!index || values[PROCESS_NAME].type != TSR__SQLITE_TEXT) return 0;
  const char *name = values[PROCESS_NAME].text, *end = name + values[PROCESS_NAME].size_bytes;
  for (const char *at = name; at < end; at++)
    if (*at == '/' && at + 1 < end) name = at + 1;
  if (end - name > NAME_BYTES_MAX)
    name = end - NAME_BYTES_MAX; /* the end of it, in whole characters */
  while (name < end && ((unsigned char)*name & 0xc0) == 0x80) name++;
  (void)snprintf(text, sizeof text, "process %" PRIu32 " (%.*s)", pid, (int)(end - name), name);
  tsr_frame frame = {.name = tsr__builder_text(n->builder, text),
                     .file = tsr__builder_text(n->builder, NO_FILE)};
  n->processes.items[*index].frame = tsr__builder_frame(n->builder, frame);
  n->processes.items[*index].says = frame.name;
  return n->processes.items[*index].frame == TSR_NONE ? tsr__fail_memory(n->error) : 0;
}

/* Name the processes, if they share a device. */
static int name_processes(nsight *n) {
  static const char *const columns[] = {"globalPid", "name"};
  bool is_shared;
  int status = place_processes(n, &is_shared);
  if (status || !is_shared) return status;
  tsr__builder_warn_times(n->builder, TSR__WARN_PROCESSES, n->processes.count);
  status = scan_table(n, "PROCESSES", columns, 2, 2, take_process);
  for (size_t i = 0; i < n->processes.count && !status; i++) {
    process *p = &n->processes.items[i];
    char text[32];
    if (p->frame != TSR_NONE) continue;
    (void)snprintf(text, sizeof text, "process %" PRIu32, p->pid);
    tsr_frame frame = {.name = tsr__builder_text(n->builder, text),
                       .file = tsr__builder_text(n->builder, NO_FILE)};
    p->frame = tsr__builder_frame(n->builder, frame);
    p->says = frame.name;
    if (p->frame == TSR_NONE) status = tsr__fail_memory(n->error);
  }
  return status;
}

/* ---- ranges ---- */

enum { RANGE_START, RANGE_END, RANGE_THREAD, RANGE_TEXT, RANGE_TEXT_ID, RANGE_TYPE };
enum { PUSH_POP_RANGE = 59, START_END_RANGE = 60 }; /* of ENUM_NSYS_EVENT_TYPE */

static int take_range(void *context, int64_t row, const tsr__sqlite_value *values,
                      tsr_error *error) {
  nsight *n = context;
  uint32_t name;
  (void)row, (void)error;
  int64_t type = integer_of(&values[RANGE_TYPE], PUSH_POP_RANGE);
  if (type != PUSH_POP_RANGE && type != START_END_RANGE) return 0;
  const uint64_t *index =
      tsr__map_find(&n->process_of, pid_of(integer_of(&values[RANGE_THREAD], 0)));
  if (!index || values[RANGE_START].type != TSR__SQLITE_INTEGER) return 0;
  int status = values[RANGE_TEXT].type == TSR__SQLITE_TEXT
                   ? read_text(n, &values[RANGE_TEXT], &name)
                   : find_string(n, integer_of(&values[RANGE_TEXT_ID], 0), &name);
  if (status) return status;
  range_end start = {values[RANGE_START].integer, name, (uint32_t)*index, true};
  range_end end = {values[RANGE_END].integer, name, (uint32_t)*index, false};
  bool is_closed = values[RANGE_END].type == TSR__SQLITE_INTEGER && end.time_ns >= start.time_ns;
  if (!TSR__VECTOR_PUSH(&n->ends, start) || (is_closed && !TSR__VECTOR_PUSH(&n->ends, end)))
    return tsr__fail_memory(n->error);
  return check_memory(n);
}

static int by_end(const void *a, const void *b) {
  const range_end *x = a, *y = b;
  if (x->process != y->process) return x->process < y->process ? -1 : 1;
  return x->time_ns < y->time_ns ? -1 : x->time_ns > y->time_ns;
}

static int64_t time_us(const nsight *n, int64_t time_ns) {
  uint64_t sum = (uint64_t)time_ns + (uint64_t)n->epoch_ns;
  int64_t whole = (int64_t)sum;
  return whole / 1000 - (whole % 1000 < 0);
}

/* The ranges of a process, as those of a device. `first` is by process. */
static int add_ranges(nsight *n, const place *p, const size_t *first) {
  for (size_t i = first[p->process]; i < first[p->process + 1]; i++) {
    const range_end *e = &n->ends.items[i];
    if (!tsr__builder_annotation_of(n->builder, p->device, time_us(n, e->time_ns), e->name,
                                    e->is_start))
      return tsr__fail_memory(n->error);
    int status = check_memory(n);
    if (status) return status;
  }
  return 0;
}

/* Ranges of a process are ranges of each device that it allocates on. */
static int read_ranges(nsight *n) {
  static const char *const columns[] = {"start", "end", "globalTid", "text", "textId", "eventType"};
  int status = scan_table(n, "NVTX_EVENTS", columns, 6, 3, take_range);
  if (status) return status;
  tsr__sort(n->ends.items, n->ends.count, sizeof *n->ends.items, by_end);
  size_t *first = TSR__NEW_ARRAY(size_t, n->processes.count + 1);
  if (!first) return tsr__fail_memory(n->error);
  for (size_t i = 0; i < n->ends.count; i++) first[n->ends.items[i].process + 1]++;
  for (size_t i = 0; i < n->processes.count; i++) first[i + 1] += first[i];
  for (size_t k = 0; !status && k < n->places.count; k++)
    if (n->places.items[k].device < TSR_DEVICE_CPU)
      status = add_ranges(n, &n->places.items[k], first);
  tsr__free(first);
  return status;
}

/* ---- all of it ---- */

static int take_epoch(void *context, int64_t row, const tsr__sqlite_value *values,
                      tsr_error *error) {
  nsight *n = context;
  (void)row, (void)error;
  n->epoch_ns = integer_of(&values[0], 0);
  return 0;
}

/* Addresses have 57 bits at most, and 48 in practice; the rest distinguishes processes. */
static uint64_t own_address(const event *e) {
  uint64_t low = e->process % 128, high = e->process / 128;
  return e->address ^ low << 57 ^ high << 48;
}

static int add_rows(nsight *n, tsr__flat *flat) {
  for (size_t i = 0; i < n->events.count; i++) {
    const event *e = &n->events.items[i];
    tsr__flat_row row = {.time_ns = (int64_t)((uint64_t)e->start_ns + (uint64_t)n->epoch_ns),
                         .address = own_address(e),
                         .bytes = e->bytes,
                         .allocated_bytes = TSR__FLAT_UNKNOWN,
                         .reserved_bytes = TSR__FLAT_UNKNOWN,
                         .device = e->device,
                         .stream = e->stream,
                         .says = n->processes.items[e->process].says,
                         .kind = e->is_free ? TSR__FLAT_FREE : TSR__FLAT_ALLOC};
    int status = make_stack(n, e, &row.stack);
    if (status) return status;
    if (!tsr__flat_add(flat, &row)) return tsr__fail_memory(n->error);
  }
  tsr__builder_warn_times(n->builder, TSR__WARN_TABLES_UNREADABLE, n->has_cut_stacks);
  tsr__builder_warn_times(n->builder, TSR__WARN_DRIVER_ONLY, n->allocations);
  return 0;
}

static int read_database(nsight *n) {
  static const char *const epoch[] = {"utcEpochNs"};
  bool found = false;
  int status = tsr__sqlite_open(&n->db, &n->access, n->error);
  if (!status) status = read_events(n);
  if (!status)
    status = forgive(n, tsr__sqlite_find(&n->db, "StringIds", &n->strings, &found, n->error));
  n->has_strings = !status && found && n->strings.key >= 0;
  if (!status) status = scan_table(n, "TARGET_INFO_SESSION_START_TIME", epoch, 1, 1, take_epoch);
  if (!status) status = read_calls(n);
  if (!status) status = name_processes(n);
  if (!status) status = read_ranges(n);
  if (!status) tsr__builder_warn_times(n->builder, TSR__WARN_LOG_UNREAD, n->db.has_log);
  return status;
}

static void release(nsight *n) {
  for (size_t i = 0; i < n->processes.count; i++) tsr__map_release(&n->processes.items[i].devices);
  TSR__VECTOR_FREE(&n->events);
  TSR__VECTOR_FREE(&n->calls);
  TSR__VECTOR_FREE(&n->steps);
  TSR__VECTOR_FREE(&n->processes);
  TSR__VECTOR_FREE(&n->places);
  TSR__VECTOR_FREE(&n->ends);
  TSR__VECTOR_FREE(&n->frames);
  tsr__map_release(&n->call_of);
  tsr__map_release(&n->chains);
  tsr__map_release(&n->process_of);
  tsr__map_release(&n->string_of);
  tsr__sqlite_release(&n->db);
  tsr__access_release(&n->access);
}

int tsr__nsight_read(tsr__input *source, tsr__assembler *assembler, const tsr_open_options *options,
                     uint64_t total_bytes, tsr_error *error) {
  tsr_error why = {0}; /* also of what is forgiven, which the caller must not see */
  nsight n = {.assembler = assembler, .builder = assembler->builder, .error = &why};
  tsr__flat flat;
  (void)options, (void)total_bytes;
  tsr__flat_init(&flat, n.builder);
  tsr__builder_record(n.builder, "nsight");
  int status = tsr__access_open(&n.access, source, assembler->limits.memory_bytes / 4, &why);
  if (!status) status = read_database(&n);
  if (!status) status = add_rows(&n, &flat);
  release(&n);
  if (!status) status = tsr__flat_finish(&flat, &why);
  if (!status) status = tsr__builder_lay_out(assembler->builder, &why);
  tsr__flat_release(&flat);
  if (status && error) *error = why;
  return status;
}
