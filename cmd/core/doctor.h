/* doctor.h - the fields of the JSON of `tessera doctor`. */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include <tessera/unstable/fields.h>

extern const tsr_record cli_doctor_fields;

#endif
