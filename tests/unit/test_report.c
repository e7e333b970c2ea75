/* test_report.c - the reports of info, peak and profile against golden texts, on a snapshot that is
 * a stub: the accessors below read a table of strings, frames and stacks. */
#include <string.h>

#include "base/buffer.h"
#include "emit/text.h"
#include "questions/reports.h"
#include "tessera/unstable/sidecar.h"
#include "test_support.h"

/* ---- The snapshot ---- */

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))
#define SITE            "/opt/lib/python3.11/site-packages/"

typedef struct stub_frame {
  const char *name, *file;
  uint64_t line;
} stub_frame;

struct tsr_snapshot {
  const stub_frame *frames;
  size_t frame_count;
  const tsr_stack *stacks;
  size_t stack_count;
  const tsr_warning *warnings;
  size_t warning_count;
};

static const stub_frame frames[] = {
    {"torch::unwind::unwind()", "??", 0},                                 /* 0 */
    {"c10::cuda::CUDACachingAllocator::malloc", "??", 0},                 /* 1 */
    {"forward", SITE "torch/nn/modules/linear.py", 116},                  /* 2 */
    {"forward", "/home/me/model.py", 382},                                /* 3 */
    {"step", "/home/me/train.py", 31},                                    /* 4 */
    {"<module>", "/home/me/train.py", 80},                                /* 5 */
    {"_start", "??", 0},                                                  /* 6 */
    {"forward", SITE "transformers/models/llama/modeling_llama.py", 120}, /* 7 */
    {"_call_impl", SITE "torch/nn/modules/module.py", 1511},              /* 8 */
    {"run\x1b[2J\n", "/tmp/\xED\xA0\xBD\xFF.py", TSR_LINE_UNKNOWN},       /* 9 */
    {"at::empty", "??", 0},                                               /* 10 */
    {"torch::autograd::Engine::thread_main", "engine.cpp", 7},            /* 11 */
    {"PyEval_EvalCode", "/usr/src/Python/ceval.c", 1134},                 /* 12 */
};

static const uint32_t plain_ids[] = {0, 1, 2, 3, 4, 5, 12, 6};
static const uint32_t layer_ids[] = {1, 2, 8, 7, 8, 4, 5};
static const uint32_t hostile_ids[] = {9};
static const uint32_t native_ids[] = {0, 1, 10, 11, 11, 6};
static const tsr_stack stacks[] = {{plain_ids, COUNT_OF(plain_ids)},
                                   {layer_ids, COUNT_OF(layer_ids)},
                                   {hostile_ids, COUNT_OF(hostile_ids)},
                                   {native_ids, COUNT_OF(native_ids)}};

static const tsr_warning warnings[] = {
    {"frees-without-alloc", 1438, "their allocation is older than the trace."}};

static const tsr_snapshot snapshot = {frames,           COUNT_OF(frames), stacks,
                                      COUNT_OF(stacks), warnings,         COUNT_OF(warnings)};
static const tsr_report_input input = {"run 3/snap\"shot.pickle", &snapshot};

/* String 2i is the name of frame i, 2i + 1 its file. */
tsr_text tsr_snapshot_string(const tsr_snapshot *from, uint32_t string) {
  if (string / 2 >= from->frame_count) return (tsr_text){0};
  const stub_frame *frame = &from->frames[string / 2];
  return tsr__text_of(string % 2 ? frame->file : frame->name);
}

tsr_frame tsr_snapshot_frame(const tsr_snapshot *from, uint32_t frame) {
  if (frame >= from->frame_count) return (tsr_frame){TSR_NONE, TSR_NONE, TSR_LINE_UNKNOWN};
  return (tsr_frame){2 * frame, 2 * frame + 1, from->frames[frame].line};
}

tsr_stack tsr_snapshot_stack(const tsr_snapshot *from, uint32_t stack) {
  return stack < from->stack_count ? from->stacks[stack] : (tsr_stack){0};
}

/* Nothing was recorded: only stacks are read. */
const uint32_t *tsr_snapshot_devices(const tsr_snapshot *from, size_t *count) {
  (void)from;
  *count = 0;
  return NULL;
}

tsr_events tsr_snapshot_events(const tsr_snapshot *from, uint32_t device) {
  (void)from, (void)device;
  return (tsr_events){0};
}

const tsr_annotation *tsr_snapshot_annotations(const tsr_snapshot *from, size_t *count) {
  (void)from;
  *count = 0;
  return NULL;
}

uint32_t tsr_snapshot_stack_count(const tsr_snapshot *from) {
  return (uint32_t)from->stack_count;
}

uint32_t tsr_snapshot_frame_count(const tsr_snapshot *from) {
  return (uint32_t)from->frame_count;
}

bool tsr__snapshot_is_flat(const tsr_snapshot *from);
bool tsr__snapshot_is_flat(const tsr_snapshot *from) {
  (void)from;
  return false;
}

const char *tsr_snapshot_format(const tsr_snapshot *from) {
  (void)from;
  return "gzip pickle";
}

uint64_t tsr_snapshot_input_bytes(const tsr_snapshot *from) {
  (void)from;
  return 47395635;
}

const tsr_warning *tsr_snapshot_warnings(const tsr_snapshot *from, size_t *count) {
  *count = from->warning_count;
  return from->warnings;
}

const char *tsr_snapshot_sidecar(const tsr_snapshot *from) {
  (void)from;
  return NULL;
}

tsr_text tsr_snapshot_action_name(const tsr_snapshot *from, uint32_t action) {
  (void)from;
  return tsr__text_of(action == TSR_ACTION_ALLOC ? "alloc" : "od\"d\x1b");
}

/* ---- Comparing ---- */

static int collect(void *context, const char *data, size_t size_bytes) {
  tsr__buffer_append(context, data, size_bytes);
  return 0;
}

static int refuse(void *context, const char *data, size_t size_bytes) {
  return (void)context, (void)data, (void)size_bytes, -1;
}

static void assert_report(tsr__buffer *out, const char *expected) {
  tsr__buffer_append(out, "", 1);
  assert_string_equal(out->data, expected);
  tsr__buffer_release(out);
}

static const tsr_report_options json = {.format = TSR_REPORT_JSON};
static const tsr_report_options quiet = {.quiet = true};

#define JSON_HEAD(command)                           \
  "{\n"                                              \
  "  \"schema\": \"tessera/1\",\n"                   \
  "  \"command\": \"" command "\",\n"                \
  "  \"inputs\": [\n"                                \
  "    {\n"                                          \
  "      \"path\": \"run 3/snap\\\"shot.pickle\",\n" \
  "      \"bytes\": 47395635,\n"                     \
  "      \"format\": \"gzip pickle\",\n"             \
  "      \"sidecar\": null\n"                        \
  "    }\n"                                          \
  "  ],\n"
#define JSON_TAIL                                                      \
  "  \"warnings\": [\n"                                                \
  "    {\n"                                                            \
  "      \"code\": \"frees-without-alloc\",\n"                         \
  "      \"count\": 1438,\n"                                           \
  "      \"message\": \"their allocation is older than the trace.\"\n" \
  "    }\n"                                                            \
  "  ]\n"                                                              \
  "}\n"
#define TEXT_TAIL \
  "\n"            \
  "warning: frees-without-alloc (1,438): their allocation is older than the trace.\n"

/* ---- info ---- */

static tsr_action_tally tallies[] = {{TSR_ACTION_ALLOC, 1500}, {99, 500}};
static tsr_info_device info_devices[] = {
    {.device = 0,
     .event_count = 2000,
     .actions = tallies,
     .action_count = 2,
     .segment_count = 12,
     .block_count = 345,
     .stack_count = 40,
     .frame_count = 90,
     .first_time_us = INT64_C(1783866822365713),
     .last_time_us = INT64_C(1783866825000000),
     .frees_without_alloc = 7,
     .end = {1000, 1024, 1536, 2097152}},
    {.device = 3, .first_time_us = TSR_TIME_NONE, .last_time_us = TSR_TIME_NONE},
};
static const tsr_info info = {.devices = info_devices, .device_count = 2};

static const char expected_info_text[] =
    "run 3/snap\"shot.pickle: gzip pickle, 45.20 MiB; 2 devices, 2,000 events.\n"
    "\n"
    "Device 0: 2,000 events over 2.63 s; 1.0 KiB allocated of 2.00 MiB reserved at the end.\n"
    "  action  events   share\n"
    "  alloc    1,500  75.0 %\n"
    "  od\"d?      500  25.0 %\n"
    "\n"
    "  segments                12\n"
    "  blocks                  345\n"
    "  distinct stacks         40\n"
    "  distinct frames         90\n"
    "  first event             2026-07-12 14:33:42.365713 UTC\n"
    "  last event              2026-07-12 14:33:45.000000 UTC\n"
    "  frees without an alloc  7\n"
    "  requested at the end    1000 B\n"
    "  allocated at the end    1.0 KiB\n"
    "  active at the end       1.5 KiB\n"
    "  reserved at the end     2.00 MiB\n"
    "\n"
    "Device 3: no events were recorded; no segments at the end.\n"
    "\n"
    "  segments              0\n"
    "  blocks                0\n"
    "  distinct stacks       0\n"
    "  distinct frames       0\n"
    "  requested at the end  0 B\n"
    "  allocated at the end  0 B\n"
    "  active at the end     0 B\n"
    "  reserved at the end   0 B\n" TEXT_TAIL;

static void test_info_text(void **state) {
  (void)state;
  tsr__buffer out = {0};
  assert_int_equal(tsr__report_info(&input, &info, NULL, collect, &out, NULL), TSR_OK);
  assert_report(&out, expected_info_text);
}

static const char expected_info_json[] =
    JSON_HEAD("info") "  \"devices\": [\n"
                      "    {\n"
                      "      \"device\": 0,\n"
                      "      \"events\": 2000,\n"
                      "      \"actions\": {\n"
                      "        \"alloc\": 1500,\n"
                      "        \"od\\\"d\\u001b\": 500\n"
                      "      },\n"
                      "      \"segments\": 12,\n"
                      "      \"blocks\": 345,\n"
                      "      \"stacks\": 40,\n"
                      "      \"frames\": 90,\n"
                      "      \"first_time_us\": 1783866822365713,\n"
                      "      \"last_time_us\": 1783866825000000,\n"
                      "      \"frees_without_alloc\": 7,\n"
                      "      \"end\": {\n"
                      "        \"requested_bytes\": 1000,\n"
                      "        \"allocated_bytes\": 1024,\n"
                      "        \"active_bytes\": 1536,\n"
                      "        \"reserved_bytes\": 2097152\n"
                      "      },\n"
                      "      \"replay\": {\n"
                      "        \"reused\": 0,\n"
                      "        \"reused_matched\": 0,\n"
                      "        \"segments_new\": 0,\n"
                      "        \"segments_matched\": 0,\n"
                      "        \"final_blocks\": 0,\n"
                      "        \"final_matched\": 0\n"
                      "      }\n"
                      "    },\n"
                      "    {\n"
                      "      \"device\": 3,\n"
                      "      \"events\": 0,\n"
                      "      \"actions\": {},\n"
                      "      \"segments\": 0,\n"
                      "      \"blocks\": 0,\n"
                      "      \"stacks\": 0,\n"
                      "      \"frames\": 0,\n"
                      "      \"first_time_us\": null,\n"
                      "      \"last_time_us\": null,\n"
                      "      \"frees_without_alloc\": 0,\n"
                      "      \"end\": {\n"
                      "        \"requested_bytes\": 0,\n"
                      "        \"allocated_bytes\": 0,\n"
                      "        \"active_bytes\": 0,\n"
                      "        \"reserved_bytes\": 0\n"
                      "      },\n"
                      "      \"replay\": {\n"
                      "        \"reused\": 0,\n"
                      "        \"reused_matched\": 0,\n"
                      "        \"segments_new\": 0,\n"
                      "        \"segments_matched\": 0,\n"
                      "        \"final_blocks\": 0,\n"
                      "        \"final_matched\": 0\n"
                      "      }\n"
                      "    }\n"
                      "  ],\n" JSON_TAIL;

static void test_info_json(void **state) {
  (void)state;
  tsr__buffer out = {0};
  assert_int_equal(tsr__report_info(&input, &info, &json, collect, &out, NULL), TSR_OK);
  assert_report(&out, expected_info_json);
}

/* ---- peak ---- */

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

/* All of one kind. */
#define SHARE(of_bytes, count, id, of_kind)                                                        \
  {                                                                                                \
    .bytes = of_bytes, .allocations = count, .stack = id, .category = of_kind, .category_bytes = { \
      [of_kind] = of_bytes                                                                         \
    }                                                                                              \
  }

static tsr_stack_share shares[] = {
    {.bytes = 5 * GIB,
     .allocations = 12,
     .stack = 0,
     .category = TSR_CATEGORY_ACTIVATION,
     .phase = TSR_PHASE_FORWARD,
     .evidence = TSR_EVIDENCE_KEPT_FOR_BACKWARD,
     .category_bytes = {[TSR_CATEGORY_ACTIVATION] = 4 * GIB, [TSR_CATEGORY_TEMPORARY] = GIB}},
    SHARE(2 * GIB, 1, 1, TSR_CATEGORY_UNKNOWN),
    SHARE(512 * MIB, 1024, TSR_NONE, TSR_CATEGORY_UNKNOWN),
    SHARE(256 * MIB, 2, 2, TSR_CATEGORY_UNKNOWN),
    SHARE(128 * MIB, 2, 3, TSR_CATEGORY_UNKNOWN)};
#define TOTALS \
  { 8 * GIB, 8 * GIB + 4 * MIB, 8 * GIB + 6 * MIB, 12 * GIB }
#define MOMENT \
  { 3737, INT64_C(1783866822365713), TOTALS }
#define FRAGMENTATION \
  { 1 * MIB, 3 * MIB, 2 * MIB, 2 * GIB, 1 * GIB, 256 * MIB }
#define RECORDED \
  { 3737, INT64_C(1783866822365713), 8 * GIB, 1536 * MIB, 8 * GIB + 1536 * MIB }

static tsr_warning misfits[] = {{"free-of-unknown", 2, "frees of memory that was not in use"}};

static tsr_peak_device with_peak(uint32_t device, size_t stack_count) {
  return (tsr_peak_device){.device = device,
                           .event_count = 22331,
                           .has_history = true,
                           .peak = MOMENT,
                           .stop = {.event = -1},
                           .start = {1536 * MIB, 1537 * MIB, 1537 * MIB, 2 * GIB},
                           .end = {GIB, GIB, GIB, 12 * GIB},
                           .maxima = TOTALS,
                           .start_unsplit_bytes = 5,
                           .peak_unsplit_bytes = 3,
                           .fragmentation = FRAGMENTATION,
                           .recorded = RECORDED,
                           .stacks = shares,
                           .stack_count = stack_count};
}

/* A peak before the first of `event_count` events, of `allocated_bytes`. */
static tsr_peak_device without_peak(uint64_t event_count, uint64_t allocated_bytes) {
  tsr_totals totals = {allocated_bytes, allocated_bytes, allocated_bytes, 2 * allocated_bytes};
  return (tsr_peak_device){.device = 2,
                           .event_count = event_count,
                           .has_history = event_count > 1,
                           .peak = {-1, TSR_TIME_NONE, totals},
                           .stop = {.event = -1},
                           .start = totals,
                           .end = totals,
                           .maxima = totals,
                           .recorded = {-1, TSR_TIME_NONE, 0, 0, 0}};
}

static const char expected_peak_text[] =
    "Device 1: peak 8.00 GiB allocated of 12.00 GiB reserved, at event 3,737 of 22,331; 1.50 GiB "
    "date\n"
    "  from before the recording.\n"
    "  time of the peak            2026-07-12 14:33:42.365713 UTC\n"
    "  lost to rounding            1.00 MiB\n"
    "  lost to unsplit tails       3.00 MiB\n"
    "  waiting for another stream  2.00 MiB\n"
    "  free, in segments in use    2.00 GiB\n"
    "  free, whole segments        1.00 GiB\n"
    "  largest free block          256.00 MiB\n"
    "\n"
    "  #   share       bytes  count  category       allocated at\n"
    "  1  62.5 %    5.00 GiB     12  activation +1  model.py:382 forward\n"
    "  2  25.0 %    2.00 GiB      1  unknown        train.py:31 step > modeling_llama.py:120 "
    "forward\n"
    "  3   6.2 %  512.00 MiB  1,024  unknown        (no stack recorded)\n"
    "  4   3.1 %  256.00 MiB      2  unknown        ??.py run?[2J?\n"
    "  5   1.6 %  128.00 MiB      2  unknown        (backward)\n"
    "  ... and 1,057 more stacks, 128.00 MiB (--top 0 shows all)\n"
    "\n"
    "  #       bytes  count  stacks of these rows\n"
    "       7.00 GiB     13  /home/me/train.py:80 <module> > :31 step\n"
    "  1    5.00 GiB     12    /home/me/model.py:382 forward\n"
    "  2    2.00 GiB      1    transformers/models/llama/modeling_llama.py:120 forward\n"
    "  3  512.00 MiB  1,024  (no stack recorded)\n"
    "  4  256.00 MiB      2  /tmp/??.py run?[2J?\n"
    "  5  128.00 MiB      2  (backward)\n"
    "\n"
    "  #  categories\n"
    "  1  activation 4.00 GiB, temporary 1.00 GiB\n"
    "\n"
    "warning: frees-without-alloc (1,438): their allocation is older than the trace.\n"
    "warning: free-of-unknown (2): frees of memory that was not in use\n";

static void test_peak_text(void **state) {
  (void)state;
  tsr__buffer out = {0};
  tsr_peak_device device = with_peak(1, COUNT_OF(shares));
  device.omitted_stacks = 1057;
  device.omitted_bytes = 128 * MIB;
  device.warnings = misfits;
  device.warning_count = 1;
  tsr_peak peak = {.devices = &device, .device_count = 1};
  assert_int_equal(tsr__report_peak(&input, &peak, NULL, collect, &out, NULL), TSR_OK);
  assert_report(&out, expected_peak_text);
}

static const char expected_peak_json[] =
    JSON_HEAD("peak") "  \"imbalance\": null,\n  \"devices\": [\n"
                      "    {\n"
                      "      \"device\": 0,\n"
                      "      \"events\": 22331,\n"
                      "      \"has_history\": true,\n"
                      "      \"peak\": {\n"
                      "        \"event\": 3737,\n"
                      "        \"time_us\": 1783866822365713,\n"
                      "        \"requested_bytes\": 8589934592,\n"
                      "        \"allocated_bytes\": 8594128896,\n"
                      "        \"active_bytes\": 8596226048,\n"
                      "        \"reserved_bytes\": 12884901888,\n"
                      "        \"unsplit_bytes\": 3\n"
                      "      },\n"
                      "      \"start\": {\n"
                      "        \"requested_bytes\": 1610612736,\n"
                      "        \"allocated_bytes\": 1611661312,\n"
                      "        \"active_bytes\": 1611661312,\n"
                      "        \"reserved_bytes\": 2147483648\n"
                      "      },\n"
                      "      \"start_unsplit_bytes\": 5,\n"
                      "      \"end\": {\n"
                      "        \"requested_bytes\": 1073741824,\n"
                      "        \"allocated_bytes\": 1073741824,\n"
                      "        \"active_bytes\": 1073741824,\n"
                      "        \"reserved_bytes\": 12884901888\n"
                      "      },\n"
                      "      \"maxima\": {\n"
                      "        \"requested_bytes\": 8589934592,\n"
                      "        \"allocated_bytes\": 8594128896,\n"
                      "        \"active_bytes\": 8596226048,\n"
                      "        \"reserved_bytes\": 12884901888\n"
                      "      },\n"
                      "      \"fragmentation\": {\n"
                      "        \"rounding_bytes\": 1048576,\n"
                      "        \"unsplit_bytes\": 3145728,\n"
                      "        \"waiting_bytes\": 2097152,\n"
                      "        \"free_block_bytes\": 2147483648,\n"
                      "        \"free_segment_bytes\": 1073741824,\n"
                      "        \"largest_free_bytes\": 268435456\n"
                      "      },\n"
                      "      \"private_pools\": [],\n"
                      "      \"recorded\": {\n"
                      "        \"event\": 3737,\n"
                      "        \"time_us\": 1783866822365713,\n"
                      "        \"dynamic_peak_bytes\": 8589934592,\n"
                      "        \"static_bytes\": 1610612736,\n"
                      "        \"overall_bytes\": 10200547328\n"
                      "      },\n"
                      "      \"out_of_memory\": null,\n"
                      "      \"stacks\": [\n"
                      "        {\n"
                      "          \"bytes\": 268435456,\n"
                      "          \"allocations\": 2,\n"
                      "          \"category\": \"unknown\",\n"
                      "          \"phase\": \"unknown\",\n"
                      "          \"evidence\": \"no rule explains it\",\n"
                      "          \"confidence\": \"none\",\n"
                      "          \"categories\": {\"unknown\": 268435456},\n"
                      "          \"names\": [],\n"
                      "          \"omitted_names\": 0,\n"
                      "          \"frames\": [\n"
                      "            {\"name\": \"run\\u001b[2J\\n\", \"file\": "
                      "\"/tmp/\\ud83d\357\277\275.py\", \"line\": null}\n"
                      "          ]\n"
                      "        },\n"
                      "        {\n"
                      "          \"bytes\": 536870912,\n"
                      "          \"allocations\": 1024,\n"
                      "          \"category\": \"unknown\",\n"
                      "          \"phase\": \"unknown\",\n"
                      "          \"evidence\": \"no rule explains it\",\n"
                      "          \"confidence\": \"none\",\n"
                      "          \"categories\": {\"unknown\": 536870912},\n"
                      "          \"names\": [],\n"
                      "          \"omitted_names\": 0,\n"
                      "          \"before_recording\": false,\n"
                      "          \"frames\": []\n"
                      "        }\n"
                      "      ],\n"
                      "      \"omitted_stacks\": 0,\n"
                      "      \"omitted_bytes\": 0,\n"
                      "      \"findings\": []\n"
                      "    },\n"
                      "    {\n"
                      "      \"device\": 2,\n"
                      "      \"events\": 0,\n"
                      "      \"has_history\": false,\n"
                      "      \"peak\": {\n"
                      "        \"event\": -1,\n"
                      "        \"time_us\": null,\n"
                      "        \"requested_bytes\": 4096,\n"
                      "        \"allocated_bytes\": 4096,\n"
                      "        \"active_bytes\": 4096,\n"
                      "        \"reserved_bytes\": 8192,\n"
                      "        \"unsplit_bytes\": 0\n"
                      "      },\n"
                      "      \"start\": {\n"
                      "        \"requested_bytes\": 4096,\n"
                      "        \"allocated_bytes\": 4096,\n"
                      "        \"active_bytes\": 4096,\n"
                      "        \"reserved_bytes\": 8192\n"
                      "      },\n"
                      "      \"start_unsplit_bytes\": 0,\n"
                      "      \"end\": {\n"
                      "        \"requested_bytes\": 4096,\n"
                      "        \"allocated_bytes\": 4096,\n"
                      "        \"active_bytes\": 4096,\n"
                      "        \"reserved_bytes\": 8192\n"
                      "      },\n"
                      "      \"maxima\": {\n"
                      "        \"requested_bytes\": 4096,\n"
                      "        \"allocated_bytes\": 4096,\n"
                      "        \"active_bytes\": 4096,\n"
                      "        \"reserved_bytes\": 8192\n"
                      "      },\n"
                      "      \"fragmentation\": {\n"
                      "        \"rounding_bytes\": 0,\n"
                      "        \"unsplit_bytes\": 0,\n"
                      "        \"waiting_bytes\": 0,\n"
                      "        \"free_block_bytes\": 0,\n"
                      "        \"free_segment_bytes\": 0,\n"
                      "        \"largest_free_bytes\": 0\n"
                      "      },\n"
                      "      \"private_pools\": [],\n"
                      "      \"recorded\": {\n"
                      "        \"event\": -1,\n"
                      "        \"time_us\": null,\n"
                      "        \"dynamic_peak_bytes\": 0,\n"
                      "        \"static_bytes\": 0,\n"
                      "        \"overall_bytes\": 0\n"
                      "      },\n"
                      "      \"out_of_memory\": null,\n"
                      "      \"stacks\": [],\n"
                      "      \"omitted_stacks\": 0,\n"
                      "      \"omitted_bytes\": 0,\n"
                      "      \"findings\": []\n"
                      "    }\n"
                      "  ],\n" JSON_TAIL;

static void test_peak_json(void **state) {
  (void)state;
  tsr__buffer out = {0};
  tsr_stack_share some[] = {shares[3], shares[2]};
  tsr_peak_device devices[] = {with_peak(0, 1), without_peak(0, 4096)};
  devices[0].stacks = some;
  devices[0].stack_count = 2;
  tsr_peak peak = {.devices = devices, .device_count = 2};
  assert_int_equal(tsr__report_peak(&input, &peak, &json, collect, &out, NULL), TSR_OK);
  assert_report(&out, expected_peak_json);
}

static void test_peak_options(void **state) {
  (void)state;
  tsr__buffer out = {0};
  tsr_peak_device device = with_peak(0, 1);
  tsr_peak peak = {.devices = &device, .device_count = 1};
  tsr_report_options options = {
      .quiet = true, .full_stacks = true, .verbose = true, .color = true, .width = 20};
  assert_int_equal(tsr__report_peak(&input, &peak, &options, collect, &out, NULL), TSR_OK);
  assert_report(
      &out, "\033[1mDevice 0: peak\033[0m\n"
            "  \033[1m8.00 GiB allocated\033[0m\n"
            "  \033[1mof 12.00 GiB\033[0m\n"
            "  \033[1mreserved, at event\033[0m\n"
            "  \033[1m3,737 of 22,331;\033[0m\n"
            "  \033[1m1.50 GiB date from\033[0m\n"
            "  \033[1mbefore the\033[0m\n"
            "  \033[1mrecording.\033[0m\n"
            "  time of the peak            2026-07-12\n"
            "                              14:33:42.365713\n"
            "                              UTC\n"
            "  lost to rounding            1.00 MiB\n"
            "  lost to unsplit tails       3.00 MiB\n"
            "  waiting for another stream  2.00 MiB\n"
            "  free, in segments in use    2.00 GiB\n"
            "  free, whole segments        1.00 GiB\n"
            "  largest free block          256.00 MiB\n"
            "\n"
            "  #   share     bytes  count     average  category\n"
            "     allocated at\n"
            "  1  62.5 %  5.00 GiB     12  426.67 MiB  \033[38;5;173mactivation +1\033[0m\n"
            "     model.py:382 ...\n"
            "\n"
            "\033[1m#1  5.00 GiB in 12\033[0m\n"
            "  \033[1mallocations:\033[0m\n"
            "  \033[1mactivation\033[0m\n"
            "  \033[1m4.00 GiB,\033[0m\n"
            "  \033[1mtemporary 1.00 GiB\033[0m\n"
            "  \033[2mactivation:\033[0m\n"
            "    \033[2mallocated in\033[0m\n"
            "    \033[2mforward and live\033[0m\n"
            "    \033[2mwhen backward\033[0m\n"
            "    \033[2mbegan (sure)\033[0m\n"
            "  _start, ??\n"
            "    PyEval_EvalCode, /usr/src/Python/ceval.c:1134\n"
            "      <module>, /home/me/train.py:80\n"
            "        step, /home/me/train.py:31\n"
            "          forward, /home/me/model.py:382\n"
            "          forward, /opt/lib/python3.11/site-packages/torch/nn/modules/linear.py:116\n"
            "          c10::cuda::CUDACachingAllocator::malloc, ??\n"
            "          torch::unwind::unwind(), ??\n");
}

/* A tsr_warn_fn; `context` is a tsr__buffer. */
static void keep_warning(void *context, const char *code, uint64_t count, const char *message) {
  tsr__buffer_printf(context, "%s %llu %s\n", code, (unsigned long long)count, message);
}

static bool contains(const tsr__buffer *text, const char *part) {
  size_t length = strlen(part);
  for (size_t i = 0; i + length <= text->size; i++)
    if (memcmp(text->data + i, part, length) == 0) return true;
  return false;
}

/* Warnings go where the caller wants them, in both formats, and nowhere when it wants quiet. */
static void test_warnings_are_passed_on(void **state) {
  (void)state;
  static const char expected[] =
      "frees-without-alloc 1438 their allocation is older than the trace.\n";
  for (int form = 0; form < 3; form++) {
    tsr__buffer out = {0}, told = {0};
    tsr_peak_device device = with_peak(0, 1);
    tsr_peak peak = {.devices = &device, .device_count = 1};
    tsr_report_options options = {.format = form == 1 ? TSR_REPORT_JSON : TSR_REPORT_TEXT,
                                  .quiet = form == 2,
                                  .warn = keep_warning,
                                  .warn_context = &told};
    assert_int_equal(tsr__report_peak(&input, &peak, &options, collect, &out, NULL), TSR_OK);
    assert_int_equal(contains(&out, "frees-without-alloc"), form == 1);
    assert_int_equal(told.size, form == 2 ? 0 : sizeof expected - 1);
    if (told.size) assert_memory_equal(told.data, expected, told.size);
    tsr__buffer_release(&out);
    tsr__buffer_release(&told);
  }
}

#define NO_TRACE                                                                               \
  "  The file shows one moment. For a trace, call torch.cuda.memory._record_memory_history() " \
  "before the\n"                                                                               \
  "    model is made and _dump_snapshot() later, or run the job in `with tessera.record():`.\n"

static void test_peak_says_when_there_is_none(void **state) {
  (void)state;
  static const struct {
    uint64_t events, allocated_bytes;
    const char *expected;
  } cases[] = {
      {0, 512,
       "Device 2: no events were recorded; 512 B allocated of 1.0 KiB reserved.\n" NO_TRACE},
      {0, 0, "Device 2: no events were recorded; 0 B allocated of 0 B reserved.\n" NO_TRACE},
      {1438, GIB,
       "Device 2: peak 1.00 GiB allocated of 2.00 GiB reserved, before the first of 1,438 "
       "events.\n"}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    tsr__buffer out = {0};
    tsr_peak_device device = without_peak(cases[i].events, cases[i].allocated_bytes);
    tsr_peak peak = {.devices = &device, .device_count = 1};
    assert_int_equal(tsr__report_peak(&input, &peak, &quiet, collect, &out, NULL), TSR_OK);
    assert_report(&out, cases[i].expected);
  }
  tsr__buffer out = {0};
  tsr_peak nothing = {.devices = NULL, .device_count = 0};
  assert_int_equal(tsr__report_peak(&input, &nothing, &quiet, collect, &out, NULL), TSR_OK);
  assert_report(&out, "No device has events or segments.\n");
}

/* ---- profile ---- */

static tsr_profile_group groups[] = {
    {.name = "activation",
     .bytes = 3 * GIB,
     .allocations = 1204,
     .peak_bytes = 3 * GIB,
     .peak_event = 3737,
     .first_event = 1,
     .trace = {2000, 5 * GIB, GIB, 1900, 12, 3500}},
    {.name = "backward", .first_event = 7, .trace.mean_life_us = -1}};
static tsr_profile_device profile_devices[] = {
    {.device = 0,
     .event_count = 22331,
     .has_history = true,
     .peak_event = 3737,
     .peak_time_us = INT64_C(1783866822365713),
     .peak_bytes = 4 * GIB,
     .allocated_bytes = 5 * GIB,
     .groups = groups,
     .group_count = 2},
    {.device = 1, .peak_event = -1, .peak_time_us = TSR_TIME_NONE}};
static const tsr_profile profile = {
    .by = TSR_PROFILE_BY_MOSAIC_CATEGORY, .devices = profile_devices, .device_count = 2};

static void test_profile_text(void **state) {
  (void)state;
  tsr__buffer out = {0};
  assert_int_equal(tsr__report_profile(&input, &profile, &quiet, collect, &out, NULL), TSR_OK);
  assert_report(
      &out,
      "Device 0: peak 4.00 GiB of recorded memory at event 3,737 of 22,331; 75.0 % is activation.\n"
      "  time of the peak         2026-07-12 14:33:42.365713 UTC\n"
      "  allocated in total then  5.00 GiB\n"
      "\n"
      "  category       bytes   share  allocations\n"
      "  activation  3.00 GiB  75.0 %        1,204\n"
      "  backward         0 B   0.0 %            0\n"
      "\n"
      "Device 1: no events were recorded.\n");
}

/* Everything counts: what was there before, and what a group took over the whole trace. */
static void test_profile_of_everything(void **state) {
  (void)state;
  tsr__buffer out = {0};
  static tsr_profile_reason reasons[] = {
      {TSR_CATEGORY_ACTIVATION, TSR_PHASE_FORWARD, TSR_EVIDENCE_KEPT_FOR_BACKWARD, 2 * GIB, 1200},
      {TSR_CATEGORY_ACTIVATION, TSR_PHASE_UNKNOWN, TSR_EVIDENCE_OLD_ACTIVATION, GIB, 4}};
  tsr_profile_device device = profile_devices[0];
  device.is_whole = true;
  device.reasons = reasons;
  device.reason_count = COUNT_OF(reasons);
  device.group_count = 1;
  tsr_profile whole = {.by = TSR_PROFILE_BY_CATEGORY, .devices = &device, .device_count = 1};
  tsr_report_options how = {.quiet = true, .verbose = true, .width = 120};
  assert_int_equal(tsr__report_profile(&input, &whole, &how, collect, &out, NULL), TSR_OK);
  assert_report(
      &out,
      "Device 0: peak 5.00 GiB allocated at event 3,737 of 22,331; 75.0 % is activation.\n"
      "  time of the peak  2026-07-12 14:33:42.365713 UTC\n"
      "\n"
      "  category       bytes   share  count  in total  times   largest  mean life\n"
      "  activation  3.00 GiB  75.0 %  1,204  5.00 GiB  2,000  1.00 GiB     3.5 ms\n"
      "\n"
      "  category       bytes  count  phase    because\n"
      "  activation  2.00 GiB  1,200  forward  allocated in forward and live when backward began "
      "(sure)\n"
      "  activation  1.00 GiB      4  -        older than the recording and freed like saved "
      "tensors (likely)\n");
}

static const char expected_profile_json[] = JSON_HEAD(
    "profile") "  \"devices\": [\n"
               "    {\n"
               "      \"device\": 0,\n"
               "      \"events\": 22331,\n"
               "      \"has_history\": true,\n"
               "      \"by\": \"mosaic-category\",\n"
               "      \"peak\": {\n"
               "        \"event\": 3737,\n"
               "        \"time_us\": 1783866822365713,\n"
               "        \"requested_bytes\": 4294967296,\n"
               "        \"allocated_bytes\": 5368709120\n"
               "      },\n"
               "      \"groups\": [\n"
               "        {\n"
               "          \"name\": \"activation\",\n"
               "          \"bytes\": 3221225472,\n"
               "          \"allocations\": 1204,\n"
               "          \"peak_bytes\": 3221225472,\n"
               "          \"peak_event\": 3737,\n"
               "          \"first_event\": 1,\n"
               "          \"trace\": {\"allocations\": 2000, \"bytes\": 5368709120, "
               "\"largest_bytes\": 1073741824, \"freed\": 1900, \"mean_life_events\": 12, "
               "\"mean_life_us\": 3500}\n"
               "        },\n"
               "        {\n"
               "          \"name\": \"backward\",\n"
               "          \"bytes\": 0,\n"
               "          \"allocations\": 0,\n"
               "          \"peak_bytes\": 0,\n"
               "          \"peak_event\": 0,\n"
               "          \"first_event\": 7,\n"
               "          \"trace\": {\"allocations\": 0, \"bytes\": 0, "
               "\"largest_bytes\": 0, \"freed\": 0, \"mean_life_events\": null, "
               "\"mean_life_us\": null}\n"
               "        }\n"
               "      ],\n"
               "      \"omitted_groups\": 0,\n"
               "      \"omitted_bytes\": 0,\n"
               "      \"later_groups\": [],\n"
               "      \"omitted_later_groups\": 0\n"
               "    },\n"
               "    {\n"
               "      \"device\": 1,\n"
               "      \"events\": 0,\n"
               "      \"has_history\": false,\n"
               "      \"by\": \"mosaic-category\",\n"
               "      \"peak\": {\n"
               "        \"event\": -1,\n"
               "        \"time_us\": null,\n"
               "        \"requested_bytes\": 0,\n"
               "        \"allocated_bytes\": 0\n"
               "      },\n"
               "      \"groups\": [],\n"
               "      \"omitted_groups\": 0,\n"
               "      \"omitted_bytes\": 0,\n"
               "      \"later_groups\": [],\n"
               "      \"omitted_later_groups\": 0\n"
               "    }\n"
               "  ],\n" JSON_TAIL;

static void test_profile_json(void **state) {
  (void)state;
  tsr__buffer out = {0};
  assert_int_equal(tsr__report_profile(&input, &profile, &json, collect, &out, NULL), TSR_OK);
  assert_report(&out, expected_profile_json);
}

static void test_failed_write(void **state) {
  (void)state;
  tsr_error error = {0};
  tsr_peak_device device = with_peak(1, COUNT_OF(shares));
  device.omitted_stacks = 1057;
  device.omitted_bytes = 128 * MIB;
  device.warnings = misfits;
  device.warning_count = 1;
  tsr_peak peak = {.devices = &device, .device_count = 1};
  assert_int_equal(tsr__report_peak(&input, &peak, NULL, refuse, NULL, &error), TSR_ERROR_WRITE);
  assert_int_equal(error.status, TSR_ERROR_WRITE);
  assert_int_equal(tsr__report_info(&input, &info, &json, refuse, NULL, NULL), TSR_ERROR_WRITE);
  assert_int_equal(tsr__report_profile(&input, &profile, NULL, refuse, NULL, NULL),
                   TSR_ERROR_WRITE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_info_text),
      cmocka_unit_test(test_info_json),
      cmocka_unit_test(test_peak_text),
      cmocka_unit_test(test_peak_json),
      cmocka_unit_test(test_peak_options),
      cmocka_unit_test(test_warnings_are_passed_on),
      cmocka_unit_test(test_peak_says_when_there_is_none),
      cmocka_unit_test(test_profile_text),
      cmocka_unit_test(test_profile_of_everything),
      cmocka_unit_test(test_profile_json),
      cmocka_unit_test(test_failed_write),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
