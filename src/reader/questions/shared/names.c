/* names.c - gathers names by entry of a list. See names.h. */
#include "questions/shared/names.h"

#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/sort.h"

/* ---- Gathering ---- */

/* What makes two names one. Without padding, because its bytes are compared. */
typedef struct name_key {
  uint32_t entry, text, type, source, category;
} name_key;
static_assert(sizeof(name_key) == 5 * sizeof(uint32_t), "no padding");

void tsr__name_sums_init(tsr__name_sums *sums) {
  *sums = (tsr__name_sums){0};
  tsr__intern_init(&sums->texts);
  tsr__intern_init(&sums->keys);
}

bool tsr__name_sums_put(tsr__name_sums *sums, uint32_t entry, const tsr_named *name) {
  bool is_new = false;
  name_key key = {.entry = entry, .source = name->source, .category = name->category};
  key.text = tsr__intern_put(&sums->texts, name->name.data, name->name.size_bytes, NULL);
  key.type = tsr__intern_put(&sums->texts, name->type, strlen(name->type), NULL);
  if (key.text == TSR__INTERN_FULL || key.type == TSR__INTERN_FULL) return false;
  uint32_t row = tsr__intern_put(&sums->keys, &key, sizeof key, &is_new);
  if (row == TSR__INTERN_FULL) return false;
  if (is_new && (!TSR__VECTOR_PUSH(&sums->bytes, 0) || !TSR__VECTOR_PUSH(&sums->allocations, 0)))
    return false;
  assert(row < sums->bytes.count && sums->bytes.count == sums->allocations.count);
  uint64_t *bytes = &sums->bytes.items[row], *allocations = &sums->allocations.items[row];
  *bytes = tsr__sum_u64(*bytes, name->bytes);
  *allocations = tsr__sum_u64(*allocations, name->allocations);
  return true;
}

bool tsr__name_sums_add(tsr__name_sums *sums, uint32_t entry, const tsr__names *names,
                        uint32_t allocation) {
  size_t count = names ? tsr__names_count(names, allocation) : 0;
  for (size_t i = 0; i < count; i++) {
    tsr__given_name name = tsr__names_at(names, allocation, i);
    tsr_named named = {.name = name.text,
                       .type = name.type,
                       .category = name.category,
                       .source = name.source,
                       .bytes = name.size_bytes,
                       .allocations = 1};
    if (!tsr__name_sums_put(sums, entry, &named)) return false;
  }
  return true;
}

void tsr__name_sums_release(tsr__name_sums *sums) {
  tsr__intern_release(&sums->texts);
  tsr__intern_release(&sums->keys);
  TSR__VECTOR_FREE(&sums->bytes);
  TSR__VECTOR_FREE(&sums->allocations);
}

/* ---- Rows ---- */

typedef struct ranked {
  tsr_named named;
  uint32_t entry, row;
} ranked;

/* By entry, largest first; equal ones in the order in which they were added. */
static int compare_ranked(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  if (x->entry != y->entry) return x->entry < y->entry ? -1 : 1;
  if (x->named.bytes != y->named.bytes) return x->named.bytes < y->named.bytes ? 1 : -1;
  return (x->row > y->row) - (x->row < y->row);
}

static const tsr__interned *text_at(const tsr__name_sums *sums, uint32_t id) {
  assert(id < sums->texts.count);
  return &sums->texts.items[id];
}

static ranked *rank(const tsr__name_sums *sums) {
  ranked *list = TSR__NEW_ARRAY(ranked, sums->keys.count);
  for (uint32_t i = 0; list && i < sums->keys.count; i++) {
    name_key key;
    memcpy(&key, sums->keys.items[i].data, sizeof key);
    const tsr__interned *text = text_at(sums, key.text);
    list[i] = (ranked){{.name = {(const char *)text->data, text->size_bytes},
                        .category = (tsr_category)key.category,
                        .source = (tsr_name_source)key.source,
                        .bytes = sums->bytes.items[i],
                        .allocations = sums->allocations.items[i]},
                       key.entry,
                       i};
  }
  if (list && sums->keys.count) tsr__sort(list, sums->keys.count, sizeof *list, compare_ranked);
  return list;
}

static const tsr__interned *type_of(const tsr__name_sums *sums, const ranked *item) {
  name_key key;
  memcpy(&key, sums->keys.items[item->row].data, sizeof key);
  return text_at(sums, key.type);
}

/* The rows with their texts after them, in one piece. */
static tsr_named *copy_rows(const tsr__name_sums *sums, const ranked *list, const bool *is_kept,
                            size_t kept) {
  size_t room = 0;
  for (uint32_t i = 0; i < sums->keys.count; i++) {
    if (is_kept[i]) room += list[i].named.name.size_bytes + type_of(sums, &list[i])->size_bytes + 1;
  }
  if (kept > (SIZE_MAX - room) / sizeof(tsr_named)) return NULL;
  tsr_named *rows = tsr__realloc(NULL, kept * sizeof *rows + room, 1), *row = rows;
  char *texts = rows ? (char *)(rows + kept) : NULL;
  for (uint32_t i = 0; rows && i < sums->keys.count; i++) {
    if (!is_kept[i]) continue;
    const tsr__interned *type = type_of(sums, &list[i]);
    *row = list[i].named;
    if (row->name.size_bytes) memcpy(texts, row->name.data, row->name.size_bytes);
    row->name.data = texts;
    texts += row->name.size_bytes;
    if (type->size_bytes) memcpy(texts, type->data, type->size_bytes);
    row->type = texts;
    texts += type->size_bytes;
    *texts++ = '\0';
    row++;
  }
  assert(!rows || (row == rows + kept && texts == (char *)(rows + kept) + room));
  return rows;
}

int tsr__name_sums_take(const tsr__name_sums *sums, size_t top, size_t entry_count,
                        tsr_name_range *ranges, tsr_named **out, tsr_error *error) {
  size_t kept = 0;
  *out = NULL;
  for (size_t i = 0; i < entry_count; i++) ranges[i] = (tsr_name_range){0};
  if (!sums->keys.count) return 0;
  ranked *list = rank(sums);
  bool *is_kept = TSR__NEW_ARRAY(bool, sums->keys.count);
  for (uint32_t i = 0; list && is_kept && i < sums->keys.count; i++) {
    assert(list[i].entry < entry_count);
    tsr_name_range *range = &ranges[list[i].entry];
    is_kept[i] = !top || range->count < top;
    if (!is_kept[i]) {
      range->omitted++;
      continue;
    }
    if (!range->count) range->first = kept;
    range->count++;
    kept++;
    assert(range->first + range->count == kept); /* the names of an entry are next to each other */
  }
  if (list && is_kept) *out = copy_rows(sums, list, is_kept, kept);
  tsr__free(list);
  tsr__free(is_kept);
  return *out ? 0 : tsr__fail_memory(error);
}
