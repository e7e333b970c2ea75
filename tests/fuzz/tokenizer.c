/* A tokenizer.json, and a text that is encoded and decoded with it. */
#include "tessera/unstable/tokenizer.h"

#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct seen {
  tsr_token_decoder *decoder;
} seen;

static int see(void *context, const uint32_t *ids, size_t count) {
  seen *s = context;
  for (size_t i = 0; i < count; i++) {
    tsr_text text;
    tsr_error error = {0};
    require(ids[i] < 1u << 24, "an id in range");
    check_error(tsr_token_decoder_put(s->decoder, ids[i], &text, &error), &error);
  }
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char text[] =
      "The caf\xC3\xA9's 1234 <|endoftext|> \n\n  a\xCC\x81 \xF0\x9F\x98\x80 aaaa<0x0A>";
  tsr_tokenizer *t = NULL;
  tsr_error error = {0};
  tsr_text rest;
  int status = tsr_tokenizer_read((const char *)data, size, &t, &error);
  check_error(status, &error);
  if (status) return 0;
  seen s = {tsr_token_decoder_new(t, false)};
  if (s.decoder) {
    status = tsr_tokenizer_encode(t, text, sizeof text - 1, NULL, see, &s, &error);
    check_error(status, &error);
    (void)tsr_token_decoder_finish(s.decoder, &rest, NULL);
  }
  tsr_token_decoder_free(s.decoder);
  tsr_tokenizer_free(t);
  return 0;
}
