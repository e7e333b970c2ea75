/* words.c - reads the lists of words in which users choose what is offloaded, what runs in place, and what gets an adapter. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "models/model.h"
#include "tessera/unstable/runs.h"

/* Read one word of the list, of `length` bytes. */
static bool read_home(const char *word, size_t length, tsr_offload *out) {
  static const char *const names[] = {"optimizer", "gradients", "parameters", "activations"};
  tsr_space *const homes[] = {&out->optimizer, &out->gradients, &out->parameters,
                              &out->activations};
  const char *colon = memchr(word, ':', length);
  size_t name = colon ? (size_t)(colon - word) : length;
  bool is_disk = colon && tsr_word_is(colon + 1, length - name - 1, "disk");
  if (colon && !is_disk && !tsr_word_is(colon + 1, length - name - 1, "host")) return false;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (!tsr_word_is(word, name, names[i])) continue;
    *homes[i] = is_disk ? TSR_SPACE_DISK : TSR_SPACE_HOST;
    return true;
  }
  return false;
}

int tsr_offload_parse(const char *text, tsr_offload *out, tsr_error *error) {
  tsr_offload homes = {.optimizer = TSR_SPACE_DEVICE};
  for (const char *word = text; word && *word;) {
    size_t length = strcspn(word, ",");
    if (!read_home(word, length, &homes))
      return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "'%.*s' cannot be offloaded: choose from optimizer, gradients, parameters "
                       "and activations; :host may follow each, and :disk activations",
                       (int)(length < 40 ? length : 40), word);
    word += length + (word[length] == ',');
  }
  *out = homes;
  return 0;
}

static const struct {
  tsr_in_place which;
  const char *word;
} in_place_words[] = {{TSR_IN_PLACE_ADD, "add"},
                      {TSR_IN_PLACE_DROPOUT, "dropout"},
                      {TSR_IN_PLACE_GELU, "gelu"},
                      {TSR_IN_PLACE_SILU, "silu"},
                      {TSR_IN_PLACE_PRODUCT, "product"}};
enum { IN_PLACE_WORDS = sizeof in_place_words / sizeof *in_place_words };

const char *tsr_in_place_word(tsr_in_place which) {
  for (size_t i = 0; i < IN_PLACE_WORDS; i++)
    if (in_place_words[i].which == which) return in_place_words[i].word;
  return "";
}

int tsr_in_place_parse(const char *text, unsigned *out, tsr_error *error) {
  unsigned flags = 0;
  for (const char *word = text; word && *word;) {
    size_t length = strcspn(word, ","), i = 0;
    while (i < IN_PLACE_WORDS && !tsr_word_is(word, length, in_place_words[i].word)) i++;
    if (i == IN_PLACE_WORDS)
      return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "'%.*s' cannot be in place: add, dropout, gelu, silu and product can",
                       (int)(length < 40 ? length : 40), word);
    flags |= in_place_words[i].which;
    word += length + (word[length] == ',');
  }
  *out = flags;
  return 0;
}

static const struct {
  unsigned targets;
  const char *word;
} lora_words[] = {{TSR_LORA_ALL, "all-linear"},      {TSR_LORA_C_ATTN, "c_attn"},
                  {TSR_LORA_C_PROJ, "c_proj"},       {TSR_LORA_C_FC, "c_fc"},
                  {TSR_LORA_Q_PROJ, "q_proj"},       {TSR_LORA_K_PROJ, "k_proj"},
                  {TSR_LORA_V_PROJ, "v_proj"},       {TSR_LORA_O_PROJ, "o_proj"},
                  {TSR_LORA_GATE_PROJ, "gate_proj"}, {TSR_LORA_UP_PROJ, "up_proj"},
                  {TSR_LORA_DOWN_PROJ, "down_proj"}};
enum { LORA_WORDS = sizeof lora_words / sizeof *lora_words };

int tsr_lora_parse(const char *text, unsigned *out, tsr_error *error) {
  unsigned targets = 0;
  for (const char *word = text; word && *word;) {
    size_t length = strcspn(word, ","), i = 0;
    while (i < LORA_WORDS && !tsr_word_is(word, length, lora_words[i].word)) i++;
    if (i == LORA_WORDS)
      return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "'%.*s' gets no adapter: all-linear, c_attn, c_proj and c_fc (GPT-2), or "
                       "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj can",
                       (int)(length < 40 ? length : 40), word);
    targets |= lora_words[i].targets;
    word += length + (word[length] == ',');
  }
  *out = targets;
  return 0;
}

void tsr__lora_text(unsigned targets, char *text, size_t room_bytes) {
  assert(room_bytes);
  text[0] = '\0';
  for (size_t i = 0; i < LORA_WORDS && targets; i++) {
    if ((lora_words[i].targets & targets) != lora_words[i].targets) continue;
    size_t used = strlen(text);
    (void)snprintf(text + used, room_bytes - used, "%s%s", used ? "," : "", lora_words[i].word);
    targets &= ~lora_words[i].targets;
  }
}
