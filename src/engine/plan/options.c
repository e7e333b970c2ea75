/* options.c - see options.h: one switch over the kinds of fields for each thing that is done with an option. */
#include "plan/options.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "models/model.h"
#include "tessera/unstable/runs.h"

static_assert(TSR_OPTIMIZER_ADAMW == 0 && TSR_OPTIMIZER_ADAMW_FOREACH == 1 &&
                  TSR_OPTIMIZER_ADAMW_FUSED == 2 && TSR_OPTIMIZER_ADAMW_LOOP == 3 &&
                  TSR_OPTIMIZER_SGD == 4 && TSR_OPTIMIZER_SGD_MOMENTUM == 5 &&
                  TSR_OPTIMIZER_ADAFACTOR == 6 && TSR_OPTIMIZER_MUON == 7 &&
                  TSR_OPTIMIZER_ADAMW_8BIT == 8 && TSR_OPTIMIZER_LION == 9,
              "the words of `optimizer` are in the order of its enum");
static_assert(TSR_SIMULATE_FP32 == 0 && TSR_SIMULATE_BF16 == 1 && TSR_SIMULATE_FP16 == 2 &&
                  TSR_SIMULATE_AUTOCAST_BF16 == 3 && TSR_SIMULATE_AUTOCAST_FP16 == 4,
              "the words of `dtype` are in the order of its enum");
static_assert(TSR_CHECKPOINT_NONE == 0 && TSR_CHECKPOINT_FULL == 1 &&
                  TSR_CHECKPOINT_SELECTIVE == 2 && TSR_CHECKPOINT_EVERY == 3 &&
                  TSR_CHECKPOINT_SQRT == 4,
              "the words of `checkpoint` are in the order of its enum");
static_assert(TSR_ACCUMULATION_AUTO == 0 && TSR_ACCUMULATION_FLAT == 1 &&
                  TSR_ACCUMULATION_GROUPED == 2,
              "the words of `accumulation` are in the order of its enum");
static_assert(TSR_ATTENTION_SDPA == 0 && TSR_ATTENTION_EAGER == 1 && TSR_ATTENTION_FLASH == 2 &&
                  TSR_ATTENTION_EFFICIENT == 3 && TSR_ATTENTION_CHUNKED == 4,
              "the words of `attention` are in the order of its enum");
static_assert(sizeof(tsr_simulate_optimizer) == sizeof(int) &&
                  sizeof(tsr_simulate_dtype) == sizeof(int) &&
                  sizeof(tsr_simulate_checkpoint) == sizeof(int) &&
                  sizeof(tsr_simulate_attention) == sizeof(int) &&
                  sizeof(tsr_simulate_accumulation) == sizeof(int),
              "the field of a word is as large as an int");

const tsr_parameter *tsr__option_at(size_t index) {
  return tsr_run_options[index].name ? &tsr_run_options[index] : NULL;
}

const tsr_parameter *tsr__option_find(const char *name) {
  for (const tsr_parameter *row = tsr_run_options; row->name; row++)
    if (strcmp(row->name, name) == 0) return row;
  return NULL;
}

/* ---- fields ---- */

static size_t field_bytes(const tsr_parameter *row) {
  switch (row->stored) {
  case TSR_STORED_COUNT: return sizeof(uint64_t);
  case TSR_STORED_REAL: return sizeof(double);
  case TSR_STORED_FLAG: return sizeof(bool);
  case TSR_STORED_WORD: return sizeof(int);
  case TSR_STORED_OFFLOAD: return sizeof(tsr_offload);
  case TSR_STORED_IN_PLACE:
  case TSR_STORED_LORA: return sizeof(unsigned);
  case TSR_STORED_NONE: break;
  }
  assert(false && "a run option without a field");
  return 0;
}

static void *field_of(const tsr_parameter *row, tsr_simulate_options *options) {
  return (char *)options + row->stored_at;
}

static const void *field_in(const tsr_parameter *row, const tsr_simulate_options *options) {
  return (const char *)options + row->stored_at;
}

static uint64_t count_in(const tsr_simulate_options *options, size_t at) {
  uint64_t count;
  memcpy(&count, (const char *)options + at, sizeof count);
  return count;
}

static void put_count(tsr_simulate_options *options, size_t at, uint64_t count) {
  memcpy((char *)options + at, &count, sizeof count);
}

static int word_in(const tsr_parameter *row, const tsr_simulate_options *options) {
  int word;
  memcpy(&word, field_in(row, options), sizeof word);
  return word;
}

void tsr__option_reset(const tsr_parameter *row, tsr_simulate_options *options) {
  memset(field_of(row, options), 0, field_bytes(row));
  if (row->number_at) put_count(options, row->number_at, 0);
  if (row->kind == TSR_PARAMETER_COUNT && row->stored == TSR_STORED_COUNT)
    put_count(options, row->stored_at, (uint64_t)row->fallback);
}

void tsr__options_default(tsr_simulate_options *options) {
  for (size_t i = 0; tsr__option_at(i); i++) tsr__option_reset(tsr__option_at(i), options);
}

bool tsr__option_equal(const tsr_parameter *row, const tsr_simulate_options *a,
                       const tsr_simulate_options *b) {
  return memcmp(field_in(row, a), field_in(row, b), field_bytes(row)) == 0 &&
         (!row->number_at || count_in(a, row->number_at) == count_in(b, row->number_at));
}

bool tsr__option_is_default(const tsr_parameter *row, const tsr_simulate_options *options) {
  static const unsigned char zeros[sizeof(tsr_offload)];
  if (row->kind == TSR_PARAMETER_COUNT && row->stored == TSR_STORED_COUNT)
    return count_in(options, row->stored_at) == (uint64_t)row->fallback;
  return memcmp(field_in(row, options), zeros, field_bytes(row)) == 0;
}

void tsr__option_copy(const tsr_parameter *row, const tsr_simulate_options *from,
                      tsr_simulate_options *to) {
  memcpy(field_of(row, to), field_in(row, from), field_bytes(row));
  if (row->number_at) put_count(to, row->number_at, count_in(from, row->number_at));
}

/* ---- texts ---- */

static void add_word(char text[TSR__OPTION_BYTES], const char *word, const char *more) {
  size_t used = strlen(text);
  (void)snprintf(text + used, TSR__OPTION_BYTES - used, "%s%s%s", used ? "," : "", word, more);
}

/* The words in the order of the struct, without ":host", which is understood. */
static void offload_text(const tsr_offload *homes, char text[TSR__OPTION_BYTES]) {
  const struct {
    const char *word;
    tsr_space space;
  } words[] = {{"optimizer", homes->optimizer},
               {"gradients", homes->gradients},
               {"parameters", homes->parameters},
               {"activations", homes->activations}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (words[i].space != TSR_SPACE_DEVICE)
      add_word(text, words[i].word, words[i].space == TSR_SPACE_DISK ? ":disk" : "");
}

/* In the order of the flags. */
static void in_place_text(unsigned flags, char text[TSR__OPTION_BYTES]) {
  for (unsigned flag = 1; flag <= flags; flag <<= 1)
    if (flags & flag) add_word(text, tsr_in_place_word((tsr_in_place)flag), "");
}

/* The fewest digits that read back as the same number. */
static void real_text(double number, char text[TSR__OPTION_BYTES]) {
  for (int digits = 1; digits <= 17; digits++) {
    (void)snprintf(text, TSR__OPTION_BYTES, "%.*g", digits, number);
    double again = strtod(text, NULL);
    if (!(again < number || again > number)) break;
  }
}

/* "chunked:64", or the word alone. */
static void word_text(const char *word, uint64_t number, char text[TSR__OPTION_BYTES]) {
  const char *colon = strchr(word, ':');
  if (colon)
    (void)snprintf(text, TSR__OPTION_BYTES, "%.*s:%" PRIu64, (int)(colon - word), word, number);
  else
    (void)snprintf(text, TSR__OPTION_BYTES, "%s", word);
}

void tsr__option_text(const tsr_parameter *row, const tsr_simulate_options *options,
                      char text[TSR__OPTION_BYTES]) {
  const void *field = field_in(row, options);
  bool is_choice = row->kind == TSR_PARAMETER_CHOICE;
  text[0] = '\0';
  switch (row->stored) {
  case TSR_STORED_COUNT: {
    uint64_t count = count_in(options, row->stored_at);
    if (is_choice)
      word_text(row->choices[count != 0], count, text);
    else
      (void)snprintf(text, TSR__OPTION_BYTES, "%" PRIu64, count);
    break;
  }
  case TSR_STORED_REAL:
    if (row->kind == TSR_PARAMETER_COUNT)
      (void)snprintf(text, TSR__OPTION_BYTES, "%.0f", *(const double *)field);
    else
      real_text(*(const double *)field, text);
    break;
  case TSR_STORED_FLAG:
    if (is_choice) word_text(row->choices[*(const bool *)field], 0, text);
    break;
  case TSR_STORED_WORD:
    word_text(row->choices[word_in(row, options)],
              row->number_at ? count_in(options, row->number_at) : 0, text);
    break;
  case TSR_STORED_OFFLOAD: offload_text(field, text); break;
  case TSR_STORED_IN_PLACE: in_place_text(*(const unsigned *)field, text); break;
  case TSR_STORED_LORA: tsr__lora_text(*(const unsigned *)field, text, TSR__OPTION_BYTES); break;
  case TSR_STORED_NONE: assert(false);
  }
}

/* ---- values ---- */

/* A number above 0 in a text parameter; 0 if that is not given. */
static int take_real(const tsr_params *params, const char *name, double *out, tsr_error *error) {
  const char *text = tsr_params_text(params, name);
  char *end = NULL, format[96];
  *out = text ? strtod(text, &end) : 0;
  if (!text || (*text && !*end && *out > 0 && isfinite(*out))) return 0;
  *out = 0;
  (void)snprintf(format, sizeof format, "{=%.40s} must be a number above 0, not '%%.40s'", name);
  return tsr_params_fail(params, error, format, text);
}

/* The value of an option, as a parameter or a text has it. */
typedef struct given {
  uint64_t number; /* of a count, or after the colon of a word */
  double real;
  int word; /* its index among row->choices, or -1 */
  bool is_set;
  const char *text;
} given;

/* Put a value into the option's field. Fails with TSR_ERROR_ARGUMENT as the lists of `offload` and `in_place` do. */
static int store(const tsr_parameter *row, const given *value, tsr_simulate_options *options,
                 tsr_error *error) {
  void *field = field_of(row, options);
  if (row->number_at) put_count(options, row->number_at, value->number);
  switch (row->stored) {
  case TSR_STORED_COUNT: *(uint64_t *)field = value->number; break;
  case TSR_STORED_REAL: *(double *)field = value->real; break;
  case TSR_STORED_FLAG: *(bool *)field = value->is_set; break;
  case TSR_STORED_WORD: *(int *)field = value->word < 0 ? 0 : value->word; break;
  case TSR_STORED_OFFLOAD: return tsr_offload_parse(value->text, field, error);
  case TSR_STORED_IN_PLACE: return tsr_in_place_parse(value->text, field, error);
  case TSR_STORED_LORA: return tsr_lora_parse(value->text, field, error);
  case TSR_STORED_NONE: assert(false);
  }
  return 0;
}

int tsr__option_take(const tsr_parameter *row, const tsr_params *params,
                     tsr_simulate_options *options, tsr_error *error) {
  const char *name = row->name;
  given value = {.word = -1};
  int status = 0;
  tsr__option_reset(row, options);
  switch (row->kind) {
  case TSR_PARAMETER_CHOICE:
    if (tsr_params_choice_key(params, name)) return 0;
    value.word = tsr_params_choice(params, name);
    value.number = tsr_params_choice_number(params, name);
    value.is_set = value.word == 1;
    break;
  case TSR_PARAMETER_COUNT:
    value.number = tsr_params_count(params, name);
    value.real = (double)value.number;
    break;
  case TSR_PARAMETER_FLAG: value.is_set = tsr_params_flag(params, name); break;
  default:
    value.text = tsr_params_text(params, name);
    if (row->stored == TSR_STORED_REAL) status = take_real(params, name, &value.real, error);
  }
  return status ? status : store(row, &value, options, error);
}

/* The index of the word that a text begins with, up to a colon, and the number after that. */
static int find_word(const tsr_parameter *row, const char *text, uint64_t *number) {
  size_t length = strcspn(text, ":");
  *number = text[length] ? strtoull(text + length + 1, NULL, 10) : 0;
  for (int i = 0; row->choices[i]; i++)
    if (strcspn(row->choices[i], ":") == length && strncmp(row->choices[i], text, length) == 0)
      return i;
  assert(false && "a text that is none of the option's words");
  return 0;
}

void tsr__option_set(const char *name, const char *text, tsr_simulate_options *options) {
  const tsr_parameter *row = tsr__option_find(name);
  assert(row);
  bool is_choice = row->kind == TSR_PARAMETER_CHOICE;
  given value = {.word = -1, .text = text, .real = strtod(text, NULL)};
  value.number = strtoull(text, NULL, 10);
  if (is_choice) value.word = find_word(row, text, &value.number);
  value.is_set = is_choice ? value.word == 1 : strcmp(text, "true") == 0;
  tsr__option_reset(row, options);
  int status = store(row, &value, options, NULL);
  assert(status == 0);
  (void)status;
}
