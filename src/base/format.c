/* format.c - see format.h. Nothing here depends on the locale. */
#include "base/format.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *tsr__format_size(uint64_t bytes, char text[TSR__FORMAT_BYTES]) {
  static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) {
    (void)snprintf(text, TSR__FORMAT_BYTES, "%" PRIu64 " B", bytes);
    return text;
  }
  double value = (double)bytes / 1024;
  size_t unit = 0;
  /* Step up already where rounding would print 1024.0 of a unit. */
  while (unit + 1 < sizeof units / sizeof *units && value >= (unit ? 1023.995 : 1023.95)) {
    value /= 1024;
    unit++;
  }
  /* In whole tenths or hundredths: printf's own point would be the locale's. */
  unsigned steps = unit ? 100 : 10;
  uint64_t scaled = (uint64_t)(value * steps + 0.5);
  (void)snprintf(text, TSR__FORMAT_BYTES, "%" PRIu64 ".%0*u %s", scaled / steps, unit ? 2 : 1,
                 (unsigned)(scaled % steps), units[unit]);
  return text;
}

const char *tsr__format_count(uint64_t count, char text[TSR__FORMAT_BYTES]) {
  char digits[TSR__FORMAT_BYTES];
  int length = snprintf(digits, sizeof digits, "%" PRIu64, count);
  char *out = text;
  for (int i = 0; i < length; i++) {
    if (i && (length - i) % 3 == 0) *out++ = ',';
    *out++ = digits[i];
  }
  *out = 0;
  return text;
}

const char *tsr__format_percent(uint64_t part, uint64_t whole, char text[TSR__FORMAT_BYTES]) {
  uint64_t tenths = whole ? (uint64_t)(1000.0 * ((double)part / (double)whole) + 0.5) : 0;
  (void)snprintf(text, TSR__FORMAT_BYTES, "%" PRIu64 ".%u %%", tenths / 10,
                 (unsigned)(tenths % 10));
  return text;
}

/* Civil date from days since 1970-01-01, by counting 400-year cycles from 0000-03-01. */
static void civil_date(int64_t days, int64_t *year, int *month, int *day) {
  days += 719468;
  int64_t era = (days >= 0 ? days : days - 146096) / 146097;
  int64_t day_of_era = days - era * 146097;
  int64_t year_of_era =
      (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  int64_t shifted_month = (5 * day_of_year + 2) / 153;
  *day = (int)(day_of_year - (153 * shifted_month + 2) / 5 + 1);
  *month = (int)(shifted_month < 10 ? shifted_month + 3 : shifted_month - 9);
  *year = year_of_era + era * 400 + (*month <= 2);
}

const char *tsr__format_time(int64_t time_us, char text[TSR__FORMAT_BYTES]) {
  int64_t second_us = time_us % 1000000, seconds = time_us / 1000000;
  if (second_us < 0) second_us += 1000000, seconds--;
  int64_t clock = seconds % 86400, days = seconds / 86400;
  if (clock < 0) clock += 86400, days--;
  int64_t year;
  int month, day;
  civil_date(days, &year, &month, &day);
  (void)snprintf(text, TSR__FORMAT_BYTES, "%04d-%02d-%02d %02d:%02d:%02d.%06d", (int)(year % 10000),
                 month, day, (int)(clock / 3600), (int)(clock / 60 % 60), (int)(clock % 60),
                 (int)second_us);
  return text;
}
