/* pattern.c - a user's regular expression for names of files: see names.h.
 *
 * POSIX knows neither \d nor names of groups, so the text is translated: a name is taken out, and remembered with the number of its
 * group. */
#include <regex.h>
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/vector.h"
#include "fleet/names.h"

enum { MOST_GROUPS = 24, MOST_DIGITS = 9 };

typedef struct group {
  char name[TSR_MESH_NAME_BYTES]; /* "": not named */
} group;

struct tsr__name_pattern {
  regex_t compiled;
  bool is_compiled;
  group groups[MOST_GROUPS + 1]; /* by number, from 1 */
  size_t count;
};

/* The length of "?P<name>" or "?<name>" at `at`, with the name in `out`; 0 without such a name, SIZE_MAX if it cannot be one. */
static size_t name_at(const char *at, char out[TSR_MESH_NAME_BYTES]) {
  const char *begin = at;
  if (*at != '?') return 0;
  at += at[1] == 'P' ? 2 : 1;
  if (*at != '<') return SIZE_MAX;
  size_t length = strcspn(++at, ">");
  if (!length || length >= TSR_MESH_NAME_BYTES || at[length] != '>') return SIZE_MAX;
  memcpy(out, at, length);
  out[length] = '\0';
  return (size_t)(at + length + 1 - begin);
}

static bool is_class(char c, const char **out) {
  switch (c) {
  case 'd': *out = "[0-9]"; return true;
  case 'w': *out = "[[:alnum:]_]"; return true;
  case 's': *out = "[[:space:]]"; return true;
  default: return false;
  }
}

/* The end of a bracket expression that begins at `at`. */
static const char *bracket_end(const char *at) {
  at++;
  if (*at == '^') at++;
  if (*at == ']') at++;
  while (*at && *at != ']') at++;
  return *at ? at + 1 : at;
}

static int translate(tsr__name_pattern *pattern, const char *text, tsr__buffer *out,
                     tsr_error *error) {
  const char *class;
  while (*text) {
    if (*text == '\\' && is_class(text[1], &class)) {
      tsr__buffer_text(out, class);
      text += 2;
    } else if (*text == '\\' && text[1]) {
      tsr__buffer_append(out, text, 2);
      text += 2;
    } else if (*text == '[') {
      const char *end = bracket_end(text);
      tsr__buffer_append(out, text, (size_t)(end - text));
      text = end;
    } else if (*text == '(') {
      if (pattern->count == MOST_GROUPS)
        return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                         "the pattern has more than %d groups", MOST_GROUPS);
      size_t length = name_at(text + 1, pattern->groups[++pattern->count].name);
      if (length == SIZE_MAX)
        return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                         "the pattern has a group that is neither plain nor named, as (?<rank>...) "
                         "is");
      tsr__buffer_text(out, "(");
      text += 1 + length;
    } else {
      tsr__buffer_append(out, text++, 1);
    }
  }
  tsr__buffer_append(out, "", 1);
  return out->failed ? tsr__fail_memory(error) : 0;
}

static bool has_group(const tsr__name_pattern *pattern, const char *name) {
  for (size_t i = 1; i <= pattern->count; i++)
    if (!strcmp(pattern->groups[i].name, name)) return true;
  return false;
}

int tsr__name_pattern_new(const char *text, tsr__name_pattern **out, tsr_error *error) {
  tsr__name_pattern *pattern = TSR__NEW(tsr__name_pattern);
  tsr__buffer translated = {0};
  if (!pattern) return tsr__fail_memory(error);
  int status = translate(pattern, text, &translated, error);
  if (!status && !has_group(pattern, "rank"))
    status = tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "the pattern has no group named rank, as in 'rank(?<rank>\\d+)'");
  if (!status) {
    int failure = regcomp(&pattern->compiled, translated.data, REG_EXTENDED);
    char said[128] = "";
    if (failure) (void)regerror(failure, &pattern->compiled, said, sizeof said);
    pattern->is_compiled = !failure;
    if (failure == REG_ESPACE)
      status = tsr__fail_memory(error);
    else if (failure)
      status = tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "the pattern is not valid: %s",
                         said);
  }
  tsr__buffer_release(&translated);
  if (status)
    tsr__name_pattern_free(pattern);
  else
    *out = pattern;
  return status;
}

void tsr__name_pattern_free(tsr__name_pattern *pattern) {
  if (pattern && pattern->is_compiled) regfree(&pattern->compiled);
  tsr__free(pattern);
}

static int64_t number_of(const char *at, const char *end) {
  int64_t number = 0;
  if (at == end || end - at > MOST_DIGITS) return -1;
  for (; at < end; at++) {
    if (*at < '0' || *at > '9') return -1;
    number = number * 10 + (*at - '0');
  }
  return number;
}

bool tsr__name_pattern_read(const tsr__name_pattern *pattern, const char *path,
                            tsr__file_name *out) {
  regmatch_t found[MOST_GROUPS + 1];
  if (regexec(&pattern->compiled, path, MOST_GROUPS + 1, found, 0)) return false;
  *out = (tsr__file_name){
      .path = path, .rank = -1, .step = -1, .world_size = -1, .stamp = -1, .last_number = -1};
  for (size_t i = 1; i <= pattern->count; i++) {
    const char *name = pattern->groups[i].name;
    if (!*name || found[i].rm_so < 0) continue;
    int64_t number = number_of(path + found[i].rm_so, path + found[i].rm_eo);
    if (number < 0) continue;
    if (!strcmp(name, "rank")) {
      out->rank = number;
    } else if (!strcmp(name, "step")) {
      out->step = number;
    } else if (!strcmp(name, "world_size")) {
      out->world_size = number;
    } else if (out->axis_count < TSR_MESH_AXES) {
      tsr_mesh_axis *axis = &out->axes[out->axis_count++];
      *axis = (tsr_mesh_axis){.at = (uint32_t)number};
      memcpy(axis->name, name, strlen(name) + 1);
    }
  }
  return out->rank >= 0;
}
