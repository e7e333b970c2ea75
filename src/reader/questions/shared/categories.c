/* categories.c - see categories.h. */
#include "questions/shared/categories.h"

#include <assert.h>

#include "base/format.h"

static int count_kinds(const tsr_stack_share *share) {
  int count = 0;
  for (int i = 0; i < TSR_CATEGORY_COUNT; i++) count += share->category_bytes[i] != 0;
  return count;
}

void tsr__append_category(tsr__buffer *out, const tsr_stack_share *share) {
  int count = count_kinds(share);
  tsr__buffer_text(out, tsr_category_name(share->category));
  if (count > 1) tsr__buffer_printf(out, " +%d", count - 1);
}

void tsr__append_categories(tsr__buffer *out, const tsr_stack_share *share) {
  char size[TSR__FORMAT_BYTES];
  bool is_said[TSR_CATEGORY_COUNT] = {false};
  if (count_kinds(share) <= 1) {
    tsr__buffer_text(out, tsr_category_name(share->category));
    return;
  }
  for (int said = 0; said < count_kinds(share); said++) {
    int most = -1;
    for (int i = 0; i < TSR_CATEGORY_COUNT; i++)
      if (!is_said[i] && share->category_bytes[i] &&
          (most < 0 || share->category_bytes[i] > share->category_bytes[most]))
        most = i;
    assert(most >= 0);
    is_said[most] = true;
    tsr__buffer_printf(out, "%s%s %s", said ? ", " : "", tsr_category_name((tsr_category)most),
                       tsr__format_size(share->category_bytes[most], size));
  }
}

void tsr__append_reason(tsr__buffer *out, tsr_evidence evidence) {
  tsr__buffer_text(out, tsr_evidence_text(evidence));
  if (evidence == TSR_EVIDENCE_NONE) return;
  tsr__buffer_printf(out, " (%s)", tsr_confidence_name(tsr_evidence_confidence(evidence)));
}

void tsr__emit_reason(tsr__emitter *emitter, tsr_phase phase, tsr_evidence evidence) {
  if (tsr__emitter_is_text(emitter)) return;
  tsr_confidence confidence = tsr_evidence_confidence(evidence);
  tsr__emit_field(emitter, "phase", NULL, tsr__string(tsr_phase_name(phase)));
  tsr__emit_field(emitter, "evidence", NULL, tsr__string(tsr_evidence_text(evidence)));
  tsr__emit_field(emitter, "confidence", NULL, tsr__string(tsr_confidence_name(confidence)));
}

void tsr__emit_categories(tsr__emitter *emitter, const tsr_stack_share *share) {
  if (tsr__emitter_is_text(emitter)) return;
  tsr__emit_reason(emitter, share->phase, share->evidence);
  tsr__emit_inline_object(emitter, "categories");
  for (int i = 0; i < TSR_CATEGORY_COUNT; i++)
    if (share->category_bytes[i])
      tsr__emit_field(emitter, tsr_category_name((tsr_category)i), NULL,
                      tsr__bytes(share->category_bytes[i]));
  tsr__emit_end(emitter);
}
