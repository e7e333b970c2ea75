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
  /* Use the next unit already if rounding would print 1024.0 of this one. */
  while (unit + 1 < sizeof units / sizeof *units && value >= (unit ? 1023.995 : 1023.95)) {
    value /= 1024;
    unit++;
  }
  /* In whole tenths or hundredths, because printf's decimal point depends on the locale. */
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

/* Days from 1970-01-01 to a date of the proleptic Gregorian calendar, the inverse of civil_date:
 * years begin in March here, so that the leap day is the last. */
static int64_t days_of(int64_t year, int month, int day) {
  if (month <= 2) year--;
  int64_t era = (year >= 0 ? year : year - 399) / 400, of_era = year - era * 400;
  int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* A number of exactly `digits` digits at `*at`, which moves past it; -1 if absent. */
static int read_digits(const char **at, int digits) {
  int number = 0;
  for (int i = 0; i < digits; i++, (*at)++) {
    if (**at < '0' || **at > '9') return -1;
    number = number * 10 + (**at - '0');
  }
  return number;
}

/* ".365713" and shorter, in microseconds; digits beyond the sixth are not read, so the caller finds
 * them left. */
static int64_t read_fraction(const char **at) {
  int64_t fraction = 0, unit = 100000;
  if (**at != '.') return 0;
  for ((*at)++; unit && **at >= '0' && **at <= '9'; (*at)++, unit /= 10)
    fraction += (**at - '0') * unit;
  return fraction;
}

bool tsr__read_time(const char *text, int64_t *time_us) {
  static const int month_days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const char *at = text;
  int year = read_digits(&at, 4);
  if (year < 0 || *at++ != '-') return false;
  int month = read_digits(&at, 2);
  if (month < 1 || month > 12 || *at++ != '-') return false;
  int day = read_digits(&at, 2);
  bool is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  if (day < 1 || day > month_days[month - 1] + (month == 2 && is_leap)) return false;
  if (*at != ' ' && *at != 'T') return false;
  at++;
  int hour = read_digits(&at, 2);
  if (hour < 0 || hour > 23 || *at++ != ':') return false;
  int minute = read_digits(&at, 2);
  if (minute < 0 || minute > 59 || *at++ != ':') return false;
  int second = read_digits(&at, 2);
  if (second < 0 || second > 59) return false;
  int64_t fraction_us = read_fraction(&at);
  if (strcmp(at, "") != 0 && strcmp(at, "Z") != 0 && strcmp(at, " UTC") != 0) return false;
  int64_t seconds = days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
  *time_us = seconds * 1000000 + fraction_us;
  return true;
}

const char *tsr__format_duration(double seconds, char text[TSR__FORMAT_BYTES]) {
  if (seconds <= 0)
    (void)snprintf(text, TSR__FORMAT_BYTES, "-");
  else if (seconds >= 1)
    (void)snprintf(text, TSR__FORMAT_BYTES, "%.2f s", seconds);
  else
    (void)snprintf(text, TSR__FORMAT_BYTES, seconds >= 0.1 ? "%.0f ms" : "%.2f ms", seconds * 1000);
  return text;
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
