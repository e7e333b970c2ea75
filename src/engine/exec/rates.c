/* rates.c - see rates.h.
 *
 *   {"copies": [12.5e9, 2e9], "kernels": {"mm": [[0.007, 0], [0.003, 0]], ...}, "schema": "tessera-rates/1",
 *    "title": "AMD EPYC, 2 threads"}
 *
 * "band": the lowest and the highest multiple of a predicted time that a real one is; without it, those of band.h count.
 * "ranks": what a rank sends to others in a second; without it, or with 0, sending takes no time. A kernel has nanoseconds
 * for an operation and for a byte, of 32 and of 16 bits; copies are bytes in a second to the host and to a disk, 0 where none was made. Kernels that this version does not know are ignored, and those that the
 * file lacks take what others take on average. */
#include "exec/rates.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"

#define SCHEMA "tessera-rates/1"

struct tsr_rates {
  tsr__machine_rates numbers;
  char title[96];
  tsr__buffer text;
};

void tsr_rates_free(tsr_rates *rates) {
  if (!rates) return;
  tsr__buffer_release(&rates->text);
  tsr__free(rates);
}

const char *tsr_rates_text(const tsr_rates *rates) {
  return rates->text.data;
}

const tsr__machine_rates *tsr__rates_numbers(const tsr_rates *rates) {
  return &rates->numbers;
}

const char *tsr__rates_title(const tsr_rates *rates) {
  return rates->title;
}

/* ---- to JSON ---- */

static json_t *pair(double a, double b) {
  return json_pack("[f,f]", a, b);
}

/* NULL when out of memory, like the other values here. */
static json_t *kernels_of(const tsr__machine_rates *rates) {
  json_t *kernels = json_object();
  bool ok = kernels != NULL;
  for (int k = TSR__KERNEL_NONE + 1; ok && k < TSR__KERNEL_COUNT; k++) {
    const tsr__kernel_rate *r = rates->kernel[k];
    json_t *both = json_pack("[o,o]", pair(r[0].ns_per_flop, r[0].ns_per_byte),
                             pair(r[1].ns_per_flop, r[1].ns_per_byte));
    ok = json_object_set_new(kernels, tsr__kernel_row_of((tsr__kernel)k)->name, both) == 0;
  }
  if (ok) return kernels;
  json_decref(kernels);
  return NULL;
}

static bool write_text(tsr_rates *rates) {
  json_t *root =
      json_pack("{s:o,s:o,s:s,s:s}", "copies",
                pair(rates->numbers.link_bytes_per_s, rates->numbers.disk_bytes_per_s), "kernels",
                kernels_of(&rates->numbers), "schema", SCHEMA, "title", rates->title);
  bool ok = rates->numbers.peer_bytes_per_s <= 0 ||
            !json_object_set_new(root, "ranks", json_real(rates->numbers.peer_bytes_per_s));
  const tsr__time_band *band = &rates->numbers.band;
  ok = ok && (band->source == TSR__BAND_UNKNOWN ||
              !json_object_set_new(root, "band", pair(band->low, band->high)));
  ok = ok && tsr__json_append(&rates->text, root, JSON_SORT_KEYS | JSON_COMPACT);
  json_decref(root);
  tsr__buffer_append(&rates->text, "\n", 2); /* with its zero byte */
  return ok && !rates->text.failed;
}

tsr_rates *tsr__rates_new(const tsr__machine_rates *numbers, const char *title) {
  tsr_rates *rates = TSR__NEW(tsr_rates);
  if (!rates) return NULL;
  rates->numbers = *numbers;
  (void)snprintf(rates->title, sizeof rates->title, "%s", title);
  if (write_text(rates)) return rates;
  tsr_rates_free(rates);
  return NULL;
}

/* ---- from JSON ---- */

static int wrong(tsr_error *error, const char *key) {
  return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                   "not rates that `train --write-rates` wrote: '%.60s' is not as it should be",
                   key);
}

/* Two numbers that are not negative. */
static bool read_pair(const json_t *list, double *a, double *b) {
  if (!json_is_array(list) || json_array_size(list) != 2) return false;
  const json_t *x = json_array_get(list, 0), *y = json_array_get(list, 1);
  if (!json_is_number(x) || !json_is_number(y)) return false;
  *a = json_number_value(x);
  *b = json_number_value(y);
  return *a >= 0 && *b >= 0 && *a < 1e18 && *b < 1e18;
}

/* A kernel that is missing takes for a byte what the others take on average. */
static int read_kernels(const json_t *kernels, tsr__machine_rates *out, tsr_error *error) {
  double sum = 0, count = 0;
  bool has[TSR__KERNEL_COUNT] = {false};
  if (!json_is_object(kernels)) return wrong(error, "kernels");
  for (int k = TSR__KERNEL_NONE + 1; k < TSR__KERNEL_COUNT; k++) {
    const char *name = tsr__kernel_row_of((tsr__kernel)k)->name;
    const json_t *both = json_object_get(kernels, name);
    if (!both) continue;
    has[k] = true;
    for (size_t width = 0; width < TSR__RATE_WIDTHS; width++) {
      tsr__kernel_rate *rate = &out->kernel[k][width];
      if (!read_pair(json_array_get(both, width), &rate->ns_per_flop, &rate->ns_per_byte))
        return wrong(error, name);
      sum += rate->ns_per_byte;
      count += rate->ns_per_byte > 0;
    }
  }
  for (int k = TSR__KERNEL_NONE + 1; count > 0 && k < TSR__KERNEL_COUNT; k++)
    for (size_t width = 0; !has[k] && width < TSR__RATE_WIDTHS; width++)
      out->kernel[k][width].ns_per_byte = sum / count;
  return 0;
}

/* Files of older versions have none. */
static int read_band(const json_t *list, tsr__time_band *out, tsr_error *error) {
  *out = tsr__band_unknown();
  if (!list) return 0;
  if (!read_pair(list, &out->low, &out->high) || !(out->low > 0 && out->low <= 1) ||
      !(out->high >= 1 && out->high <= 1e6))
    return wrong(error, "band");
  out->source = TSR__BAND_RATES;
  return 0;
}

static int read(const json_t *root, tsr__machine_rates *numbers, const char **title,
                tsr_error *error) {
  const char *schema = json_string_value(json_object_get(root, "schema"));
  *numbers = (tsr__machine_rates){.is_measured = true};
  *title = json_string_value(json_object_get(root, "title"));
  if (!schema || strcmp(schema, SCHEMA) != 0) return wrong(error, "schema");
  if (!*title) return wrong(error, "title");
  if (!read_pair(json_object_get(root, "copies"), &numbers->link_bytes_per_s,
                 &numbers->disk_bytes_per_s))
    return wrong(error, "copies");
  const json_t *ranks = json_object_get(root, "ranks");
  numbers->peer_bytes_per_s = json_number_value(ranks);
  if (ranks && !(json_is_number(ranks) && numbers->peer_bytes_per_s >= 0))
    return wrong(error, "ranks");
  int status = read_band(json_object_get(root, "band"), &numbers->band, error);
  return status ? status : read_kernels(json_object_get(root, "kernels"), numbers, error);
}

int tsr_rates_parse(const char *text, size_t size_bytes, tsr_rates **out, tsr_error *error) {
  json_t *root = NULL;
  tsr__machine_rates numbers;
  const char *title = NULL;
  int status = tsr_json_load(text, size_bytes, JSON_REJECT_DUPLICATES, "not rates", &root, error);
  if (status) return status;
  status = read(root, &numbers, &title, error);
  if (status == 0) {
    *out = tsr__rates_new(&numbers, title);
    if (!*out) status = tsr__fail_memory(error);
  }
  json_decref(root);
  return status;
}
