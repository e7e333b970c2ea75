/* endings.c - see endings.h. */
#include "endings.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char *name_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

const char *cli_ending_of(const char *path) {
  const char *name = name_of(path), *dot = *name ? strrchr(name + 1, '.') : NULL;
  bool is_word = dot && dot[1] && dot[1 + strspn(dot + 1, "0123456789")];
  return is_word ? dot : "";
}

const cli_ending *cli_ending_find(const cli_ending *rows, size_t count, const char *path) {
  const cli_ending *found = NULL;
  const char *name = name_of(path);
  size_t size = strlen(name), longest = 0;
  for (size_t i = 0; i < count; i++) {
    size_t length = strlen(rows[i].ending);
    if (length <= longest || length >= size ||
        strcasecmp(name + size - length, rows[i].ending) != 0)
      continue;
    longest = length;
    found = &rows[i];
  }
  return found;
}

int cli_ending_refuse(const cli_options *options, const char *what, const cli_ending *rows,
                      size_t count, const char *path) {
  char list[256] = "";
  size_t used = 0;
  for (size_t i = 0; i < count && used < sizeof list; i++)
    used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
                             i == 0           ? ""
                             : i + 1 == count ? " or "
                                              : ", ",
                             rows[i].ending);
  return cli_usage_error(options->command, "%s; use a name that ends in %s, not '%s'", what, list,
                         path);
}
