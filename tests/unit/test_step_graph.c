/* Tests of src/engine/traced/step_graph.h: a graph is read, simulated, and rejected when anything in it is damaged. */
#include <stdio.h>
#include <string.h>

#include "exec/rates.h"
#include "exec/survey.h"
#include "tessera/tessera.h"
#include "tessera/unstable/simulation.h"
#include "test_support.h"
#include "traced/graph_data.h"

/* A parameter of 1000 bytes; a step that makes an activation, which backward frees, a gradient, which the next step
 * frees, and the optimizer's state once. */
#define HEAD                                                                               \
  "{\"schema\":\"tessera-step/1\",\"torch\":\"2.15\",\"gpu\":\"h100\",\"parameters\":250," \
  "\"optimizer\":\"Lion\",\"phases\":[\"step\",\"zero_grad\",\"forward\",\"backward\","    \
  "\"optimizer\"],"
#define TEXTS  "\"texts\":[\"at::_ops::tanh::call\",\"??\",\"f\",\"a.py\"],"
#define FRAMES "\"frames\":[[0,1,0],[2,3,7]],"
#define STACKS "\"stacks\":[[0,1]],"
#define SLOTS                                                                            \
  "\"static\":1,\"slots\":{\"bytes\":[1000,4000,1000,2000],\"category\":[\"parameter\"," \
  "\"activation\",\"gradient\",\"optimizer_state\"]},"
#define BEGIN "[\"begin\",0],[\"drop_previous\",2],[\"begin\",2],[\"new\",1,0],[\"end\",2],"
#define REST                                                                           \
  "[\"begin\",3],[\"new\",2,0],[\"drop\",1],[\"end\",3],[\"begin\",4],[\"once\",3,0]," \
  "[\"end\",4],[\"end\",0]"
#define GRAPH(texts, frames, stacks, slots, begin, rest) \
  HEAD texts frames stacks slots "\"instructions\":[" begin rest "]}"

static const char whole[] = GRAPH(TEXTS, FRAMES, STACKS, SLOTS, BEGIN, REST);

static tsr_model *read(const char *text) {
  tsr_model *model = NULL;
  tsr_error error = {0};
  if (tsr_model_read(text, strlen(text), &model, &error)) fail_msg("%s", error.message);
  return model;
}

static void simulated(void **state) {
  (void)state;
  tsr_model *model = read(whole);
  tsr_simulation *s = NULL;
  tsr_simulate_options options = TSR_OPTIONS_INIT(tsr_simulate_options);
  options.steps = 3;
  options.fresh_process = true;
  assert_true(tsr_model_is_traced(model));
  assert_null(tsr_model_config(model));
  assert_int_equal(tsr_model_parameter_count(model), 250);
  assert_int_equal(tsr_simulate(model, &options, &s, NULL), 0);
  /* From the second step on: 1000 + 2000 + 4000 + 1000, in blocks of 512. */
  assert_int_equal(s->peak.totals.requested_bytes, 8000);
  assert_int_equal(s->peak.totals.allocated_bytes, 1024 + 2048 + 4096 + 1024);
  assert_int_equal(s->peak.step, 2);
  assert_string_equal(s->peak.phase, "backward");
  assert_string_equal(s->peak.op, "tanh");
  assert_int_equal(s->peak.category_bytes[TSR_CATEGORY_OPTIMIZER_STATE], 2000);
  assert_int_equal(s->steps_done, 3);
  tsr_simulation_free(s);
  tsr_model_free(model);
}

/* The workspaces are those of the graph's card, 32 MiB twice on an H100, or of one that is given. Without a product there are
 * none, and in a fresh process they come with the first. */
static void workspaces(void **state) {
  (void)state;
  static const char products[] =
      GRAPH("\"texts\":[\"at::_ops::mm_dtype::call\",\"??\",\"f\",\"a.py\"],", FRAMES, STACKS,
            SLOTS, BEGIN, REST);
  static const struct {
    const char *text, *gpu;
    bool is_fresh;
    uint64_t before, at_peak;
  } cases[] = {{whole, NULL, false, 0, 0},
               {products, NULL, false, 64 << 20, 64 << 20},
               {products, "t4", false, 2 * 8519680, 2 * 8519680},
               {products, "h200", true, 0, 64 << 20}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr_model *model = read(cases[i].text);
    tsr_simulation *s = NULL;
    tsr_simulate_options options = TSR_OPTIONS_INIT(tsr_simulate_options);
    options.steps = 2;
    options.gpu = cases[i].gpu;
    options.fresh_process = cases[i].is_fresh;
    assert_int_equal(tsr_simulate(model, &options, &s, NULL), 0);
    assert_int_equal(s->start_category_bytes[TSR_CATEGORY_WORKSPACE], cases[i].before);
    assert_int_equal(s->peak.category_bytes[TSR_CATEGORY_WORKSPACE], cases[i].at_peak);
    tsr_simulation_free(s);
    tsr_model_free(model);
  }
}

/* Flash attention's kernels do not run on a T4. */
static void other_kernels(void **state) {
  (void)state;
  static const char flash[] =
      GRAPH("\"texts\":[\"at::_ops::_scaled_dot_product_flash_attention::call\",\"??\",\"f\","
            "\"a.py\"],\"work\":[[0,1,1,16]],",
            FRAMES, STACKS, SLOTS, BEGIN, REST);
  tsr_model *model = read(flash);
  tsr_simulation *s = NULL;
  tsr_error error = {0};
  tsr_simulate_options options = TSR_OPTIONS_INIT(tsr_simulate_options);
  options.gpu = "t4";
  assert_int_equal(tsr_simulate(model, &options, &s, &error), TSR_ERROR_ARGUMENT);
  assert_non_null(strstr(error.message, "trace it again with gpu='t4'"));
  options.gpu = "t5";
  assert_int_equal(tsr_simulate(model, &options, &s, &error), TSR_ERROR_ARGUMENT);
  assert_non_null(strstr(error.message, "no card"));
  assert_null(s);
  tsr_model_free(model);
}

/* An unknown card has no workspaces, so the user chooses one. It is taken for a new one, which has flash attention's kernels. */
static void unknown_cards(void **state) {
  (void)state;
#define AFTER_GPU                                                                                  \
  "\"parameters\":250,\"optimizer\":\"Lion\"," FRAMES STACKS SLOTS "\"instructions\":[" BEGIN REST \
  "]}"
#define OF_CARD(gpu) "{\"schema\":\"tessera-step/1\"," gpu TEXTS AFTER_GPU
  static const struct {
    const char *text, *gpu, *message;
  } cases[] = {
      {OF_CARD("\"gpu\":\"b300\","), NULL, "'gpu' is 'b300', which is not a known card"},
      {OF_CARD("\"gpu\":\"A100\","), NULL, "--gpu: t4, v100, l4"},
      {OF_CARD(""), NULL, "'gpu' is '', which"},
      {OF_CARD("\"gpu\":\"b300\","), "h100", NULL},
      {OF_CARD(""), "t4", NULL},
      {"{\"schema\":\"tessera-step/"
       "1\",\"gpu\":\"b300\",\"work\":[[0,1,1,16]],\"texts\":[\"at::_ops::"
       "_scaled_dot_product_flash_attention::call\",\"??\",\"f\",\"a.py\"]," AFTER_GPU,
       "t4", "traced for the b300"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr_model *model = read(cases[i].text);
    tsr_simulation *s = NULL;
    tsr_error error = {0};
    tsr_simulate_options options = TSR_OPTIONS_INIT(tsr_simulate_options);
    options.gpu = cases[i].gpu;
    int status = tsr_simulate(model, &options, &s, &error);
    if (cases[i].message) {
      assert_int_equal(status, options.gpu ? TSR_ERROR_ARGUMENT : TSR_ERROR_UNSUPPORTED);
      if (!strstr(error.message, cases[i].message)) fail_msg("%s", error.message);
    } else {
      assert_int_equal(status, 0);
    }
    tsr_simulation_free(s);
    tsr_model_free(model);
  }
}

/* How tokens were distributed to experts is repeated in a note, for each of the words. */
static void routings(void **state) {
  (void)state;
  static const char *const words[] = {"balanced", "worst", "given"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    char text[4096], expected[64];
    (void)snprintf(text, sizeof text, OF_CARD("\"gpu\":\"h100\",\"routing\":\"%s\","), words[i]);
    (void)snprintf(expected, sizeof expected, "routing: %s, so ", words[i]);
    tsr_model *model = read(text);
    tsr_simulation *s = NULL;
    assert_int_equal(tsr_simulate(model, NULL, &s, NULL), 0);
    assert_int_equal(strncmp(s->notes[0], expected, strlen(expected)), 0);
    tsr_simulation_free(s);
    tsr_model_free(model);
  }
}

/* Compiled code is traced uncompiled, which a note says; after that of a routing. */
static void compiled(void **state) {
  (void)state;
  for (int has_routing = 0; has_routing < 2; has_routing++) {
    char text[4096];
    (void)snprintf(text, sizeof text, OF_CARD("\"gpu\":\"h100\",\"compiled\":%s,%s"), "true",
                   has_routing ? "\"routing\":\"worst\"," : "");
    tsr_model *model = read(text);
    tsr_simulation *s = NULL;
    assert_int_equal(tsr_simulate(model, NULL, &s, NULL), 0);
    assert_non_null(strstr(s->notes[has_routing], "an upper bound"));
    tsr_simulation_free(s);
    tsr_model_free(model);
  }
  tsr_model *model = read(OF_CARD("\"gpu\":\"h100\",\"compiled\":false,"));
  tsr_simulation *s = NULL;
  assert_int_equal(tsr_simulate(model, NULL, &s, NULL), 0);
  for (size_t i = 0; i < s->note_count; i++) assert_null(strstr(s->notes[i], "an upper bound"));
  tsr_simulation_free(s);
  tsr_model_free(model);
}

static void refused_options(void **state) {
  (void)state;
  tsr_model *model = read(whole);
  tsr_simulation *s = NULL;
  tsr_error error = {0};
  tsr_simulate_options options = TSR_OPTIONS_INIT(tsr_simulate_options);
  options.dtype = TSR_SIMULATE_BF16;
  assert_int_equal(tsr_simulate(model, &options, &s, &error), TSR_ERROR_ARGUMENT);
  assert_non_null(strstr(error.message, "as it was traced"));
  assert_null(s);
  tsr_model_free(model);
}

static void expect_error(const char *text, int status, const char *message) {
  tsr_model *model = NULL;
  tsr_error error = {0};
  int got = tsr_model_read(text, strlen(text), &model, &error);
  static const char begin[] = "step graph: ";
  if (got != status || strncmp(error.message, begin, sizeof begin - 1) != 0 ||
      strcmp(error.message + sizeof begin - 1, message) != 0)
    fail_msg("%s: status %d, \"%s\" instead of %d, \"%s\"", text, got, error.message, status,
             message);
  assert_null(model);
}

static void expect_damage(const char *text, const char *message) {
  expect_error(text, TSR_ERROR_FORMAT, message);
}

static void damaged_tables(void **state) {
  (void)state;
  expect_error("{\"schema\":\"tessera-step/2\"}", TSR_ERROR_UNSUPPORTED,
               "'schema' is \"tessera-step/2\"; this tessera reads \"tessera-step/1\"");
  expect_damage("{\"schema\":\"tessera-step/1\"}",
                "'parameters' is missing, not a number of elements");
  expect_damage("{\"schema\":\"tessera-step/1\",\"parameters\":-1}",
                "'parameters' is -1, not a number of elements");
  expect_damage("{\"schema\":\"tessera-step/1\",\"parameters\":"
                "\"0123456789012345678901234567890123456789012345678901234567890123456789\"}",
                "'parameters' is \"0123456789012345678901234567890123456789012..., "
                "not a number of elements");
  expect_damage("{\"schema\":\"tessera-step/1\",\"parameters\":"
                "[\"0123456789012345678901234567890123456789\",[1,2,3,4,5,6,7,8,9]]}",
                "'parameters' is [\"0123456789012345678901234567890123456789\",..., "
                "not a number of elements");
  expect_damage("{\"schema\":\"tessera-step/1\",\"parameters\":1}",
                "'texts' is missing, not a list");
  expect_damage(GRAPH("\"texts\":[1],", FRAMES, STACKS, SLOTS, BEGIN, REST),
                "text 0 is 1, not a text");
  expect_damage(GRAPH("\"texts\":[\"a\"],", FRAMES, STACKS, SLOTS, BEGIN, REST),
                "frame 0: the file is 1, but texts are numbered from 0 to 0");
  expect_damage(GRAPH(TEXTS, "\"frames\":[[0,1]],", STACKS, SLOTS, BEGIN, REST),
                "frame 0 is [0,1], not [function, file, line]");
  expect_damage(GRAPH(TEXTS, "\"frames\":[[0,1,-1]],", STACKS, SLOTS, BEGIN, REST),
                "frame 0: the line is -1, not a whole number from 0 to 4294967294");
  expect_damage(GRAPH(TEXTS, "\"frames\":7,", STACKS, SLOTS, BEGIN, REST),
                "'frames' is 7, not a list");
  expect_damage(GRAPH(TEXTS, FRAMES, "\"stacks\":[[]],", SLOTS, BEGIN, REST),
                "stack 0 is [], not a list of at least one frame");
  expect_damage(GRAPH(TEXTS, FRAMES, "\"stacks\":[[2]],", SLOTS, BEGIN, REST),
                "stack 0: a frame is 2, but frames are numbered from 0 to 1");
  expect_damage(GRAPH(TEXTS, FRAMES, "\"stacks\":[[0.5]],", SLOTS, BEGIN, REST),
                "stack 0: a frame is 0.5, but frames are numbered from 0 to 1");
}

#define WITH_SLOTS(slots) GRAPH(TEXTS, FRAMES, STACKS, slots, BEGIN, REST)
#define ONE_SLOT(bytes, category) \
  "\"static\":1,\"slots\":{\"bytes\":[" bytes "],\"category\":[" category "]},"

static void damaged_slots(void **state) {
  (void)state;
  expect_damage(WITH_SLOTS("\"static\":0,"), "'slots' is missing, not an object");
  expect_damage(WITH_SLOTS(ONE_SLOT("1,2", "\"parameter\"")),
                "the lengths of 'category' and 'bytes' differ: 1 and 2");
  expect_damage(WITH_SLOTS(ONE_SLOT("0", "\"parameter\"")),
                "slot 0: bytes is 0, not a whole number from 1 to 281474976710655");
  expect_damage(WITH_SLOTS(ONE_SLOT("-5", "\"parameter\"")),
                "slot 0: bytes is -5, not a whole number from 1 to 281474976710655");
  expect_damage(WITH_SLOTS(ONE_SLOT("281474976710656", "\"parameter\"")),
                "slot 0: bytes is 281474976710656, not a whole number from 1 to 281474976710655");
  expect_damage(
      WITH_SLOTS(ONE_SLOT("1", "\"weights\"")),
      "slot 0: category is \"weights\", not one of unknown, parameter, gradient, optimizer_state, "
      "activation, recomputed, temporary, input, communication, workspace, buffer, kv_cache, cast");
  expect_damage(
      WITH_SLOTS(ONE_SLOT("1", "null")),
      "slot 0: category is null, not one of unknown, parameter, gradient, optimizer_state, "
      "activation, recomputed, temporary, input, communication, workspace, buffer, kv_cache, cast");
  expect_damage(WITH_SLOTS("\"static\":2,\"slots\":{\"bytes\":[1],\"category\":[\"parameter\"]},"),
                "'static' is 2, not a number of slots from 0 to 1");
}

#define WITH_MODULE(module) \
  HEAD TEXTS FRAMES STACKS SLOTS "\"modules\":[" module "],\"instructions\":[" BEGIN REST "]}"

#define WITH_EFFECT(effect)                                                            \
  HEAD TEXTS FRAMES STACKS SLOTS "\"modules\":[[2,3,3,4,0,0,[]]],\"effects\":[" effect \
                                 "],\"instructions\":[" BEGIN REST "]}"

/* Keys of wrong types, empty lists, what is too long to be shown, and what is no JSON. */
static void damaged_keys(void **state) {
  (void)state;
#define BEGINNING "{\"schema\":\"tessera-step/1\",\"parameters\":1,"
  expect_damage(BEGINNING "\"gpu\":[1]}", "'gpu' is [1], not a text");
  expect_damage(BEGINNING "\"optimizer\":{\"a\":true}}", "'optimizer' is {\"a\":true}, not a text");
  expect_damage(BEGINNING "\"compiled\":1}", "'compiled' is 1, not true or false");
  expect_damage(BEGINNING "\"routing\":\"best\"}",
                "'routing' is \"best\", not balanced, worst or given");
  expect_damage(BEGINNING "\"texts\":{}}", "'texts' is {}, not a list");
  expect_damage(BEGINNING "\"texts\":[],\"frames\":[[0,0,1]]}",
                "frame 0: the function is 0, but there are no texts");
  expect_damage(BEGINNING "\"texts\":[],\"frames\":[],\"stacks\":[[0]]}",
                "stack 0: a frame is 0, but there are no frames");
  expect_damage(BEGINNING "\"texts\":[[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]]}",
                "text 0 is [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17..., not a text");
  expect_damage(WITH_SLOTS("\"static\":0,\"slots\":[],"), "'slots' is [], not an object");
  expect_damage(WITH_SLOTS("\"static\":0,\"slots\":{},"), "'bytes' is missing, not a list");
  expect_damage(WITH_EFFECT("[0,[]]"),
                "'effects', item 0 is [0,[]], not [call, [slots of tensors], reason]");
  expect_damage(WITH_EFFECT("[1,[],-1]"),
                "'effects', item 0: the call is 1, but modules are numbered from 0 to 0");
  expect_damage(WITH_EFFECT("[0,7,-1]"),
                "'effects', item 0: the tensors are 7, not a list of slots");
  expect_damage(WITH_EFFECT("[0,[9],-1]"),
                "'effects', item 0: a tensor's slot is 9, but slots are numbered from 0 to 3");
  expect_damage(WITH_EFFECT("[0,[],4]"),
                "'effects', item 0: the reason is 4, but texts are numbered from 0 to 3, or -1");
  expect_damage(WITH_MODULE("[]"), "module 0 is [], not [name, class, begin, end, first "
                                   "save, end of saves, [slots of arguments]]");
  expect_damage(WITH_MODULE("[2,3,4,3,0,0,[]]"),
                "module 0 is [2,3,4,3,0,0,[]], whose instructions end before they begin");
  expect_damage(WITH_MODULE("[2,3,3,4,0,0,7]"),
                "module 0: the arguments are 7, not a list of slots");
  expect_damage(WITH_MODULE("[2,3,3,4,0,0,[9]]"),
                "module 0: an argument's slot is 9, but slots are numbered from 0 to 3");
  expect_error("{\"schema\":1,\"slots\":{},\"instructions\":[]}", TSR_ERROR_UNSUPPORTED,
               "'schema' is 1; this tessera reads \"tessera-step/1\"");
  expect_error("{\"slots\":{},\"instructions\":[]}", TSR_ERROR_UNSUPPORTED,
               "'schema' is missing; this tessera reads \"tessera-step/1\"");
  expect_damage(BEGINNING "\"texts\":[",
                "damaged or incomplete JSON: ']' expected near end of file");
#undef BEGINNING
}

#define WITH_STREAMS(streams)                                                            \
  "\"static\":1,\"slots\":{\"bytes\":[1000,4000,1000,2000],\"category\":[\"parameter\"," \
  "\"activation\",\"gradient\",\"optimizer_state\"],\"stream\":" streams "},"

/* The activation is on a stream, whose segment is its own. */
static void streams(void **state) {
  (void)state;
  tsr_model *alone = read(whole), *several = read(WITH_SLOTS(WITH_STREAMS("[0,33,0,0]")));
  tsr_simulate_options options = TSR_OPTIONS_INIT(tsr_simulate_options);
  tsr_simulation *one = NULL, *two = NULL;
  options.fresh_process = true;
  assert_int_equal(tsr_simulate(alone, &options, &one, NULL), 0);
  assert_int_equal(tsr_simulate(several, &options, &two, NULL), 0);
  assert_int_equal(two->peak.totals.allocated_bytes, one->peak.totals.allocated_bytes);
  assert_int_equal(one->peak_reserved_bytes, 2 << 20);
  assert_int_equal(two->peak_reserved_bytes, 4 << 20);
  tsr_simulation_free(one);
  tsr_simulation_free(two);
  tsr_model_free(alone);
  tsr_model_free(several);
  expect_damage(WITH_SLOTS(WITH_STREAMS("7")), "'stream' is 7, not a list");
  expect_damage(WITH_SLOTS(WITH_STREAMS("[0,0,0]")),
                "the lengths of 'stream' and 'bytes' differ: 3 and 4");
  expect_damage(WITH_SLOTS(WITH_STREAMS("[0,0,65536,0]")),
                "slot 2: stream is 65536, not a whole number from 0 to 65535");
  expect_damage(WITH_SLOTS(WITH_STREAMS("[0,-1,0,0]")),
                "slot 1: stream is -1, not a whole number from 0 to 65535");
}

static void expect_bad_step(const char *begin, const char *rest, const char *message) {
  char text[2048];
  (void)snprintf(text, sizeof text, "%s%s%s]}", HEAD TEXTS FRAMES STACKS SLOTS "\"instructions\":[",
                 begin, rest);
  expect_damage(text, message);
}

static void damaged_schedules(void **state) {
  (void)state;
  expect_bad_step(
      "[\"make\",1],", REST,
      "instruction 0 is [\"make\",1], not new, once, drop, drop_previous, begin or end");
  expect_bad_step("7,", REST,
                  "instruction 0 is 7, not new, once, drop, drop_previous, begin or end");
  expect_bad_step("[\"new\",1],", REST, "instruction 0 is [\"new\",1], not [\"new\", slot, stack]");
  expect_bad_step("[\"drop\",1,0],", REST, "instruction 0 is [\"drop\",1,0], not [\"drop\", slot]");
  expect_bad_step("[\"new\",4,0],", REST,
                  "instruction 0: the slot is 4, but slots are numbered from 0 to 3");
  expect_bad_step("[\"new\",1,1],", REST,
                  "instruction 0: the stack is 1, but stacks are numbered from 0 to 0");
  expect_bad_step("[\"begin\",5],", REST,
                  "instruction 0: the phase is 5, but phases are numbered from 0 to 4");
  expect_bad_step("[\"new\",0,0],", REST, "instruction 0 takes slot 0, which is static");
  expect_bad_step("[\"new\",1,0],[\"new\",1,0],", REST,
                  "instruction 1 takes slot 1, which was taken before");
  expect_bad_step("[\"drop\",1],", REST,
                  "instruction 0 gives back slot 1, which is not taken before");
  expect_bad_step("[\"drop\",0],", REST, "instruction 0 gives back slot 0, which is static");
  expect_bad_step(
      "[\"drop_previous\",2],[\"drop_previous\",2],", REST,
      "instruction 1 gives back slot 2 of the step before, which was given back before");
  expect_bad_step("[\"drop_previous\",0],", REST,
                  "instruction 0 gives back slot 0 of the step before, which is static");
  expect_bad_step("[\"end\",2],", REST,
                  "instruction 0 ends phase 2, which is not the last one that began");
  expect_bad_step("[\"begin\",0],[\"end\",1],", REST,
                  "instruction 1 ends phase 1, which is not the last one that began");
  expect_bad_step("", "[\"begin\",0]", "phase 0 does not end");
  expect_bad_step("", "[\"new\",1,0]",
                  "slot 1 is taken in each step, and given back by neither drop nor drop_previous");
  expect_bad_step("", "[\"new\",1,0],[\"drop\",1]",
                  "slot 2 is not static, and never taken by new or once");
  expect_bad_step("[\"drop_previous\",1],[\"new\",1,0],[\"drop\",1],", "[\"once\",2,0]",
                  "slot 1 is given back twice: by drop and drop_previous, or after once");
  expect_bad_step("[\"once\",1,0],[\"drop\",1],", REST,
                  "instruction 1 gives back slot 1, which is taken once, for all steps");
}

/* The same step, in which a module's activation is saved for backward and nothing else holds it. */
#define MODULE "\"modules\":[[2,3,3,4,0,1,[]]],"
static const char with_module[] = HEAD TEXTS FRAMES STACKS SLOTS
    "\"saved\":[[1,4000,4,5,7,7]],\"unheld\":[[1,4]]," MODULE "\"instructions\":[" BEGIN REST "]}";

static uint64_t peak_with(const char *text, const char *checkpoint, const char *offload) {
  tsr_model *model = read(text);
  tsr_simulation *s = NULL;
  tsr_error error = {0};
  tsr_simulate_options options = TSR_OPTIONS_INIT(tsr_simulate_options);
  options.steps = 1;
  options.fresh_process = true;
  options.checkpoint_modules = checkpoint;
  options.offload_modules = offload;
  if (tsr_simulate(model, &options, &s, &error)) fail_msg("%s", error.message);
  uint64_t peak = s->peak.totals.requested_bytes;
  assert_int_equal(s->peak.category_bytes[TSR_CATEGORY_RECOMPUTED], checkpoint ? 4000 : 0);
  assert_int_equal(s->phases[TSR_SIMULATE_FORWARD].category_bytes[TSR_CATEGORY_ACTIVATION],
                   checkpoint || offload ? 0 : 4000);
  tsr_simulation_free(s);
  tsr_model_free(model);
  return peak;
}

static void rewritten(void **state) {
  (void)state;
  /* Parameter, activation and gradient: the activation is there again when backward needs it. */
  assert_int_equal(peak_with(with_module, NULL, NULL), 6000);
  assert_int_equal(peak_with(with_module, "f", NULL), 6000);
  assert_int_equal(peak_with(with_module, "a.*", NULL), 6000);
  assert_int_equal(peak_with(with_module, NULL, "*"), 6000);
}

/* The module changes the tensor in slot 0 in place. */
#define WITH_EFFECTS(effects)                                                              \
  HEAD TEXTS FRAMES STACKS SLOTS "\"saved\":[[1,4000,4,5,7,7]],\"unheld\":[[1,4]]," MODULE \
                                 "\"effects\":[" effects "],\"instructions\":[" BEGIN REST "]}"

/* A checkpoint keeps a copy of the state, and runs the module again on another one. Recomputation and gradient are not in memory
 * together with the latter. */
static void state_is_copied(void **state) {
  (void)state;
  tsr_model *model = read(WITH_EFFECTS("[0,[0],-1]"));
  tsr_simulate_options options = TSR_OPTIONS_INIT(tsr_simulate_options);
  options.steps = 1;
  options.fresh_process = true;
  for (int is_rewritten = 0; is_rewritten < 2; is_rewritten++) {
    tsr_simulation *s = NULL;
    options.checkpoint_modules = is_rewritten ? "f" : NULL;
    assert_int_equal(tsr_simulate(model, &options, &s, NULL), 0);
    assert_int_equal(s->peak.totals.requested_bytes, is_rewritten ? 7000 : 6000);
    assert_int_equal(s->phases[TSR_SIMULATE_FORWARD].category_bytes[TSR_CATEGORY_ACTIVATION],
                     is_rewritten ? 1000 : 4000);
    tsr_simulation_free(s);
  }
  tsr_model_free(model);
}

/* A plan's lists do what the options do, to the modules that they name. */
static void planned(void **state) {
  (void)state;
  tsr_model *model = read(with_module);
  const tsr_module_choice choices[] = {{"f", TSR_MODULE_CHECKPOINT}, {"none", TSR_MODULE_OFFLOAD}};
  tsr_simulate_options options = TSR_OPTIONS_INIT(tsr_simulate_options);
  tsr_simulation *s = NULL;
  tsr_error error = {0};
  options.modules = choices;
  options.module_count = 1;
  assert_int_equal(tsr_simulate(model, &options, &s, &error), 0);
  assert_int_equal(s->peak.category_bytes[TSR_CATEGORY_RECOMPUTED], 4000);
  tsr_simulation_free(s);
  s = NULL;
  options.module_count = 2;
  assert_int_equal(tsr_simulate(model, &options, &s, &error), TSR_ERROR_ARGUMENT);
  assert_non_null(strstr(error.message, "'none'"));
  options.module_count = 1;
  options.offload_modules = "f";
  assert_int_equal(tsr_simulate(model, &options, &s, &error), TSR_ERROR_ARGUMENT);
  assert_non_null(strstr(error.message, "not both"));
  tsr_model_free(model);
}

static void expect_refusal(const char *text, const char *checkpoint, const char *offload,
                           int expected, const char *message) {
  tsr_model *model = read(text);
  tsr_simulation *s = NULL;
  tsr_error error = {0};
  tsr_simulate_options options = TSR_OPTIONS_INIT(tsr_simulate_options);
  options.checkpoint_modules = checkpoint;
  options.offload_modules = offload;
  int status = tsr_simulate(model, &options, &s, &error);
  if (status != expected || !strstr(error.message, message))
    fail_msg("status %d, \"%s\" instead of \"%s\"", status, error.message, message);
  assert_null(s);
  tsr_model_free(model);
}

#define WITH_SAVED(saved) \
  HEAD TEXTS FRAMES STACKS SLOTS saved MODULE "\"instructions\":[" BEGIN REST "]}"

static void refused_rewrites(void **state) {
  (void)state;
  expect_refusal(whole, "*", NULL, TSR_ERROR_ARGUMENT, "trace it again");
  expect_refusal(with_module, "g", NULL, TSR_ERROR_ARGUMENT, "no module of the step graph");
  expect_refusal(with_module, "f", "f", TSR_ERROR_ARGUMENT, "not both");
  expect_refusal(WITH_EFFECTS("[0,[],1]"), "f", NULL, TSR_ERROR_ARGUMENT,
                 "cannot run again in backward: it ??");
  expect_refusal(WITH_EFFECTS("[0,[0,0],-1]"), "f", NULL, TSR_ERROR_FORMAT, "contradicts");
  /* Let go of before it is made. */
  expect_refusal(WITH_SAVED("\"saved\":[[1,4000,4,5,7,7]],\"unheld\":[[1,2]],"), "f", NULL,
                 TSR_ERROR_FORMAT, "contradicts");
}

static void damaged_saves(void **state) {
  (void)state;
  expect_damage(WITH_SAVED("\"saved\":7,"), "'saved' is 7, not a list");
  expect_damage(WITH_SAVED("\"saved\":[[1,4000]],"),
                "save 0 is [1,4000], not [slot, bytes, made, used, left, gone]");
  expect_damage(WITH_SAVED("\"saved\":[[9,4000,4,5,7,7]],"),
                "save 0: the slot is 9, but slots are numbered from 0 to 3, or -1");
  expect_damage(WITH_SAVED("\"saved\":[[1,4000,5,4,7,7]],"),
                "save 0 is [1,4000,5,4,7,7]: it is made before the one before it, or used, left or "
                "gone too early");
  expect_damage(
      WITH_SAVED(""),
      "module 0: the end of saves is 1, not a whole number from 0 to 0"); /* it has a save */
  expect_damage(WITH_SAVED("\"saved\":[[1,1,4,5,7,7]],\"unheld\":[[1]],"),
                "'unheld', item 0 is [1], not [slot, place]");
  expect_damage(WITH_SAVED("\"saved\":[[1,1,4,5,7,7]],\"unheld\":[[1,99]],"),
                "'unheld', item 0: the place is 99, not a whole number from 0 to 13");
}

#define WITH_WORK(work)                                 \
  HEAD TEXTS FRAMES STACKS SLOTS "\"work\":[" work "]," \
                                 "\"instructions\":[" BEGIN REST "]}"

static void damaged_work(void **state) {
  (void)state;
  expect_damage(WITH_WORK("7"), "'work', item 0 is 7, not [place, operations, bytes, bits]");
  expect_damage(WITH_WORK("[1,0,0]"),
                "'work', item 0 is [1,0,0], not [place, operations, bytes, bits]");
  expect_damage(WITH_WORK("[1,0,0,8]"), "'work', item 0: bits is 8, not 16 or 32");
  expect_damage(
      WITH_WORK("[1,-1,0,32]"),
      "'work', item 0: operations is -1, not a whole number from 0 to 1152921504606846975");
  expect_damage(WITH_WORK("[1,0,0,32],[99,0,0,32]"),
                "'work', item 1: the place is 99, not a whole number from 0 to 13");
  expect_damage(WITH_WORK("[2,0,0,32],[1,0,0,32]"),
                "'work', item 1: the place is 1, less than that of the one before it, 2");
}

/* A millisecond of 16 bits on an A100: 60 % of 312 TFLOPS, and 5 us each; what has nothing to do takes nothing. */
static void timed(void **state) {
  (void)state;
  tsr_model *model = read(WITH_WORK("[1,187200000000,1000,16],[4,0,0,32]"));
  tsr_simulate_options options = TSR_OPTIONS_INIT(tsr_simulate_options);
  tsr_simulation *s = NULL;
  tsr_error error = {0};
  options.gpu = "a100";
  assert_int_equal(tsr_simulate(model, &options, &s, &error), 0);
  assert_true(s->step_seconds > 0.001004999 && s->step_seconds < 0.001005001);
  tsr_simulation_free(s);
  tsr_model_free(model);
}

/* The optimizer's state of 2000 bytes in the forms: 2000 and a temporary of 512, 4, and none. */
#define FORMS(loop)                                                                                \
  "\"optimizers\":[{\"class\":\"Lion\",\"forms\":{\"foreach\":{\"bytes\":[2000,512],\"category\":" \
  "[\"optimizer_state\",\"temporary\"],\"instructions\":[[\"once\",0,0],[\"new\",1,0],[\"drop\","  \
  "1]]},"                                                                                          \
  "\"loop\":{\"bytes\":[4],\"category\":[\"optimizer_state\"],\"instructions\":[" loop "]}}}],"
#define WITH_FORMS(loop) \
  HEAD TEXTS FRAMES STACKS SLOTS FORMS(loop) "\"instructions\":[" BEGIN REST "]}"
#define LOOP "[\"once\",0,0]"

static tsr_simulate_options with_form(tsr_optimizer_form form) {
  tsr_simulate_options options = TSR_OPTIONS_INIT(tsr_simulate_options);
  options.steps = 2;
  options.fresh_process = true;
  options.optimizer_form = form;
  return options;
}

static void forms(void **state) {
  (void)state;
  static const struct {
    tsr_optimizer_form form;
    uint64_t state_bytes, optimizer_peak;
  } cases[] = {{TSR_OPTIMIZER_FORM_TRACED, 2000, 4000},
               {TSR_OPTIMIZER_FORM_FOREACH, 2000, 4512},
               {TSR_OPTIMIZER_FORM_LOOP, 4, 2004}};
  tsr_model *model = read(WITH_FORMS(LOOP));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr_simulation *s = NULL;
    tsr_simulate_options options = with_form(cases[i].form);
    assert_int_equal(tsr_simulate(model, &options, &s, NULL), 0);
    assert_int_equal(s->peak.category_bytes[TSR_CATEGORY_OPTIMIZER_STATE], cases[i].state_bytes);
    assert_int_equal(s->phases[TSR_SIMULATE_OPTIMIZER].totals.requested_bytes,
                     cases[i].optimizer_peak);
    tsr_simulation_free(s);
  }
  tsr_model_free(model);
}

static void expect_no_form(const char *text, tsr_optimizer_form form, int expected,
                           const char *message) {
  tsr_model *model = read(text);
  tsr_simulation *s = NULL;
  tsr_error error = {0};
  tsr_simulate_options options = with_form(form);
  assert_int_equal(tsr_simulate(model, &options, &s, &error), expected);
  if (!strstr(error.message, message)) fail_msg("\"%s\"", error.message);
  assert_null(s);
  tsr_model_free(model);
}

static void refused_forms(void **state) {
  (void)state;
  static const char shared[] = HEAD TEXTS FRAMES STACKS SLOTS FORMS(
      LOOP) "\"instructions\":[" BEGIN
            "[\"begin\",3],[\"new\",2,0],[\"end\",3],[\"begin\",4],[\"drop\",1],"
            "[\"once\",3,0],[\"end\",4],[\"end\",0]]}";
  expect_no_form(whole, TSR_OPTIMIZER_FORM_LOOP, TSR_ERROR_ARGUMENT, "trace it again");
  expect_no_form(WITH_FORMS(LOOP), TSR_OPTIMIZER_FORM_FUSED, TSR_ERROR_ARGUMENT,
                 "Lion has no fused form");
  expect_no_form(shared, TSR_OPTIMIZER_FORM_LOOP, TSR_ERROR_ARGUMENT, "share memory");
}

static void damaged_forms(void **state) {
  (void)state;
  expect_damage(WITH_FORMS(""), "optimizer 0, loop: slot 0 is never taken by new or once");
  expect_damage(WITH_FORMS("[\"new\",0,0]"),
                "optimizer 0, loop: slot 0 is taken in each step and not given back by drop");
  expect_damage(WITH_FORMS("[\"drop\",0]"),
                "optimizer 0, loop: instruction 0 gives back slot 0, which is not taken before");
  expect_damage(
      WITH_FORMS("[\"once\",1,0]"),
      "optimizer 0, loop: instruction 0: the slot is 1, but slots are numbered from 0 to 0");
  expect_damage(
      WITH_FORMS("[\"once\",0,9]"),
      "optimizer 0, loop: instruction 0: the stack is 9, but stacks are numbered from 0 to 0");
  expect_damage(WITH_FORMS("[\"begin\",0]"),
                "optimizer 0, loop: instruction 0 is [\"begin\",0], not [\"new\", slot, stack], "
                "[\"once\", slot, stack] or [\"drop\", slot]");
  expect_damage(
      WITH_FORMS("[\"once\",0,0],[\"drop\",0]"),
      "optimizer 0, loop: instruction 1 gives back slot 0, which is taken once, for all steps");
}

/* ---- What kernels allocate while they run ---- */

#define OP(name) "\"texts\":[\"at::_ops::" name "::call\",\"??\",\"f\",\"a.py\"],"
#define WITH_KERNELS(op, more, kernels) \
  HEAD OP(op)                           \
  FRAMES STACKS SLOTS more "\"kernels\":" kernels ",\"instructions\":[" BEGIN REST "]}"
#define EFFICIENT "_scaled_dot_product_efficient_attention_backward"
#define FLASH     "_scaled_dot_product_flash_attention_backward"
#define EMBEDDING "embedding_dense_backward"

static uint64_t peak_of(const char *text, tsr_optimizer_form form) {
  tsr_model *model = read(text);
  tsr_simulation *s = NULL;
  tsr_error error = {0};
  tsr_simulate_options options = with_form(form);
  options.steps = 1;
  if (tsr_simulate(model, &options, &s, &error)) fail_msg("%s", error.message);
  uint64_t peak = s->peak.totals.requested_bytes;
  tsr_simulation_free(s);
  tsr_model_free(model);
  return peak;
}

/* In backward of the first step there are 1000 + 4000 + 1000 bytes beside the temporaries. Batch 1, 2 heads, 100 rows and columns, width 8. */
static void temporaries(void **state) {
  (void)state;
  static const struct {
    const char *text;
    uint64_t bytes;
  } cases[] = {
      /* A product of 1600 numbers, its 200 sums, and those again when the product is gone. */
      {WITH_KERNELS(EFFICIENT, "", "[[6,7,32,[1,2,2,100,100,8,8]]]"), 4 * (1600 + 200)},
      {WITH_KERNELS(EFFICIENT, "", "[[6,7,32,[1,2,2,100,100,8,0]]]"), 4 * (200 + 200)},
      {WITH_KERNELS(EFFICIENT, "", "[[6,7,16,[1,2,2,100,100,8,16]]]"), 4 * (200 + 1600)},
      {WITH_KERNELS(EFFICIENT, "", "[[6,7,64,[1,2,2,100,100,8,8]]]"), 0},
      /* Rows rounded up to 128, a width to 32. */
      {WITH_KERNELS(FLASH, "", "[[6,7,16,[1,2,2,100,100,8,8]]]"), 4 * 2 * 128 * (1 + 32)},
      {WITH_KERNELS(FLASH, "", "[[6,7,16,[1,2,1,100,100,8,8]]]"),
       4 * 2 * 128 * (1 + 32) + 2 * 2 * 1600},
      {WITH_KERNELS(EMBEDDING, "", "[[6,7,16,[3072,2,64]]]"), 0},
      {WITH_KERNELS(EMBEDDING, "", "[[6,7,16,[3073,2,64]]]"), 3073 * (3 * 8 + 2 * 4)},
      {WITH_KERNELS(EMBEDDING, "", "[[6,7,32,[3073,2,32]]]"), 3073 * (3 * 4 + 2 * 4)},
      /* As an H100 had them: biases of 8,000 features over 2,048 rows, and of 2,048 over 1,576. */
      {WITH_KERNELS("sum_dim_IntList", "", "[[6,7,32,[8000,2048,4,0,132,2048]]]"),
       131072000 + 4 * 63},
      {WITH_KERNELS("sum_dim_IntList", "", "[[6,7,32,[2048,1576,4,0,132,2048]]]"),
       26214400 + 4 * 16},
      {WITH_KERNELS("sum_dim_IntList", "", "[[6,7,32,[2048,1000,4,0,132,2048]]]"), 0},
      {WITH_KERNELS("sum_dim_IntList", "", "[[6,7,32,[0,2048,4,0,132,2048]]]"), 0},
      {WITH_KERNELS("sum_dim_IntList", "", "[[6,7,32,[8000,2048,0,0,132,0]]]"), 0},
      /* All of a million numbers: 512 threads of a block read four at once, and each of 123 blocks has a sum. */
      {WITH_KERNELS("sum", "", "[[6,7,32,[1,1000000,1,4,108,2048]]]"), 4 * 123 + 4 * 1},
      {WITH_KERNELS("mse_loss", "", "[[6,7,32,[3200]]]"), 12800},
      {WITH_KERNELS("smooth_l1_loss", "", "[[6,7,16,[3200,3200]]]"), 12800},
      {WITH_KERNELS("_foreach_norm_Scalar", "", "[[6,7,32,[10,3]]]"), 120},
      /* Ops that the table does not have may have any sizes. */
      {WITH_KERNELS("tanh", "", "[[6,7,16,[1,2]]]"), 0},
      {WITH_KERNELS("tanh", "", "[]"), 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(peak_of(cases[i].text, TSR_OPTIMIZER_FORM_TRACED), 6000 + cases[i].bytes);
}

static tsr__step_graph *graph_of(const char *text) {
  json_t *root = json_loads(text, 0, NULL);
  tsr__step_graph *graph = NULL;
  tsr_error error = {0};
  assert_non_null(root);
  if (tsr__step_graph_read(root, &graph, &error)) fail_msg("%s", error.message);
  json_decref(root);
  return graph;
}

/* Compare the part of a schedule, as "+4 -1": slots that are allocated and freed, and others as their kinds. */
static void expect_schedule(const tsr__step_graph *graph, const char *expected) {
  char text[1024] = "";
  size_t end = 0;
  for (size_t i = 0; i < graph->instrs.count; i++) {
    const tsr__instr *instr = &graph->instrs.items[i];
    bool makes = instr->kind == TSR__INSTR_NEW || instr->kind == TSR__INSTR_NEW_ONCE;
    char sign = makes                                                              ? '+'
                : instr->kind == TSR__INSTR_BEGIN || instr->kind == TSR__INSTR_END ? '.'
                                                                                   : '-';
    if (sign == '.')
      end += (size_t)snprintf(text + end, sizeof text - end, ". ");
    else
      end += (size_t)snprintf(text + end, sizeof text - end, "%c%u ", sign, instr->subject - 1);
  }
  assert_string_equal(text, expected);
}

/* Where an op begins, things happen before its temporaries, and where it ends, after them: the sorted indices of an embedding are
 * allocated before its gradient, slot 2. */
static void places_of_temporaries(void **state) {
  (void)state;
  tsr__step_graph *graph = graph_of(WITH_KERNELS(EMBEDDING,
                                                 "\"saved\":[[1,4000,4,6,7,7]],\"unheld\":[[1,7]],"
                                                 "\"work\":[[6,0,8,32],[7,0,8,32],[13,0,0,32]],"
                                                 "\"modules\":[[2,3,3,4,0,1,[]],[2,3,6,7,0,0,[]]],",
                                                 "[[6,7,32,[4000,2,64]]]"));
  expect_schedule(graph, ". -2 . +1 . . +4 +5 +2 +6 +7 -7 -6 -5 -4 -1 . . +3 . . ");
  const tsr__save *save = &graph->saves.items[0];
  assert_int_equal(save->made, 4);
  assert_int_equal(save->used, 6);
  assert_int_equal(save->left, 15);
  assert_int_equal(save->gone, 15);
  assert_int_equal(graph->unheld.count, graph->slots.count);
  assert_int_equal(graph->unheld.items[1], 15);
  assert_int_equal(graph->unheld.items[4], TSR_NONE);
  assert_int_equal(graph->work.items[0].place, 6);
  assert_int_equal(graph->work.items[1].place, 15);
  assert_int_equal(graph->work.items[1].phase, TSR__PHASE_BACKWARD);
  assert_int_equal(graph->work.items[2].place, 21);
  assert_int_equal(graph->modules.items[0].end, 4);
  assert_int_equal(graph->modules.items[1].begin, 6);
  assert_int_equal(graph->modules.items[1].end, 15);
  for (size_t i = 4; i < graph->slots.count; i++)
    assert_int_equal(graph->slots.items[i].category, TSR_CATEGORY_TEMPORARY);
  for (size_t i = 6; i < 15; i++) assert_true(graph->instrs.items[i].is_backward);
  tsr__schedule schedule;
  assert_int_equal(tsr__step_graph_schedule(graph, 512, false, &schedule), 0);
  assert_string_equal(tsr__schedule_op_name(&schedule, TSR_NONE, schedule.instrs.items[9].stack),
                      EMBEDDING);
  tsr__schedule_release(&schedule);
  tsr__step_graph_free(graph);
}

/* Two ops, one right after the other, in the order of the table; on the stream of their results. */
static void temporaries_of_two(void **state) {
  (void)state;
  tsr__step_graph *graph = graph_of(HEAD OP(EFFICIENT) FRAMES STACKS WITH_STREAMS(
      "[0,7,0,0]") "\"kernels\":[[1,2,32,[1,2,2,3,3,4,4]],[2,3,16,[1,2,2,3,3,4,4]]],"
                   "\"instructions\":["
                   "[\"drop_previous\",2],[\"new\",1,0],[\"new\",2,0],[\"drop\",1],[\"once\",3,0]]"
                   "}");
  expect_schedule(graph, "-2 +1 +4 +5 -4 +6 -5 -6 +2 +7 +8 -8 -7 -1 +3 ");
  assert_int_equal(graph->slots.items[4].stream, 7);
  assert_int_equal(graph->slots.items[7].stream, 0);
  assert_int_equal(graph->slots.items[4].bytes, 4 * 24);
  assert_int_equal(graph->slots.items[8].bytes, 4 * 24);
  tsr__step_graph_free(graph);
}

/* A module whose op has temporaries has them again when it is run again. */
static void temporaries_again(void **state) {
  (void)state;
  tsr__step_graph *graph =
      graph_of(WITH_KERNELS(EMBEDDING, "\"saved\":[[1,4000,4,5,7,7]],\"unheld\":[[1,4]]," MODULE,
                            "[[3,4,32,[4000,2,64]],[6,7,32,[4000,2,64]]]"));
  tsr__step_graph *again = NULL;
  const tsr__rewrite_choice choice = {"f", TSR__REWRITE_CHECKPOINT};
  expect_schedule(graph, ". -2 . +4 +5 +1 +6 +7 -7 -6 -5 -4 . "
                         ". +8 +9 +2 +10 +11 -11 -10 -9 -8 -1 . . +3 . . ");
  assert_int_equal(tsr__step_graph_rewrite(graph, &choice, 1, &again, NULL), 0);
  expect_schedule(again, ". -2 . +4 +5 +1 +6 +7 -7 -6 -5 -4 -1 . "
                         "+12 +13 +14 +15 +16 -16 -15 -13 -12 "
                         ". +8 +9 +2 +10 +11 -11 -10 -9 -8 -14 . . +3 . . ");
  assert_int_equal(again->slots.items[14].category, TSR_CATEGORY_RECOMPUTED);
  assert_int_equal(again->slots.items[15].category, TSR_CATEGORY_TEMPORARY);
  tsr__step_graph_free(again);
  tsr__step_graph_free(graph);
}

/* The planner's figures contain them, also when the optimizer has another form. */
static void temporaries_in_plans(void **state) {
  (void)state;
  static const char text[] = WITH_KERNELS(EFFICIENT, FORMS(LOOP), "[[6,7,16,[1,2,2,100,100,8,8]]]");
  tsr__step_graph *graph = graph_of(text);
  tsr__machine_rates rates = {0};
  tsr__survey_options how = {.rates = &rates};
  tsr__schedule schedule;
  tsr__survey survey;
  tsr__rates_of_sheet(tsr__data_sheet_of_name("a100"), &rates);
  assert_int_equal(tsr__step_graph_schedule(graph, 512, false, &schedule), 0);
  assert_int_equal(tsr__survey_schedule(&schedule, &how, &survey, NULL), 0);
  /* From the second step on: parameter, activation, gradient and state, and 800 + 6400 bytes, in blocks. */
  assert_int_equal(survey.most_bytes, 1024 + 4096 + 1024 + 2048 + 1024 + 6656);
  assert_string_equal(survey.floor_op, EFFICIENT);
  tsr__survey_release(&survey);
  tsr__schedule_release(&schedule);
  tsr__step_graph_free(graph);
  assert_int_equal(peak_of(text, TSR_OPTIMIZER_FORM_LOOP), 1000 + 4000 + 1000 + 7200);
}

static void expect_bad_kernels(const char *kernels, const char *message) {
  char text[2048];
  (void)snprintf(text, sizeof text, "%s\"kernels\":%s,%s]}", HEAD OP(FLASH) FRAMES STACKS SLOTS,
                 kernels, "\"instructions\":[" BEGIN REST);
  expect_damage(text, message);
}

static void damaged_kernels(void **state) {
  (void)state;
  expect_bad_kernels("7", "'kernels' is 7, not a list");
  expect_bad_kernels("[7]", "'kernels', item 0 is 7, not [begin, end, bits, [sizes]]");
  expect_bad_kernels("[[6,7,16]]",
                     "'kernels', item 0 is [6,7,16], not [begin, end, bits, [sizes]]");
  expect_bad_kernels("[[6,7,16,7]]", "'kernels', item 0: the sizes are 7, not a list");
  expect_bad_kernels("[[6,99,16,[]]]",
                     "'kernels', item 0: the end is 99, not a whole number from 0 to 13");
  expect_bad_kernels(
      "[[-1,7,16,[]]]",
      "'kernels', item 0: the first instruction is -1, not a whole number from 0 to 13");
  expect_bad_kernels("[[6,7,0,[]]]",
                     "'kernels', item 0: bits is 0, not a whole number from 1 to 128");
  expect_bad_kernels("[[6,7,129,[]]]",
                     "'kernels', item 0: bits is 129, not a whole number from 1 to 128");
  expect_bad_kernels("[[6,7,16,[1,2,2,100,100,8]]]",
                     "'kernels', item 0: the sizes are [1,2,2,100,100,8], but "
                     "_scaled_dot_product_flash_attention_backward has 7");
  expect_bad_kernels("[[6,7,16,[1,2,2,100,100,8,8,8]]]",
                     "'kernels', item 0: the sizes are [1,2,2,100,100,8,8,8], but "
                     "_scaled_dot_product_flash_attention_backward has 7");
  expect_bad_kernels(
      "[[6,7,16,[1,2,2,-1,100,8,8]]]",
      "'kernels', item 0: a size is -1, not a whole number from 0 to 281474976710655");
  expect_bad_kernels(
      "[[6,7,16,[1,2,2,281474976710656,100,8,8]]]",
      "'kernels', item 0: a size is 281474976710656, not a whole number from 0 to 281474976710655");
  expect_bad_kernels(
      "[[6,7,16,[1,2,2,0.5,100,8,8]]]",
      "'kernels', item 0: a size is 0.5, not a whole number from 0 to 281474976710655");
  /* 2^47 numbers of four bytes; and a product that would not fit in 64 bits. */
  expect_bad_kernels("[[6,7,16,[1,1,1,1099511627776,1,128,1]]]",
                     "'kernels', item 0: a temporary of "
                     "_scaled_dot_product_flash_attention_backward has 2^48 bytes or more");
  expect_bad_kernels(
      "[[6,7,16,[281474976710655,281474976710655,1,281474976710655,1,281474976710655,1]]]",
      "'kernels', item 0: a temporary of _scaled_dot_product_flash_attention_backward has 2^48 "
      "bytes or more");
  /* Not about what one op allocates. */
  expect_bad_kernels("[[6,6,16,[1,2,2,1,1,8,8]]]", "'kernels', item 0 ends at 6, but begins at 6");
  expect_bad_kernels("[[7,6,16,[1,2,2,1,1,8,8]]]", "'kernels', item 0 ends at 6, but begins at 7");
  expect_bad_kernels("[[6,8,16,[1,2,2,1,1,8,8]]]",
                     "'kernels', item 0: instructions 6 to 7 are not all new or once");
  expect_bad_kernels("[[6,7,16,[1,2,2,1,1,8,8]],[3,4,16,[1,2,2,1,1,8,8]]]",
                     "'kernels', item 1 begins at 3, before the end of the one before it, 7");
  expect_bad_kernels("[[6,7,16,[1,2,2,1,1,8,8]],[6,7,16,[1,2,2,1,1,8,8]]]",
                     "'kernels', item 1 begins at 6, before the end of the one before it, 7");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(simulated),
      cmocka_unit_test(workspaces),
      cmocka_unit_test(other_kernels),
      cmocka_unit_test(unknown_cards),
      cmocka_unit_test(routings),
      cmocka_unit_test(compiled),
      cmocka_unit_test(refused_options),
      cmocka_unit_test(damaged_tables),
      cmocka_unit_test(damaged_slots),
      cmocka_unit_test(damaged_keys),
      cmocka_unit_test(streams),
      cmocka_unit_test(damaged_schedules),
      cmocka_unit_test(rewritten),
      cmocka_unit_test(state_is_copied),
      cmocka_unit_test(refused_rewrites),
      cmocka_unit_test(planned),
      cmocka_unit_test(damaged_saves),
      cmocka_unit_test(damaged_work),
      cmocka_unit_test(timed),
      cmocka_unit_test(forms),
      cmocka_unit_test(refused_forms),
      cmocka_unit_test(temporaries),
      cmocka_unit_test(places_of_temporaries),
      cmocka_unit_test(temporaries_of_two),
      cmocka_unit_test(temporaries_again),
      cmocka_unit_test(temporaries_in_plans),
      cmocka_unit_test(damaged_kernels),
      cmocka_unit_test(damaged_forms),
  };
  return cmocka_run_group_tests_name("step graph", tests, NULL, NULL);
}
