/* outside.c - see outside.h. */
#include "questions/outside.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/format.h"
#include "models/model.h"
#include "tessera/unstable/runs.h"
#include "traced/step_graph.h"

const tsr__data_sheet *tsr__params_card(const tsr_params *params, const tsr_model *model) {
  const char *name = tsr_params_gpu(params);
  if (!name && model && model->graph) name = tsr__step_graph_gpu(model->graph);
  return name ? tsr__data_sheet_of_name(name) : NULL;
}

/* The card of --gpu. */
static const tsr__data_sheet *named_card(const tsr_params *params) {
  return tsr__params_card(params, NULL);
}

static int read_machine(const tsr_params *params, tsr__machine **out, tsr_error *error) {
  const char *path;
  size_t size;
  const char *text =
      tsr_params_has(params, "machine") ? tsr_params_file(params, "machine", &path, &size) : NULL;
  *out = NULL;
  int status = text ? tsr__machine_parse(text, size, out, error) : 0;
  if (status == 0 || !error) return status;
  tsr_error cause = *error;
  return tsr__fail(error, (tsr_status)status, cause.offset, "%.200s: %s", path, cause.message);
}

int tsr__params_outside(const tsr_params *params, const tsr_model *model, const char *limit,
                        const tsr_simulate_options *how, tsr_outside *out, tsr_error *error) {
  tsr_error cause = {.offset = TSR_OFFSET_NONE};
  tsr__machine *machine;
  int status = read_machine(params, &machine, error);
  if (status) return status;
  tsr__outside_question question = {.text = tsr_params_text(params, "outside"),
                                    .gpu = named_card(params),
                                    .traced_gpu = tsr__params_card(params, model),
                                    .limit_bytes = limit ? tsr_params_count(params, limit) : 0,
                                    .how = how,
                                    .machine = machine};
  status = tsr__outside_of(&question, out, &cause);
  tsr__machine_free(machine);
  return status ? tsr_params_fail(params, error, "{=outside} %s", cause.message) : 0;
}

bool tsr__outside_lowers(const tsr_outside *outside) {
  return outside->share_bytes < outside->asked_bytes;
}

/* ---- in words ---- */

static const char *list_parts(const tsr_outside *o, char text[96]) {
  static const char *const words[TSR_OUTSIDE_PARTS] = {"context", "libraries", "NCCL"};
  size_t length = 0;
  text[0] = '\0';
  for (int i = 0; i < TSR_OUTSIDE_PARTS; i++)
    if (o->parts[i].high_bytes)
      length += (size_t)snprintf(text + length, 96 - length, "%s%s", length ? ", " : "", words[i]);
  return text;
}

const char *tsr__outside_words(const tsr_outside *o, char text[TSR__OUTSIDE_TEXT_BYTES]) {
  char likely[TSR__FORMAT_BYTES], low[TSR__FORMAT_BYTES], high[TSR__FORMAT_BYTES], parts[96];
  tsr__format_size(o->whole.likely_bytes, likely);
  bool is_range = o->whole.low_bytes != o->whole.high_bytes;
  if (o->source == TSR_OUTSIDE_GIVEN)
    (void)snprintf(text, TSR__OUTSIDE_TEXT_BYTES, "%s, as given", likely);
  else if (!is_range)
    (void)snprintf(text, TSR__OUTSIDE_TEXT_BYTES, "%s, measured: %s", likely, list_parts(o, parts));
  else
    (void)snprintf(text, TSR__OUTSIDE_TEXT_BYTES, "%s (%s to %s): %s", likely,
                   tsr__format_size(o->whole.low_bytes, low),
                   tsr__format_size(o->whole.high_bytes, high), list_parts(o, parts));
  return text;
}

const char *tsr__outside_card_words(const tsr_outside *o, uint64_t reserved_bytes,
                                    char text[TSR__OUTSIDE_TEXT_BYTES]) {
  char all[TSR__FORMAT_BYTES], share[TSR__FORMAT_BYTES], asked[TSR__FORMAT_BYTES];
  char room[96] = "";
  tsr__format_size(reserved_bytes + o->whole.likely_bytes, all);
  if (tsr__outside_lowers(o))
    (void)snprintf(room, sizeof room, "; PyTorch can have %s of %s",
                   tsr__format_size(o->share_bytes, share),
                   tsr__format_size(o->asked_bytes, asked));
  else if (o->card)
    (void)snprintf(room, sizeof room, "%s the %s that programs get",
                   reserved_bytes + o->whole.likely_bytes > o->visible_bytes ? ", more than"
                                                                             : " of",
                   tsr__format_size(o->visible_bytes, share));
  (void)snprintf(text, TSR__OUTSIDE_TEXT_BYTES, "%s%s%s",
                 o->source == TSR_OUTSIDE_GIVEN ? "" : "about ", all, room);
  return text;
}

bool tsr__outside_note(const tsr_outside *o, char text[TSR__OUTSIDE_TEXT_BYTES]) {
  char asked[TSR__FORMAT_BYTES], share[TSR__FORMAT_BYTES];
  if (!o->is_card_inferred || !tsr__outside_lowers(o)) return false;
  (void)snprintf(text, TSR__OUTSIDE_TEXT_BYTES,
                 "%s is taken for a whole card: of cards of that size, an %s leaves most to "
                 "PyTorch, %s. --gpu names another, and --outside none leaves all of it to PyTorch",
                 tsr__format_size(o->asked_bytes, asked), o->card,
                 tsr__format_size(o->share_bytes, share));
  return true;
}

/* ---- as JSON ---- */

static const tsr_record part = {
    .name = "OutsidePart",
    .about = "One thing that a process holds of the card outside of PyTorch's allocator.",
    TSR__FIELDS(TSR__FIELD(TEXT, "name",
                           "`context` (CUDA's), `libraries` (what they load and allocate "
                           "themselves) or `nccl` (buffers of communicators)"),
                TSR__FIELD(BYTES, "bytes", "what it probably takes"),
                TSR__FIELD(BYTES, "low_bytes", "at least"),
                TSR__FIELD(BYTES, "high_bytes", "at most")),
};

const tsr_record tsr__fields_outside = {
    .name = "Outside",
    .about = "What the process holds of the card outside of PyTorch's allocator, and what that "
             "leaves to it.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "source",
                   "`table`, `machine` (measured on this machine, at least in part) or "
                   "`option`"),
        TSR__FIELD(TEXT, "measured_at", "when", .is_nullable = true),
        TSR__FIELD(TEXT, "card", "the card; null with a size alone", .is_nullable = true),
        TSR__FIELD(FLAG, "is_card_inferred",
                   "nobody named the card: the limit is the memory of cards like it"),
        TSR__FIELD(BYTES, "visible_bytes", "what programs can have of the card",
                   .is_nullable = true),
        TSR__FIELD(BYTES, "bytes", "what is probably outside"),
        TSR__FIELD(BYTES, "low_bytes", "at least"), TSR__FIELD(BYTES, "high_bytes", "at most"),
        TSR__LIST(part, "parts", "of these; they add up. Empty with a size of `--outside`"),
        TSR__FIELD(BYTES, "on_card_bytes", "what is reserved, and what is probably outside",
                   .is_nullable = true),
        TSR__FIELD(FLAG, "is_counted", "the limit was lowered, to leave room for what is outside"),
        TSR__FIELD(BYTES, "pytorch_bytes",
                   "what the limit leaves to PyTorch's allocator; null without a limit",
                   .is_nullable = true)),
};

static tsr__cell bytes_or_null(uint64_t bytes) {
  return bytes ? tsr__bytes(bytes) : tsr__nothing();
}

static void emit_range(tsr__emitter *e, const tsr_outside_range *range) {
  tsr__emit_field(e, "bytes", NULL, tsr__bytes(range->likely_bytes));
  tsr__emit_field(e, "low_bytes", NULL, tsr__bytes(range->low_bytes));
  tsr__emit_field(e, "high_bytes", NULL, tsr__bytes(range->high_bytes));
}

static void emit_parts(tsr__emitter *e, const tsr_outside *o) {
  tsr__emit_array(e, "parts");
  for (int i = 0; i < TSR_OUTSIDE_PARTS && o->source != TSR_OUTSIDE_GIVEN; i++) {
    tsr__emit_object(e, NULL);
    tsr__emit_field(e, "name", NULL, tsr__string(tsr_outside_part_name((tsr_outside_part)i)));
    emit_range(e, &o->parts[i]);
    tsr__emit_end(e);
  }
  tsr__emit_end(e);
}

void tsr__emit_outside(tsr__emitter *e, const tsr_outside *o, uint64_t reserved_bytes) {
  if (tsr__emitter_is_text(e)) return;
  if (o->source == TSR_OUTSIDE_NOT_COUNTED) {
    tsr__emit_field(e, "outside", NULL, tsr__nothing());
    return;
  }
  tsr__emit_object(e, "outside");
  tsr__emit_field(e, "source", NULL, tsr__string(tsr_outside_source_name(o->source)));
  tsr__emit_field(e, "measured_at", NULL,
                  o->measured_at[0] ? tsr__string(o->measured_at) : tsr__nothing());
  tsr__emit_field(e, "card", NULL, o->card ? tsr__string(o->card) : tsr__nothing());
  tsr__emit_field(e, "is_card_inferred", NULL, tsr__bool(o->is_card_inferred));
  tsr__emit_field(e, "visible_bytes", NULL, bytes_or_null(o->card ? o->visible_bytes : 0));
  emit_range(e, &o->whole);
  emit_parts(e, o);
  tsr__emit_field(e, "on_card_bytes", NULL,
                  bytes_or_null(reserved_bytes ? reserved_bytes + o->whole.likely_bytes : 0));
  tsr__emit_field(e, "is_counted", NULL, tsr__bool(tsr__outside_lowers(o)));
  tsr__emit_field(e, "pytorch_bytes", NULL, bytes_or_null(o->share_bytes));
  tsr__emit_end(e);
}
