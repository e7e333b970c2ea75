/* pattern.c - a user's regular expression for names of files, matched by PCRE2: see names.h. */
#include <string.h>

#include "base/memory.h"
#include "base/pcre.h"
#include "fleet/names.h"

/* Enough for paths; at most some milliseconds for one. */
enum { MATCH_LIMIT = 200000, HEAP_LIMIT_KIB = 16 * 1024, MOST_DIGITS = 9 };

struct tsr__name_pattern {
  pcre2_general_context *memory;
  pcre2_code *code;
  pcre2_match_context *limits;
  pcre2_match_data *found;
};

static int compile(tsr__name_pattern *pattern, const char *text, tsr_error *error) {
  int code = PCRE2_ERROR_NOMEMORY;
  PCRE2_SIZE offset = 0;
  PCRE2_UCHAR said[128] = "";
  pcre2_compile_context *how = pcre2_compile_context_create(pattern->memory);
  if (how)
    pattern->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_NEVER_BACKSLASH_C,
                                  &code, &offset, how);
  pcre2_compile_context_free(how);
  if (pattern->code) return 0;
  if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED)
    return tsr__fail_memory(error);
  if (pcre2_get_error_message(code, said, sizeof said) == PCRE2_ERROR_BADDATA) said[0] = 0;
  return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                   "the pattern is not valid: %s, at offset %zu", (const char *)said, offset);
}

int tsr__name_pattern_new(const char *text, tsr__name_pattern **out, tsr_error *error) {
  tsr__name_pattern *pattern = TSR__NEW(tsr__name_pattern);
  if (!pattern) return tsr__fail_memory(error);
  pattern->memory = tsr__pcre_memory();
  int status = pattern->memory ? compile(pattern, text, error) : tsr__fail_memory(error);
  if (!status && pcre2_substring_number_from_name(pattern->code, (PCRE2_SPTR) "rank") < 0)
    status = tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "the pattern has no group named rank, as in 'rank(?<rank>\\d+)'");
  if (!status) {
    pattern->limits = pcre2_match_context_create(pattern->memory);
    pattern->found = pcre2_match_data_create_from_pattern(pattern->code, pattern->memory);
    if (!pattern->limits || !pattern->found) status = tsr__fail_memory(error);
  }
  if (status) {
    tsr__name_pattern_free(pattern);
    return status;
  }
  (void)pcre2_set_match_limit(pattern->limits, MATCH_LIMIT);
  (void)pcre2_set_heap_limit(pattern->limits, HEAP_LIMIT_KIB);
  *out = pattern;
  return 0;
}

void tsr__name_pattern_free(tsr__name_pattern *pattern) {
  if (!pattern) return;
  pcre2_match_data_free(pattern->found);
  pcre2_match_context_free(pattern->limits);
  pcre2_code_free(pattern->code);
  pcre2_general_context_free(pattern->memory);
  tsr__free(pattern);
}

/* The number that a group matched; -1 if it matched none, or something else. */
static int64_t number_of(const char *path, const PCRE2_SIZE ends[2]) {
  int64_t number = 0;
  if (ends[0] == PCRE2_UNSET || ends[1] <= ends[0] || ends[1] - ends[0] > MOST_DIGITS) return -1;
  for (const char *at = path + ends[0]; at < path + ends[1]; at++) {
    if (*at < '0' || *at > '9') return -1;
    number = number * 10 + (*at - '0');
  }
  return number;
}

static void take(tsr__file_name *out, const char *name, int64_t number) {
  size_t length = strlen(name);
  if (number < 0) return;
  if (!strcmp(name, "rank")) {
    out->rank = number;
  } else if (!strcmp(name, "step")) {
    out->step = number;
  } else if (!strcmp(name, "world_size")) {
    out->world_size = number;
  } else if (out->axis_count < TSR_MESH_AXES && length < TSR_MESH_NAME_BYTES) {
    tsr_mesh_axis *axis = &out->axes[out->axis_count++];
    *axis = (tsr_mesh_axis){.at = (uint32_t)number};
    memcpy(axis->name, name, length + 1);
  }
}

int tsr__name_pattern_read(const tsr__name_pattern *pattern, const char *path, tsr__file_name *out,
                           tsr_error *error) {
  uint32_t count = 0, entry_bytes = 0;
  PCRE2_SPTR table = NULL;
  int found = pcre2_match(pattern->code, (PCRE2_SPTR)path, PCRE2_ZERO_TERMINATED, 0, 0,
                          pattern->found, pattern->limits);
  *out = (tsr__file_name){
      .path = path, .rank = -1, .step = -1, .world_size = -1, .stamp = -1, .last_number = -1};
  if (found == PCRE2_ERROR_NOMEMORY) return tsr__fail_memory(error);
  if (found < 0) return 0;
  const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(pattern->found);
  (void)pcre2_pattern_info(pattern->code, PCRE2_INFO_NAMECOUNT, &count);
  (void)pcre2_pattern_info(pattern->code, PCRE2_INFO_NAMEENTRYSIZE, &entry_bytes);
  (void)pcre2_pattern_info(pattern->code, PCRE2_INFO_NAMETABLE, &table);
  for (uint32_t i = 0; i < count; i++) { /* an entry is a number in two bytes, and the name */
    PCRE2_SPTR entry = table + (size_t)i * entry_bytes;
    size_t group = (size_t)entry[0] << 8 | entry[1];
    take(out, (const char *)entry + 2, number_of(path, ends + 2 * group));
  }
  return 0;
}
