/* tessera/status.h - what every function that can fail returns.
 *
 * A function that can fail returns 0 (TSR_OK) or a negative tsr_status and takes an optional last
 * argument `tsr_error *`. On failure its outputs are untouched and `error`, unless NULL,
 * describes the failure so that a person can act on it. On success `error` is untouched.
 *
 * The library never prints, exits, aborts, reads the environment or changes global state.
 */
#ifndef TESSERA_STATUS_H
#define TESSERA_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tsr_status {
  TSR_OK = 0,
  TSR_ERROR_MEMORY = -1, /* the process is out of memory; free something and call again */
  TSR_ERROR_IO = -2, /* the operating system reported an error: no such file, no permission, ... */
  TSR_ERROR_FORMAT = -3, /* the input is not a snapshot, or is too damaged for an answer */
  TSR_ERROR_LIMIT = -4,  /* the input exceeds a limit of tessera/limits.h; raise it to continue */
  TSR_ERROR_UNSUPPORTED = -5, /* a snapshot format that this build cannot read */
  TSR_ERROR_ARGUMENT = -6, /* the caller asked for something that does not exist, e.g. a device */
  TSR_ERROR_WRITE = -7,    /* the caller's write function reported a failure */
  TSR_ERROR_ABSENT = -8,   /* the answer lacks this value here; another answer may have it */
  TSR_ERROR_NULL = -9,     /* the value is null: it does not apply, or is not known */
  TSR_ERROR_TYPE = -10     /* the value is of another type: call the function for that */
} tsr_status;

/* No byte offset applies. */
#define TSR_OFFSET_NONE UINT64_MAX

typedef struct tsr_error {
  tsr_status status;
  uint64_t offset;   /* bytes from the start of the (decompressed) input, or TSR_OFFSET_NONE */
  char message[256]; /* one sentence, no newline, always terminated; names no file */
} tsr_error;

/* The status's name in words ("out of memory"). Static text; never NULL, for any value. */
const char *tsr_status_text(tsr_status status);

#ifdef __cplusplus
}
#endif
#endif
