/* Tests of snapshot/pickle.h: one snapshot in every dialect, and what else pickles are made of. */
#include "formats/pickle.h"

#include "pickle_support.h"
#include "snapshot_support.h"

static const int DIALECTS[] = {0, 1, 2, 3, 4, 5, CPP};
enum { DIALECT_COUNT = sizeof DIALECTS / sizeof *DIALECTS };

/* ---- one snapshot, spelled ---- */

/* What is to be written, and how its stacks are shared. */
typedef struct wanted {
  int protocol;
  size_t event_count;
  bool shares_lists; /* equal stacks are one list; else lists of shared frames, one an event */
  bool has_empty_batches;
} wanted;

/* Slots of the frames and stacks that were written already. */
typedef struct written {
  uint32_t frames[3], stacks[3];
  bool has_frame[3], has_stack[3];
} written;

static void spell_frame(pickler *p, written *s, size_t index) {
  static const char *const names[] = {"forward", "main", "<module>"};
  if (s->has_frame[index]) {
    pickle_get(p, s->frames[index]);
    return;
  }
  uint32_t slot = pickle_begin(p, 'd', 3);
  pickle_next(p);
  pickle_text(p, "name");
  pickle_text(p, names[index]);
  pickle_next(p);
  pickle_text(p, "filename");
  pickle_text(p, "/work/train.py");
  pickle_next(p);
  pickle_text(p, "line");
  pickle_int(p, 10 + (int64_t)index);
  uint32_t cpp_slot = pickle_end_named(p, true);
  s->frames[index] = p->protocol == CPP ? cpp_slot : slot;
  s->has_frame[index] = true;
}

/* Stack number `index` has the frames from there to the last. */
static void spell_stack(pickler *p, const wanted *plan, written *s, size_t index) {
  if (plan->shares_lists && s->has_stack[index]) {
    pickle_get(p, s->stacks[index]);
    return;
  }
  uint32_t slot = pickle_begin(p, 'l', 3 - index);
  for (size_t i = index; i < 3; i++) {
    pickle_next(p);
    spell_frame(p, s, i);
  }
  uint32_t cpp_slot = pickle_end_named(p, plan->shares_lists);
  s->stacks[index] = p->protocol == CPP ? cpp_slot : slot;
  s->has_stack[index] = true;
}

static void spell_event(pickler *p, const wanted *plan, written *s, size_t index) {
  static const char *const actions[] = {"alloc", "free_requested", "free_completed"};
  (void)pickle_begin(p, 'd', index % 5 == 4 ? 8 : 9);
  pickle_next(p);
  pickle_text(p, "action");
  pickle_text(p, actions[index % 3]);
  pickle_next(p);
  pickle_text(p, "addr");
  pickle_int(p, INT64_C(0x7f0000000000) + (int64_t)(index / 3) * 512);
  pickle_next(p);
  pickle_text(p, "size");
  pickle_int(p, (int64_t)(index % 700) * 100);
  pickle_next(p);
  pickle_text(p, "stream");
  pickle_int(p, index % 7 == 6 ? INT64_C(94000000000000) : 0);
  pickle_next(p);
  pickle_text(p, "time_us");
  pickle_int(p, INT64_C(1700000000000000) + (int64_t)index);
  pickle_next(p);
  pickle_text(p, "compile_context");
  pickle_text(p, "N/A");
  pickle_next(p);
  pickle_text(p, "user_metadata");
  pickle_text(p, index % 11 == 10 ? "step" : "");
  pickle_next(p);
  pickle_text(p, "pool_id");
  pickle_pair(p, 0, index % 13 == 12);
  if (index % 5 != 4) {
    pickle_next(p);
    pickle_text(p, "frames");
    spell_stack(p, plan, s, index % 3);
  }
  pickle_end(p);
}

static void spell_block(pickler *p, const wanted *plan, written *s, size_t index) {
  (void)pickle_begin(p, 'd', 5);
  pickle_next(p);
  pickle_text(p, "address");
  pickle_int(p, INT64_C(0x7f0000000000) + (int64_t)index * 4096);
  pickle_next(p);
  pickle_text(p, "size");
  pickle_int(p, 4096);
  pickle_next(p);
  pickle_text(p, "requested_size");
  pickle_int(p, index ? 0 : 4000);
  pickle_next(p);
  pickle_text(p, "state");
  pickle_text(p, index ? "inactive" : "active_allocated");
  pickle_next(p);
  pickle_text(p, "frames");
  spell_stack(p, plan, s, index);
  pickle_end(p);
}

static void spell_segment(pickler *p, const wanted *plan, written *s) {
  (void)pickle_begin(p, 'd', 7);
  pickle_next(p);
  pickle_text(p, "device");
  pickle_int(p, 0);
  pickle_next(p);
  pickle_text(p, "address");
  pickle_int(p, INT64_C(0x7f0000000000));
  pickle_next(p);
  pickle_text(p, "total_size");
  pickle_int(p, 8192);
  pickle_next(p);
  pickle_text(p, "is_expandable");
  pickle_bool(p, true);
  pickle_next(p);
  pickle_text(p, "segment_pool_id");
  pickle_pair(p, 0, 1);
  pickle_next(p);
  pickle_text(p, "frames");
  spell_stack(p, plan, s, 2);
  pickle_next(p);
  pickle_text(p, "blocks");
  (void)pickle_begin(p, 'l', 2);
  for (size_t i = 0; i < 2; i++) {
    pickle_next(p);
    spell_block(p, plan, s, i);
  }
  pickle_end(p);
  pickle_end(p);
}

static void spell_settings(pickler *p) {
  (void)pickle_begin(p, 'd', 3);
  pickle_next(p);
  pickle_text(p, "max_split_size");
  pickle_int(p, -1);
  pickle_next(p);
  pickle_text(p, "garbage_collection_threshold");
  pickle_real(p, 0.5);
  pickle_next(p);
  pickle_text(p, "none");
  pickle_op(p, 'N');
  pickle_end(p);
}

static tsr__buffer spell(const wanted *plan) {
  pickler p = pickle_start(plan->protocol);
  written s = {.has_frame = {false}};
  p.has_empty_batches = plan->has_empty_batches;
  (void)pickle_begin(&p, 'd', 3);
  pickle_next(&p);
  pickle_text(&p, "segments");
  (void)pickle_begin(&p, 'l', 1);
  pickle_next(&p);
  spell_segment(&p, plan, &s);
  pickle_end(&p);
  pickle_next(&p);
  pickle_text(&p, "device_traces");
  (void)pickle_begin(&p, 'l', 2);
  pickle_next(&p);
  (void)pickle_begin(&p, 'l', plan->event_count);
  for (size_t i = 0; i < plan->event_count; i++) {
    pickle_next(&p);
    spell_event(&p, plan, &s, i);
  }
  pickle_end(&p);
  pickle_next(&p);
  (void)pickle_begin(&p, 'l', 0);
  pickle_end(&p);
  pickle_end(&p);
  pickle_next(&p);
  pickle_text(&p, "allocator_settings");
  spell_settings(&p);
  pickle_end(&p);
  pickle_stop(&p);
  return p.out;
}

/* ---- reading ---- */

static tsr_snapshot *read_bytes(const void *data, size_t size, size_t chunk) {
  tsr_snapshot *snapshot = NULL;
  tsr_error error = {0};
  int status = read_in_chunks(tsr__pickle_read, data, size, chunk, NULL, &snapshot, &error);
  if (status) print_error("%s at %llu\n", error.message, (unsigned long long)error.offset);
  assert_int_equal(status, 0);
  return snapshot;
}

static tsr_snapshot *read_plan(const wanted *plan, size_t chunk) {
  tsr__buffer bytes = spell(plan);
  tsr_snapshot *snapshot = read_bytes(bytes.data, bytes.size, chunk);
  tsr__buffer_release(&bytes);
  return snapshot;
}

/* Bytes given as a text with zeros in it. */
#define READ(literal) read_bytes(literal, sizeof(literal) - 1, 0)

/* ---- dialects ---- */

static void every_dialect_says_the_same(void **state) {
  (void)state;
  for (int shares = 0; shares < 2; shares++) {
    wanted first = {.protocol = 4, .event_count = 300, .shares_lists = shares};
    tsr_snapshot *expected = read_plan(&first, 0);
    assert_int_equal(expected->events.count, 300);
    assert_int_equal(expected->stacks.count, 3);
    assert_int_equal(expected->frames.count, 3);
    for (size_t i = 0; i < DIALECT_COUNT; i++) {
      wanted other = first;
      other.protocol = DIALECTS[i];
      tsr_snapshot *snapshot = read_plan(&other, 0);
      assert_same(expected, snapshot);
      tsr_snapshot_free(snapshot);
    }
    tsr_snapshot_free(expected);
  }
}

static void both_ways_of_sharing_say_the_same(void **state) {
  (void)state;
  wanted plan = {.protocol = 4, .event_count = 300, .shares_lists = true};
  tsr_snapshot *shared = read_plan(&plan, 0);
  plan.shares_lists = false;
  tsr_snapshot *own = read_plan(&plan, 0);
  assert_same(shared, own);
  tsr_snapshot_free(shared);
  tsr_snapshot_free(own);
}

static void events_are_what_was_written(void **state) {
  (void)state;
  wanted plan = {.protocol = 4, .event_count = 14};
  tsr_snapshot *snapshot = read_plan(&plan, 0);
  tsr_events events = tsr_snapshot_events(snapshot, 0);
  size_t count;
  assert_int_equal(events.count, 14);
  assert_int_equal(events.action[2], TSR_ACTION_FREE_COMPLETED);
  assert_true(events.addr[5] == UINT64_C(0x7f0000000200));
  assert_int_equal(events.size[13], 1300);
  assert_true(events.time_us[13] == INT64_C(1700000000000013));
  assert_int_equal(tsr_snapshot_stack(snapshot, events.stack[0]).depth, 3);
  assert_int_equal(tsr_snapshot_stack(snapshot, events.stack[1]).depth, 2);
  assert_int_equal(events.stack[4], TSR_NONE);
  assert_true(tsr_snapshot_stream(snapshot, tsr_id_at(events.stream, 6)) ==
              UINT64_C(94000000000000));
  assert_int_equal(tsr_snapshot_pool(snapshot, tsr_id_at(events.pool, 12)).second, 1);
  assert_text(snapshot, tsr_id_at(events.metadata, 10), "step");
  assert_text(snapshot, tsr_id_at(events.context, 0), "N/A");
  const tsr_segment *segments = tsr_snapshot_segments(snapshot, &count);
  assert_int_equal(count, 1);
  assert_true(segments[0].is_expandable);
  double threshold = 0;
  assert_true(tsr_snapshot_setting(snapshot, "garbage_collection_threshold", NULL, &threshold));
  assert_true(threshold > 0.4 && threshold < 0.6);
  tsr_snapshot_free(snapshot);
}

/* Through a window of a few bytes everything takes the plain loop; as a whole, most events are read
 * many at a time. */
static void any_window_reads_the_same(void **state) {
  (void)state;
  static const size_t chunks[] = {1, 2, 3, 7, 4096};
  for (size_t i = 0; i < DIALECT_COUNT; i++)
    for (int shares = 0; shares < 2; shares++) {
      wanted plan = {.protocol = DIALECTS[i], .event_count = 150, .shares_lists = shares};
      tsr_snapshot *whole = read_plan(&plan, 0);
      for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++) {
        tsr_snapshot *snapshot = read_plan(&plan, chunks[k]);
        assert_same(whole, snapshot);
        tsr_snapshot_free(snapshot);
      }
      tsr_snapshot_free(whole);
    }
}

static void batches_of_any_length(void **state) {
  (void)state;
  static const size_t counts[] = {0, 1, 2, 999, 1000, 1001, 1002, 2000, 3001};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    wanted cpp = {.protocol = CPP, .event_count = counts[i], .shares_lists = true};
    tsr_snapshot *expected = read_plan(&cpp, 0);
    assert_int_equal(expected->events.count, counts[i]);
    for (int protocol = 0; protocol <= 5; protocol++)
      for (int has_empty = 0; has_empty < 2; has_empty++) {
        wanted plan = cpp;
        plan.protocol = protocol;
        plan.has_empty_batches = has_empty;
        tsr_snapshot *snapshot = read_plan(&plan, 0);
        assert_same(expected, snapshot);
        tsr_snapshot_free(snapshot);
      }
    tsr_snapshot_free(expected);
  }
}

/* What is done to an event that was read with many others is done to it, not to its neighbour. */
static void opcodes_behind_an_event_find_it(void **state) {
  (void)state;
  static const char *const tails[] = {"0", "\x85", "2", "N\x86", "Na"};
  wanted plan = {.protocol = 4, .event_count = 40};
  tsr__buffer bytes = spell(&plan);
  char *last = NULL; /* the `u` of the last event, before `e` */
  for (size_t i = 0; i + 1 < bytes.size; i++)
    if (bytes.data[i] == 'u' && bytes.data[i + 1] == 'e') last = bytes.data + i + 1;
  assert_non_null(last);
  for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
    tsr__buffer changed = {0};
    tsr__buffer_append(&changed, bytes.data, (size_t)(last - bytes.data));
    tsr__buffer_text(&changed, tails[i]);
    tsr__buffer_append(&changed, last, bytes.size - (size_t)(last - bytes.data));
    tsr_snapshot *whole = read_bytes(changed.data, changed.size, 0);
    tsr_snapshot *narrow = read_bytes(changed.data, changed.size, 1);
    assert_same(whole, narrow);
    tsr_snapshot_free(whole);
    tsr_snapshot_free(narrow);
    tsr__buffer_release(&changed);
  }
  tsr__buffer_release(&bytes);
}

/* ---- every prefix ---- */

static void any_prefix_is_answered(void **state) {
  (void)state;
  for (size_t i = 0; i < DIALECT_COUNT; i++) {
    wanted plan = {.protocol = DIALECTS[i], .event_count = 12, .shares_lists = true};
    tsr__buffer bytes = spell(&plan);
    tsr_snapshot *whole = read_bytes(bytes.data, bytes.size, 0);
    size_t answered = 0;
    for (size_t size = 0; size < bytes.size; size++) {
      tsr_snapshot *snapshot = NULL;
      tsr_error error = {0};
      int status = read_in_chunks(tsr__pickle_read, bytes.data, size, 0, NULL, &snapshot, &error);
      if (status) {
        assert_int_equal(status, TSR_ERROR_FORMAT);
        assert_int_equal(error.offset, size);
        assert_non_null(strstr(error.message, "is truncated"));
        continue;
      }
      answered++;
      assert_int_equal(warned(snapshot, "truncated"), 1);
      assert_true(snapshot->events.count <= whole->events.count);
      uint64_t count = snapshot->device_traces.count ? snapshot->device_traces.items[0].count : 0;
      ASSERT_SAME_TABLE(&snapshot->events, &whole->events, addr, count);
      tsr_snapshot_free(snapshot);
    }
    assert_true(answered > bytes.size / 2);
    tsr_snapshot_free(whole);
    tsr__buffer_release(&bytes);
  }
}

static const char *truncated_text(const tsr_snapshot *snapshot) {
  size_t count;
  const tsr_warning *warnings = tsr_snapshot_warnings(snapshot, &count);
  assert_true(count > 0);
  assert_string_equal(warnings[0].code, "truncated");
  return warnings[0].message;
}

static void what_is_missing_is_said(void **state) {
  (void)state;
#define SEGMENTS "X\x08\0\0\0segments]"
#define TRACES   "X\x0d\0\0\0device_traces]"
#define SEGMENT  "(}(X\x0a\0\0\0total_sizeK\1X\6\0\0\0blocks]u"
#define CASE(pickle, says) \
  { pickle, sizeof(pickle) - 1, says }
  static const struct {
    const char *pickle;
    size_t size;
    const char *says;
  } cases[] = {
      CASE("\x80\x02}(" SEGMENTS SEGMENT, "1 segment was read; the traces after them are missing"),
      CASE("\x80\x02]" SEGMENT, "1 segment was read; the rest is missing"),
      CASE("\x80\x02}(" TRACES "(](}(X\6\0\0\0actionX\5\0\0\0allocX\4\0\0\0sizeK\1u",
           "the trace of device 0 was read up to event 0; the segments after it are missing"),
      CASE("\x80\x02}(" SEGMENTS TRACES "(](", "no event of a trace was read; all segments were"),
      CASE("\x80\x02}(" SEGMENTS TRACES "X\1\0\0\0a](",
           "segments and traces were read; the rest is missing"),
      CASE("\x80\x02}(" TRACES "X\1\0\0\0a](",
           "traces were read; the segments after them are missing"),
  };
#undef CASE
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr_snapshot *snapshot = read_bytes(cases[i].pickle, cases[i].size, 0);
    const char *message = truncated_text(snapshot);
    if (!strstr(message, cases[i].says)) print_error("%s\n%s\n", cases[i].says, message);
    assert_non_null(strstr(message, cases[i].says));
    tsr_snapshot_free(snapshot);
  }
}

/* ---- older layouts ---- */

/* PyTorch 1.13 and 2.0: a bare list, and blocks whose history has what they hold. */
static void histories_stand_for_stacks(void **state) {
  (void)state;
  tsr_snapshot *snapshot = READ(
      "\x80\x02](}(X\x0a\0\0\0total_sizeM\0\4X\6\0\0\0deviceK\2X\6\0\0\0blocks](}("
      "X\4\0\0\0sizeM\0\2"
      "X\5\0\0\0stateX\x10\0\0\0active_allocatedX\7\0\0\0history](}(X\4\0\0\0addrK\7X\x09\0\0\0"
      "real_sizeM\1\1X\6\0\0\0frames](}(X\4\0\0\0nameX\1\0\0\0fX\4\0\0\0lineK\3ueueu}(X\4\0\0\0size"
      "M\0\2X\5\0\0\0stateX\x08\0\0\0inactiveueue.");
  size_t count;
  const tsr_segment *segments = tsr_snapshot_segments(snapshot, &count);
  assert_int_equal(count, 1);
  assert_int_equal(segments[0].device, 2);
  assert_int_equal(segments[0].block_count, 2);
  const tsr_block *blocks = tsr_snapshot_blocks(snapshot, &count);
  assert_int_equal(blocks[0].requested_bytes, 257);
  assert_int_equal(tsr_snapshot_stack(snapshot, blocks[0].stack).depth, 1);
  assert_int_equal(blocks[1].address, 512); /* runs on from the block before */
  assert_int_equal(blocks[1].stack, TSR_NONE);
  tsr_snapshot_free(snapshot);
}

/* ---- what other programs leave behind ---- */

/* The value under the only unknown key of a snapshot. */
static tsr__value loose_of(const tsr_snapshot *snapshot) {
  assert_int_equal(snapshot->extras.count, 1);
  return snapshot->extras.items[0].value;
}

#define LOOSE(value) "\x80\x02}(X\x08\0\0\0segments]X\1\0\0\0x" value "u."

static void plain_types_of_the_library_are_data(void **state) {
  (void)state;
  static const struct {
    const char *pickle;
    size_t size;
    tsr__loose_kind kind;
    uint32_t count;
  } cases[] = {
#define CASE(value, kind, count) {LOOSE(value), sizeof(LOOSE(value)) - 1, kind, count}
      CASE("ccollections\nOrderedDict\n)R(X\1\0\0\0aK\1u", TSR__LOOSE_DICT, 2),
      CASE("ccollections\ndefaultdict\nc__builtin__\nlist\n\x85RX\1\0\0\0aK\1s", TSR__LOOSE_DICT,
           2),
      CASE("ccollections\nCounter\n}X\1\0\0\0aK\1s\x85R", TSR__LOOSE_DICT, 2),
      CASE("ccollections\ndeque\n)K\5\x86R(K\1K\2e", TSR__LOOSE_LIST, 2),
      CASE("\x8f(K\1K\2K\3\x90", TSR__LOOSE_LIST, 3),
      CASE("(K\1K\2\x91", TSR__LOOSE_LIST, 2),
      CASE("c__builtin__\nset\n](K\1K\2e\x85R", TSR__LOOSE_LIST, 2),
      CASE("K\1\x85", TSR__LOOSE_TUPLE, 1),
      CASE(")", TSR__LOOSE_TUPLE, 0),
      CASE("ctorch.jit._pickle\nrestore_type_tag\n](K\1eX\1\0\0\0t\x86R", TSR__LOOSE_LIST, 1),
#undef CASE
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr_snapshot *snapshot = read_bytes(cases[i].pickle, cases[i].size, 0);
    tsr__value value = loose_of(snapshot);
    assert_int_equal(value.tag, TSR__LOOSE);
    assert_int_equal(snapshot->loose.items[value.id].kind, cases[i].kind);
    assert_int_equal(snapshot->loose.items[value.id].count, cases[i].count);
    assert_int_equal(warned(snapshot, "globals-ignored"), 0);
    tsr_snapshot_free(snapshot);
  }
}

#define DTYPE(name)        "cnumpy\ndtype\nX\2\0\0\0" name "\x89\x88\x87R"
#define SCALAR(dtype, raw) "cnumpy.core.multiarray\nscalar\n" dtype raw "\x86R"

static void numbers_of_numpy_are_numbers(void **state) {
  (void)state;
  tsr_snapshot *snapshot =
      READ(LOOSE(SCALAR(DTYPE("i8"), "C\x08\xfe\xff\xff\xff\xff\xff\xff\xff")));
  assert_int_equal(loose_of(snapshot).tag, TSR__INT);
  assert_true(loose_of(snapshot).i == -2);
  tsr_snapshot_free(snapshot);
  snapshot = READ(LOOSE(SCALAR(DTYPE("u4"), "C\x04\xff\xff\xff\xff")));
  assert_true(loose_of(snapshot).u == UINT32_MAX);
  tsr_snapshot_free(snapshot);
  snapshot = READ(LOOSE(SCALAR(DTYPE("f4"), "C\x04\0\0\xc0\x3f")));
  assert_int_equal(loose_of(snapshot).tag, TSR__FLOAT);
  assert_true(loose_of(snapshot).f > 1.4 && loose_of(snapshot).f < 1.6);
  tsr_snapshot_free(snapshot);
  snapshot = READ(LOOSE(SCALAR(DTYPE("b1"), "C\x01\x01")));
  assert_int_equal(loose_of(snapshot).tag, TSR__BOOL);
  tsr_snapshot_free(snapshot);
  /* The state of a dtype has its byte order; the other one is not decoded. */
  snapshot = READ(LOOSE(SCALAR(DTYPE("i8") "(K\3X\1\0\0\0<tb", "C\x08\x07\0\0\0\0\0\0\0")));
  assert_true(loose_of(snapshot).i == 7);
  tsr_snapshot_free(snapshot);
  snapshot = READ(LOOSE(SCALAR(DTYPE("i8") "(K\3X\1\0\0\0>tb", "C\x08\0\0\0\0\0\0\0\x07")));
  assert_int_equal(loose_of(snapshot).tag, TSR__OPAQUE);
  tsr_snapshot_free(snapshot);
  /* An object's bytes are another pickle, which nobody reads. */
  snapshot = READ(LOOSE(SCALAR(DTYPE("O8"), "C\x08\x80\x02]N.\0\0\0")));
  assert_int_equal(loose_of(snapshot).tag, TSR__OPAQUE);
  tsr_snapshot_free(snapshot);
}

/* Protocols 0 to 2 have no bytes: a call makes them from a text. */
#define ENCODED(raw, size) "c_codecs\nencode\nX" size "\0\0\0" raw "X\6\0\0\0latin1\x86R"

static void bytes_of_old_protocols(void **state) {
  (void)state;
  tsr_snapshot *snapshot = READ(LOOSE(ENCODED("\xc3\xbf\0a", "\4")));
  assert_int_equal(loose_of(snapshot).tag, TSR__BYTES);
  tsr_text bytes = tsr_snapshot_string(snapshot, loose_of(snapshot).id);
  assert_int_equal(bytes.size_bytes, 3);
  assert_memory_equal(bytes.data, "\xff\0a", 3);
  assert_int_equal(snapshot->tally[TSR__WARN_GLOBALS], 0);
  tsr_snapshot_free(snapshot);
  snapshot = READ(LOOSE(SCALAR(DTYPE("i2"), ENCODED("\xc3\xbe\xc3\xbf", "\4"))));
  assert_int_equal(loose_of(snapshot).tag, TSR__INT);
  assert_true(loose_of(snapshot).i == -2);
  tsr_snapshot_free(snapshot);
  snapshot = READ(LOOSE("c__builtin__\nbytes\n)R"));
  assert_int_equal(loose_of(snapshot).tag, TSR__BYTES);
  tsr_snapshot_free(snapshot);
  /* Not of Latin-1, or too long to be worth it. */
  snapshot = READ(LOOSE(ENCODED("\xe2\x82\xac", "\3")));
  assert_int_equal(loose_of(snapshot).tag, TSR__OPAQUE);
  tsr_snapshot_free(snapshot);
  snapshot = READ(LOOSE("c_codecs\nencode\nX\1\0\0\0aX\5\0\0\0utf-8\x86R"));
  assert_int_equal(loose_of(snapshot).tag, TSR__OPAQUE);
  tsr_snapshot_free(snapshot);
}

static void texts_of_numpy_are_texts(void **state) {
  (void)state;
  tsr_snapshot *snapshot = READ(LOOSE(SCALAR(DTYPE("U3"), "C\x0c"
                                                          "a\0\0\0"
                                                          "\xac\x20\0\0"
                                                          "\0\0\0\0")));
  assert_int_equal(loose_of(snapshot).tag, TSR__STRING);
  assert_text(snapshot, loose_of(snapshot).id, "a\xe2\x82\xac");
  tsr_snapshot_free(snapshot);
  snapshot = READ(LOOSE(SCALAR(DTYPE("U1"), "C\x04\xff\xff\xff\xff")));
  assert_int_equal(loose_of(snapshot).tag, TSR__OPAQUE);
  tsr_snapshot_free(snapshot);
}

static void paths_are_texts(void **state) {
  (void)state;
  tsr_snapshot *snapshot =
      READ(LOOSE("cpathlib\nPosixPath\n(X\1\0\0\0/X\4\0\0\0workX\4\0\0\0a.pytR"));
  assert_int_equal(loose_of(snapshot).tag, TSR__STRING);
  assert_text(snapshot, loose_of(snapshot).id, "/work/a.py");
  tsr_snapshot_free(snapshot);
}

static void texts_lose_their_escapes(void **state) {
  (void)state;
  static const struct {
    const char *pickle, *text;
  } cases[] = {
      {"(dVsegments\n(lsVx\nS'a\\x41\\n\\'\\\\'\ns.", "aA\n'\\"},
      {"(dVsegments\n(lsVx\nS\"it's\"\ns.", "it's"},
      {"(dVsegments\n(lsVx\nVa\\u20ac\\U0001f600\xe9\ns.", "a\xe2\x82\xac\xf0\x9f\x98\x80\xc3\xa9"},
      {"(dVsegments\n(lsVx\nVa\\u20\\q\ns.", "a\\u20\\q"},
      {"(dVsegments\n(lsVx\nV\ns.", ""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr_snapshot *snapshot = read_bytes(cases[i].pickle, strlen(cases[i].pickle), 0);
    assert_text(snapshot, loose_of(snapshot).id, cases[i].text);
    tsr_snapshot_free(snapshot);
  }
}

static void integers_of_any_length(void **state) {
  (void)state;
  static const struct {
    const char *bytes;
    size_t size;
    uint32_t tag;
    uint64_t bits;
  } cases[] = {
      {"", 0, TSR__INT, 0},
      {"\x7f", 1, TSR__INT, 127},
      {"\x80", 1, TSR__INT, (uint64_t)-128},
      {"\xff\x00", 2, TSR__INT, 255},
      {"\0\0\0\0\0\0\0\x80", 8, TSR__INT, UINT64_C(1) << 63},
      {"\0\0\0\0\0\0\0\x80\0", 9, TSR__UINT, UINT64_C(1) << 63},
      {"\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0", 11, TSR__UINT, UINT64_MAX},
      {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 10, TSR__INT, UINT64_MAX},
      {"\0\0\0\0\0\0\0\0\1", 9, TSR__BIG, 0},
      {"\xff\xff\xff\xff\xff\xff\xff\x7f\xff", 9, TSR__BIG, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr__value value = tsr__pickle_long((const unsigned char *)cases[i].bytes, cases[i].size);
    assert_int_equal(value.tag, cases[i].tag);
    assert_true(value.u == cases[i].bits);
  }
}

/* ---- bounds ---- */

static void assert_limit(const char *pickle, size_t size, const tsr_limits *limits, uint64_t offset,
                         const char *reason) {
  for (size_t chunk = 0; chunk < 3; chunk++) {
    tsr_snapshot *untouched = NULL;
    tsr_error error = {0};
    int status = read_in_chunks(tsr__pickle_read, pickle, size, chunk, limits, &untouched, &error);
    assert_int_equal(status, TSR_ERROR_LIMIT);
    assert_non_null(strstr(error.message, reason));
    assert_int_equal(error.offset, offset);
    assert_null(untouched);
  }
}

static void limits_hold(void **state) {
  (void)state;
  static const char marks[] = "\x80\2((((.", values[] = "\x80\2NNNNN.",
                    lines[] = "\x80\2I1\nI2\nI3\n";
  static const char texts[] = "\x80\2X\4\0\0\0abcdX\5\0\0\0abcde", line[] = "\x80\2Vabcdef\n.";
  static const char lists[] = "\x80\2]]]]]]]]]]]]]]]]].";
  assert_limit(marks, sizeof marks - 1, &(tsr_limits){.nesting = 3}, 5, "nesting");
  assert_limit(values, sizeof values - 1, &(tsr_limits){.stack_values = 4}, 7, "stack_values");
  assert_limit(lines, sizeof lines - 1, &(tsr_limits){.stack_values = 2}, 11, "stack_values");
  assert_limit(texts, sizeof texts - 1, &(tsr_limits){.string_bytes = 4}, 16, "string_bytes");
  assert_limit(line, sizeof line - 1, &(tsr_limits){.string_bytes = 4}, 3, "string_bytes");
  assert_limit(line, sizeof line - 1, &(tsr_limits){.all_strings_bytes = 4}, 10,
               "all_strings_bytes");
  assert_limit(lists, sizeof lists - 1, &(tsr_limits){.loose_values = 16}, 19, "loose_values");
}

/* Values that no rule names are dropped, not refused, when there are too many of them. */
static void loose_values_are_dropped(void **state) {
  (void)state;
  static const char pickle[] = LOOSE("](K\1K\2K\3K\4K\5e");
  tsr_snapshot *snapshot = NULL;
  tsr_limits limits = {.loose_values = 4};
  tsr_error error = {0};
  int status =
      read_in_chunks(tsr__pickle_read, pickle, sizeof pickle - 1, 0, &limits, &snapshot, &error);
  assert_int_equal(status, 0);
  assert_int_equal(warned(snapshot, "values-dropped"), 1);
  assert_int_equal(loose_of(snapshot).tag, TSR__OPAQUE);
  tsr_snapshot_free(snapshot);
}

/* What is not a frame does not pile up: room for a few containers is enough for many. */
static void malformed_items_are_let_go(void **state) {
  (void)state;
  tsr__buffer bytes = {0};
  tsr_limits limits = {.loose_values = 64};
  tsr_snapshot *snapshot = NULL;
  tsr_error error = {0};
  static const char head[] = "\x80\2}(X\x0d\0\0\0device_traces](](", tail[] = "eeu.";
  static const char event[] = "}(X\6\0\0\0actionX\5\0\0\0allocX\6\0\0\0frames](}]}(K\1K\2u)eu";
  tsr__buffer_append(&bytes, head, sizeof head - 1);
  for (size_t i = 0; i < 1000; i++) tsr__buffer_append(&bytes, event, sizeof event - 1);
  tsr__buffer_append(&bytes, tail, sizeof tail - 1);
  assert_false(bytes.failed);
  int status =
      read_in_chunks(tsr__pickle_read, bytes.data, bytes.size, 0, &limits, &snapshot, &error);
  if (status) print_error("%s\n", error.message);
  assert_int_equal(status, 0);
  assert_int_equal(tsr_snapshot_events(snapshot, 0).count, 1000);
  assert_int_equal(warned(snapshot, "frames-malformed"), 4000);
  tsr_snapshot_free(snapshot);
  tsr__buffer_release(&bytes);
}

/* Memory in proportion to the input: empty traces cost more than the bytes that encode them. */
static void memory_is_bounded_by_the_input(void **state) {
  (void)state;
  tsr__buffer bytes = {0};
  tsr_limits limits = {.memory_base_bytes = 1 << 20, .memory_ratio = 2};
  tsr_snapshot *snapshot = NULL;
  tsr_error error = {0};
  tsr__buffer_text(&bytes, "\x80\2](");
  for (size_t i = 0; i < 1500000; i++) tsr__buffer_text(&bytes, "]");
  tsr__buffer_text(&bytes, "e.");
  assert_int_equal(
      read_in_chunks(tsr__pickle_read, bytes.data, bytes.size, 0, &limits, &snapshot, &error),
      TSR_ERROR_LIMIT);
  assert_non_null(strstr(error.message, "memory_ratio"));
  tsr__buffer_release(&bytes);
}

/* ---- repetition ---- */

/* Of a key that a dict has twice the last value counts, as in Python. */
static void the_last_of_equal_keys_counts(void **state) {
  (void)state;
  tsr_snapshot *snapshot =
      READ("\x80\2}(X\x0d\0\0\0device_traces](](}(X\6\0\0\0actionX\5\0\0\0alloc"
           "X\4\0\0\0sizeX\1\0\0\0xX\4\0\0\0sizeK\7ueeu.");
  assert_int_equal(tsr_snapshot_events(snapshot, 0).size[0], 7);
  assert_int_equal(snapshot->extras.count, 0);
  assert_int_equal(warned(snapshot, "values-dropped"), 1);
  tsr_snapshot_free(snapshot);
  snapshot = READ("\x80\2}(X\x08\0\0\0segments](}(X\x0a\0\0\0total_sizeK\1X\6\0\0\0blocks]ue"
                  "X\x08\0\0\0segments]u.");
  size_t count;
  (void)tsr_snapshot_segments(snapshot, &count);
  assert_int_equal(count, 0);
  tsr_snapshot_free(snapshot);
}

/* A segment that is refused leaves nothing behind that the next one would be taken to have. */
static void refused_segments_leave_nothing(void **state) {
  (void)state;
  tsr_snapshot *snapshot =
      READ("\x80\2}(X\x08\0\0\0segments](}(X\6\0\0\0deviceNX\x0a\0\0\0total_sizeX\1\0\0\0yu"
           "}(X\6\0\0\0deviceK\1X\x0a\0\0\0total_sizeK\2ueu.");
  size_t count;
  const tsr_segment *segments = tsr_snapshot_segments(snapshot, &count);
  assert_int_equal(count, 1);
  assert_int_equal(segments[0].device, 1);
  size_t extra_count;
  uint32_t origin = snapshot->segments_more.items[0].origin;
  (void)tsr__extras_of(snapshot, TSR__SEGMENT, origin, origin, &extra_count);
  assert_int_equal(extra_count, 0);
  assert_int_equal(warned(snapshot, "segments-malformed"), 1);
  tsr_snapshot_free(snapshot);
}

/* A list that an unknown key named first is still what it is where it belongs. */
static void lists_named_elsewhere_are_found(void **state) {
  (void)state;
  tsr_snapshot *snapshot = READ("\x80\2}(X\x0d\0\0\0device_traces](](}("
                                "X\6\0\0\0actionX\5\0\0\0allocX\2\0\0\0my]q\0(X\1\0\0\0f"
                                "eX\6\0\0\0framesh\0ueeu.");
  tsr_events events = tsr_snapshot_events(snapshot, 0);
  assert_int_equal(tsr_snapshot_stack(snapshot, events.stack[0]).depth, 1);
  assert_int_equal(warned(snapshot, "frames-malformed"), 0);
  tsr_snapshot_free(snapshot);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_dialect_says_the_same),
      cmocka_unit_test(both_ways_of_sharing_say_the_same),
      cmocka_unit_test(events_are_what_was_written),
      cmocka_unit_test(any_window_reads_the_same),
      cmocka_unit_test(batches_of_any_length),
      cmocka_unit_test(opcodes_behind_an_event_find_it),
      cmocka_unit_test(any_prefix_is_answered),
      cmocka_unit_test(what_is_missing_is_said),
      cmocka_unit_test(histories_stand_for_stacks),
      cmocka_unit_test(plain_types_of_the_library_are_data),
      cmocka_unit_test(numbers_of_numpy_are_numbers),
      cmocka_unit_test(bytes_of_old_protocols),
      cmocka_unit_test(texts_of_numpy_are_texts),
      cmocka_unit_test(paths_are_texts),
      cmocka_unit_test(texts_lose_their_escapes),
      cmocka_unit_test(integers_of_any_length),
      cmocka_unit_test(limits_hold),
      cmocka_unit_test(loose_values_are_dropped),
      cmocka_unit_test(malformed_items_are_let_go),
      cmocka_unit_test(memory_is_bounded_by_the_input),
      cmocka_unit_test(the_last_of_equal_keys_counts),
      cmocka_unit_test(refused_segments_leave_nothing),
      cmocka_unit_test(lists_named_elsewhere_are_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
