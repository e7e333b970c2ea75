/* fields.h - to declare the fields of an answer (tessera/unstable/fields.h), and those that all answers have. */
#ifndef TSR_EMIT_FIELDS_H
#define TSR_EMIT_FIELDS_H

#include "tessera/unstable/fields.h"

/* One field: its kind, its key and what it means, and designators for the rest.
 *
 *   TSR__FIELD(TIME, "time_us", "its time", .is_nullable = true) */
#define TSR__FIELD(KIND, KEY, ...) \
  { .key = (KEY), .kind = TSR_FIELD_##KIND, .about = __VA_ARGS__ }
/* A field that is an object, and one that is a list of objects. */
#define TSR__PART(OF, KEY, ...) TSR__FIELD(RECORD, KEY, __VA_ARGS__, .record = &(OF))
#define TSR__LIST(OF, KEY, ...) TSR__PART(OF, KEY, __VA_ARGS__, .is_list = true)
#define TSR__FIELDS(...)          \
  .fields = (const tsr_field[]) { \
    __VA_ARGS__, {                \
      .key = NULL                 \
    }                             \
  }

/* What every answer has around its devices: the base of each question's record. */
extern const tsr_record tsr__fields_answer;
/* What every device has: the base of each question's devices. */
extern const tsr_record tsr__fields_device;
/* PyTorch's four totals; and those after an event. */
extern const tsr_record tsr__fields_totals, tsr__fields_moment;

struct tsr__cell; /* emit/emitter.h */

/* Whether `field`, or an element of it, may have this value. */
bool tsr__field_allows(const tsr_field *field, const struct tsr__cell *value);

#endif
