/* forms.h - the forms a snapshot is wrapped in, each a stream over the wrapped bytes.
 *
 * Each function makes a stream that delivers what is inside `below`, which it owns from now on,
 * also on failure. The first bytes of `below` must be those of the form (see detect.h). All fail
 * with TSR_ERROR_MEMORY; reading fails with TSR_ERROR_FORMAT where nothing could be delivered,
 * _LIMIT where the data grows beyond tsr_limits.expansion_... or a decoder would need more than a
 * 128th of tsr_limits.memory_bytes, and as `below` does. Zeroed limits are the defaults. */
#ifndef TSR_IO_FORMS_H
#define TSR_IO_FORMS_H

#include "io/source.h"
#include "tessera/limits.h"

typedef int tsr__stream_form(tsr__stream *below, const tsr_limits *limits, tsr__stream **out,
                             tsr_error *error);

/* RFC 1952: all members; anything after the last that is no member is ignored. */
tsr__stream_form tsr__stream_gzip;
/* RFC 8878: all frames, skippable ones skipped; anything after them is ignored. */
tsr__stream_form tsr__stream_zstd;
/* All streams of an .xz file, and the padding between them. */
tsr__stream_form tsr__stream_xz;
/* The first member that can be a snapshot by its name: torch.save's <name>/data.pkl, or a .pickle,
 * .pkl, .json, .html, .sqlite or .prof file, perhaps compressed. Reads front to back, so it needs no seeking; what
 * is before the member is read and dropped here. Also fails with TSR_ERROR_FORMAT if there is no
 * such member and TSR_ERROR_UNSUPPORTED where it is encrypted or of an unknown method. */
tsr__stream_form tsr__stream_zip;
/* The first snapshot embedded in a page as PyTorch writes it; `more_payloads` counts the others. */
tsr__stream_form tsr__stream_html;

/* The snapshot number `index` of a page, from 0. Also fails with TSR_ERROR_FORMAT if the page has
 * fewer. */
int tsr__stream_html_payload(tsr__stream *below, uint32_t index, tsr__stream **out,
                             tsr_error *error);

#endif
