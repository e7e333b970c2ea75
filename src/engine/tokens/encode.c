/* encode.c - from text to tokens.
 *
 * Threads share a text that is in memory. Added tokens divide it into sections; small sections are encoded in groups, a large one
 * is divided again:
 *
 *   by a pattern     where one match ends and the search for the next begins is a *step*. What follows a step depends only on
 *                    the text after it (regex.h). So a thread may begin anywhere, as if a step were there. Once it has a step in
 *                    common with the thread before it, all later ones are right; what it did before that is dropped. If
 *                    they share none, the text up to the end of its part is encoded again
 *   without pattern  a step is a place between two characters that are neighbours in no result of a merge (tsr__bpe_cut): no
 *                    merge can cross it
 *
 * Sections that are divided in other ways are encoded by one thread. */
#include <string.h>

#include "base/options.h"
#include "base/pool.h"
#include "base/utf8.h"
#include "tokens/tokenizer.h"

enum {
  PART_BYTES = 256 * 1024, /* of a text, for one thread at a time */
  CACHE_SLOTS = 1 << 13,
  CACHED_BYTES = 30,
  CACHED_IDS = 8,
  NOTED_STEPS = 1024 /* of a part, to compare with the part before it */
};

/* The tokens of a short piece, which texts repeat. */
typedef struct cached {
  uint8_t size, count; /* size 0: empty */
  char text[CACHED_BYTES];
  uint32_t ids[CACHED_IDS];
} cached;

/* What one thread needs. */
typedef struct worker {
  const tsr_tokenizer *t;
  tsr__matcher *matcher;
  tsr__bpe_room room;
  cached *cache;
  tsr__buffer mapped;       /* a piece as characters for bytes */
  tsr__buffer normal[2];    /* a section that is normalized */
  tsr__buffer *changed;     /* by step */
  tsr__split_ranges *parts; /* by step */
  tsr__sections sections;   /* of a normalized section */
} worker;

/* A text that is divided by `first`, an index of steps of the pre-tokenizer. */
typedef struct body {
  const char *text;
  size_t size, first;
  bool is_first; /* the beginning of all */
} body;

typedef struct noted {
  size_t at;       /* a step */
  size_t id_count; /* tokens before it */
} noted;

/* Work for one thread: sections, or a part of one. */
typedef struct part {
  worker w;
  bool is_group;
  size_t first_section, end_section;
  body body;
  size_t start, limit; /* from a step at `start` to the first step at or after `limit` */
  size_t end;          /* that step */
  tsr__token_ids ids;
  TSR__VECTOR(noted) steps;
} part;

typedef struct encoder {
  const tsr_tokenizer *t;
  tsr__thread_pool *pool;
  part *parts;
  size_t part_count;
  const char *text;
  size_t size;
  tsr__sections sections;
  tsr_tokens_fn *write;
  void *context;
  const tsr_encode_options *options;
  tsr__buffer normal[2], changed[2]; /* of a large section */
  tsr__sections inner;
} encoder;

/* ---- pieces ---- */

static void map_bytes(worker *w, const char *text, size_t size) {
  w->mapped.size = 0;
  for (size_t i = 0; i < size; i++) {
    unsigned char bytes[TSR__UTF8_BYTES];
    size_t length = tsr__utf8_encode(tsr__byte_character((unsigned char)text[i]), bytes);
    tsr__buffer_append(&w->mapped, bytes, length);
  }
}

/* Encode a piece, or a part of one between cuts. */
static int encode_uncut(worker *w, const char *text, size_t size, tsr__token_ids *out,
                        tsr_error *error) {
  cached *slot = NULL;
  if (size <= CACHED_BYTES) {
    slot = &w->cache[tsr__hash_bytes(text, size, 0) % CACHE_SLOTS];
    if (slot->size == size && memcmp(slot->text, text, size) == 0) {
      if (!TSR__VECTOR_RESERVE(out, CACHED_IDS)) return tsr__fail_memory(error);
      for (size_t i = 0; i < slot->count; i++) out->items[out->count++] = slot->ids[i];
      return 0;
    }
  }
  size_t before = out->count, bytes = size;
  const char *piece = text;
  if (w->t->split.is_byte_level) {
    map_bytes(w, text, size);
    if (w->mapped.failed) return tsr__fail_memory(error);
    piece = w->mapped.data;
    bytes = w->mapped.size;
  }
  int status = tsr__bpe_encode(&w->t->bpe, &w->room, piece, bytes, out, error);
  if (status || !slot || out->count - before > CACHED_IDS) return status;
  slot->size = (uint8_t)size;
  slot->count = (uint8_t)(out->count - before);
  memcpy(slot->text, text, size);
  for (size_t i = 0; i < slot->count; i++) slot->ids[i] = out->items[before + i];
  return 0;
}

/* Whether pieces are cut between characters. */
static bool has_cuts(const tsr_tokenizer *t) {
  return t->bpe.pairs && !t->split.is_byte_level;
}

static int encode_piece(worker *w, const char *text, size_t size, tsr__token_ids *out,
                        tsr_error *error) {
  int status = 0;
  if (!size) return 0;
  if (!has_cuts(w->t)) return encode_uncut(w, text, size, out, error);
  for (size_t at = 0; status == 0 && at < size;) {
    size_t end = tsr__bpe_cut(&w->t->bpe, text, size, at);
    status = encode_uncut(w, text + at, end - at, out, error);
    at = end;
  }
  return status;
}

/* Encode a text that the steps of the pre-tokenizer from `step` on divide. */
static int encode_steps(worker *w, size_t step, const char *text, size_t size, bool is_first,
                        tsr__token_ids *out, tsr_error *error) {
  if (step == w->t->split.steps.count || !size) return encode_piece(w, text, size, out, error);
  const tsr__split_step *how = &w->t->split.steps.items[step];
  if (how->kind != TSR__SPLIT_PATTERN) {
    tsr__buffer *changed = &w->changed[step];
    changed->size = 0;
    tsr__split_change(how, text, size, is_first, changed);
    if (changed->failed) return tsr__fail_memory(error);
    return encode_steps(w, step + 1, changed->data, changed->size, is_first, out, error);
  }
  tsr__split_ranges *parts = &w->parts[step];
  int status = tsr__split_pattern(how, w->matcher, text, size, parts, error);
  for (size_t i = 0; status == 0 && i < parts->count; i++) {
    tsr__split_range range = parts->items[i];
    status = encode_steps(w, step + 1, text + range.start, range.end - range.start,
                          is_first && range.start == 0, out, error);
  }
  return status;
}

/* ---- sections ---- */

static int push_id(tsr__token_ids *out, uint32_t id, tsr_error *error) {
  return TSR__VECTOR_PUSH(out, id) ? 0 : tsr__fail_memory(error);
}

/* Encode a small section. */
static int encode_section(worker *w, const char *text, const tsr__section *section,
                          tsr__token_ids *out, tsr_error *error) {
  const tsr_tokenizer *t = w->t;
  if (section->token) return push_id(out, section->token->id, error);
  const char *at = text + section->start;
  size_t size = section->end - section->start;
  bool is_first = section->start == 0;
  int status = tsr__normal_apply(&t->normal, &at, &size, w->normal, error);
  w->sections.count = 0;
  if (status == 0)
    status = tsr__added_split(&t->normalized, t->added.items, t->word, w->matcher, at, size,
                              &w->sections, error);
  for (size_t i = 0; status == 0 && i < w->sections.count; i++) {
    tsr__section inner = w->sections.items[i];
    status = inner.token ? push_id(out, inner.token->id, error)
                         : encode_steps(w, 0, at + inner.start, inner.end - inner.start,
                                        is_first && inner.start == 0, out, error);
  }
  return status;
}

/* ---- parts of a large section ---- */

static bool is_divisible(const tsr_tokenizer *t, size_t step) {
  if (step == t->split.steps.count) return has_cuts(t);
  return tsr__split_is_local(&t->split.steps.items[step]);
}

/* Encode from one step to the next one. */
static int take_step(worker *w, const body *b, size_t *at, tsr__token_ids *out, tsr_error *error) {
  const tsr_tokenizer *t = w->t;
  size_t from = *at;
  if (!is_divisible(t, b->first)) {
    *at = b->size;
    return encode_steps(w, b->first, b->text, b->size, b->is_first, out, error);
  }
  if (b->first == t->split.steps.count) {
    *at = tsr__bpe_cut(&t->bpe, b->text, b->size, from);
    return encode_uncut(w, b->text + from, *at - from, out, error);
  }
  const tsr__split_step *how = &t->split.steps.items[b->first];
  size_t start, end;
  int found = tsr__regex_find(how->regex, w->matcher, b->text, b->size, from, &start, &end, error);
  if (found < 0) return found;
  if (!found) start = end = b->size;
  int status = 0;
  if (start > from && tsr__split_keeps(how, false))
    status = encode_steps(w, b->first + 1, b->text + from, start - from, b->is_first && from == 0,
                          out, error);
  if (status == 0 && end > start && tsr__split_keeps(how, true))
    status = encode_steps(w, b->first + 1, b->text + start, end - start, b->is_first && start == 0,
                          out, error);
  *at = end;
  return status;
}

static int run_part(void *context, size_t index, tsr_error *error) {
  encoder *e = context;
  part *p = &e->parts[index];
  int status = 0;
  p->ids.count = p->steps.count = 0;
  if (p->is_group) {
    for (size_t i = p->first_section; status == 0 && i < p->end_section; i++)
      status = encode_section(&p->w, e->text, &e->sections.items[i], &p->ids, error);
    return status;
  }
  for (p->end = p->start; status == 0 && p->end < p->limit;) {
    noted step = {p->end, p->ids.count};
    if (p->steps.count < NOTED_STEPS && !TSR__VECTOR_PUSH(&p->steps, step))
      return tsr__fail_memory(error);
    status = take_step(&p->w, &p->body, &p->end, &p->ids, error);
  }
  return status;
}

static int write_ids(const encoder *e, const tsr__token_ids *ids, size_t first, tsr_error *error) {
  if (first == ids->count || !e->write(e->context, ids->items + first, ids->count - first))
    return 0;
  return tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE, "the tokens cannot be written");
}

/* Report what is done of the text. */
static int report(const encoder *e, size_t done, tsr_error *error) {
  const tsr_encode_options *o = e->options;
  if (!o->progress || o->progress(o->progress_context, done, e->size)) return 0;
  return tsr__work_stopped(error);
}

/* Join a part to those before it, which ended with a step at `*at`. */
static int join_part(encoder *e, part *p, size_t *at, tsr_error *error) {
  size_t index = 0;
  worker *w = &p->w;
  tsr__token_ids between = {0};
  int status = 0;
  for (; status == 0 && *at < p->limit; status = take_step(w, &p->body, at, &between, error)) {
    while (index < p->steps.count && p->steps.items[index].at < *at) index++;
    if (index < p->steps.count && p->steps.items[index].at == *at) break;
  }
  if (status == 0) status = write_ids(e, &between, 0, error);
  if (status == 0 && *at < p->limit) {
    status = write_ids(e, &p->ids, p->steps.items[index].id_count, error);
    *at = p->end;
  }
  TSR__VECTOR_FREE(&between);
  return status;
}

/* The beginning of the character at a place. */
static size_t character_start(const body *b, size_t at) {
  while (at < b->size && ((unsigned char)b->text[at] & 0xC0) == 0x80) at++;
  return at < b->size ? at : b->size;
}

static int encode_body(encoder *e, const body *b, size_t done, tsr_error *error) {
  int status = 0;
  for (size_t at = 0; status == 0 && at < b->size;) {
    size_t count = 0, start = at;
    for (; count < e->part_count && start < b->size; count++) {
      part *p = &e->parts[count];
      size_t limit =
          b->size - start > PART_BYTES ? character_start(b, start + PART_BYTES) : b->size;
      p->is_group = false;
      p->body = *b;
      p->start = start;
      p->limit = start = limit;
      if (!is_divisible(e->t, b->first)) p->limit = start = b->size;
    }
    status = tsr__thread_pool_each(e->pool, NULL, count, run_part, e, error);
    for (size_t i = 0; status == 0 && i < count; i++)
      status = join_part(e, &e->parts[i], &at, error);
    if (status == 0) status = report(e, done + (at < e->size - done ? at : e->size - done), error);
  }
  return status;
}

/* Encode a large section by all threads. */
static int encode_large(encoder *e, const tsr__section *section, tsr_error *error) {
  const tsr_tokenizer *t = e->t;
  const char *at = e->text + section->start;
  size_t size = section->end - section->start;
  int status = tsr__normal_apply(&t->normal, &at, &size, e->normal, error);
  e->inner.count = 0;
  if (status == 0)
    status = tsr__added_split(&t->normalized, t->added.items, t->word, e->parts[0].w.matcher, at,
                              size, &e->inner, error);
  for (size_t i = 0; status == 0 && i < e->inner.count; i++) {
    tsr__section inner = e->inner.items[i];
    body b = {at + inner.start, inner.end - inner.start, 0, section->start + inner.start == 0};
    if (inner.token) {
      tsr__token_ids one = {.items = &(uint32_t){inner.token->id}, .count = 1};
      status = write_ids(e, &one, 0, error);
      continue;
    }
    for (; b.first < t->split.steps.count &&
           t->split.steps.items[b.first].kind != TSR__SPLIT_PATTERN && status == 0;
         b.first++) {
      tsr__buffer *out = &e->changed[b.first % 2];
      out->size = 0;
      tsr__split_change(&t->split.steps.items[b.first], b.text, b.size, b.is_first, out);
      if (out->failed) status = tsr__fail_memory(error);
      b.text = out->data;
      b.size = out->size;
    }
    if (status == 0) status = encode_body(e, &b, section->start, error);
  }
  return status;
}

/* Give each thread a group of small sections, from `*next` on. */
static int encode_groups(encoder *e, size_t *next, tsr_error *error) {
  size_t count = 0;
  for (; count < e->part_count && *next < e->sections.count; count++) {
    part *p = &e->parts[count];
    size_t bytes = 0;
    p->is_group = true;
    p->first_section = *next;
    for (; *next < e->sections.count && bytes < PART_BYTES; ++*next) {
      const tsr__section *section = &e->sections.items[*next];
      if (section->end - section->start > PART_BYTES) break;
      bytes += section->end - section->start;
    }
    p->end_section = *next;
    if (p->first_section == p->end_section) break;
  }
  int status = tsr__thread_pool_each(e->pool, NULL, count, run_part, e, error);
  for (size_t i = 0; status == 0 && i < count; i++)
    status = write_ids(e, &e->parts[i].ids, 0, error);
  if (status == 0) status = report(e, e->sections.items[*next - 1].end, error);
  return status;
}

static int encode_all(encoder *e, tsr_error *error) {
  const tsr_tokenizer *t = e->t;
  int status = tsr__added_split(&t->plain, t->added.items, t->word, e->parts[0].w.matcher, e->text,
                                e->size, &e->sections, error);
  if (status == 0 && e->options->adds_special) status = write_ids(e, &t->before, 0, error);
  for (size_t next = 0; status == 0 && next < e->sections.count;) {
    const tsr__section *section = &e->sections.items[next];
    if (section->end - section->start <= PART_BYTES)
      status = encode_groups(e, &next, error);
    else
      status = encode_large(e, &e->sections.items[next++], error);
  }
  if (status == 0 && e->options->adds_special) status = write_ids(e, &t->after, 0, error);
  return status;
}

/* ---- beginning and end ---- */

static bool worker_init(worker *w, const tsr_tokenizer *t) {
  size_t steps = t->split.steps.count;
  w->t = t;
  w->matcher = tsr__matcher_new();
  w->cache = TSR__NEW_ARRAY(cached, CACHE_SLOTS);
  w->changed = TSR__NEW_ARRAY(tsr__buffer, steps);
  w->parts = TSR__NEW_ARRAY(tsr__split_ranges, steps);
  return w->matcher && w->cache && w->changed && w->parts;
}

static void worker_release(worker *w) {
  size_t steps = w->t ? w->t->split.steps.count : 0;
  tsr__matcher_free(w->matcher);
  tsr__bpe_room_release(&w->room);
  tsr__free(w->cache);
  tsr__buffer_release(&w->mapped);
  tsr__buffer_release(&w->normal[0]);
  tsr__buffer_release(&w->normal[1]);
  for (size_t i = 0; w->changed && i < steps; i++) tsr__buffer_release(&w->changed[i]);
  for (size_t i = 0; w->parts && i < steps; i++) TSR__VECTOR_FREE(&w->parts[i]);
  tsr__free(w->changed);
  tsr__free(w->parts);
  TSR__VECTOR_FREE(&w->sections);
}

static int check_text(const char *text, size_t size, tsr_error *error) {
  for (size_t at = 0; at < size;) {
    uint32_t code = (unsigned char)text[at];
    size_t length = code < 0x80 ? 1 : tsr__utf8_decode(text + at, size - at, &code);
    if (code == TSR__CODE_INVALID || (code >= 0xD800 && code <= 0xDFFF))
      return tsr__fail(error, TSR_ERROR_FORMAT, at,
                       "byte 0x%02X is not UTF-8, which a tokenizer needs: convert the text "
                       "first, with iconv for example",
                       (unsigned char)text[at]);
    at += length;
  }
  return 0;
}

static bool prepare(encoder *e) {
  bool is_large = e->size > PART_BYTES;
  if (is_large) e->pool = tsr__thread_pool_new(e->options->threads);
  unsigned width = tsr__thread_pool_width(e->pool);
  size_t wanted = is_large ? 2 * (size_t)width : 1;
  e->parts = TSR__NEW_ARRAY(part, wanted);
  if (!e->parts) return false;
  e->part_count = wanted;
  for (size_t i = 0; i < wanted; i++)
    if (!worker_init(&e->parts[i].w, e->t)) return false;
  return true;
}

static void release(encoder *e) {
  tsr__thread_pool_free(e->pool);
  for (size_t i = 0; i < e->part_count; i++) {
    worker_release(&e->parts[i].w);
    TSR__VECTOR_FREE(&e->parts[i].ids);
    TSR__VECTOR_FREE(&e->parts[i].steps);
  }
  tsr__free(e->parts);
  TSR__VECTOR_FREE(&e->sections);
  TSR__VECTOR_FREE(&e->inner);
  for (size_t i = 0; i < 2; i++) {
    tsr__buffer_release(&e->normal[i]);
    tsr__buffer_release(&e->changed[i]);
  }
}

int tsr_tokenizer_encode(const tsr_tokenizer *tokenizer, const char *text, size_t size_bytes,
                         const tsr_encode_options *options, tsr_tokens_fn *write, void *context,
                         tsr_error *error) {
  tsr_encode_options own = {0};
  tsr_error own_error;
  if (!error) error = &own_error; /* of threads */
  int status = options ? tsr__options_read(options, &own, sizeof own, error) : 0;
  if (status == 0) status = check_text(text, size_bytes, error);
  if (status) return status;
  encoder e = {.t = tokenizer,
               .text = text,
               .size = size_bytes,
               .write = write,
               .context = context,
               .options = &own};
  status = prepare(&e) ? encode_all(&e, error) : tsr__fail_memory(error);
  release(&e);
  return status;
}
