/* write.h - a snapshot as a sequence of values, and the encodings that spell them.
 *
 * One walk (write_walk.c) visits everything a snapshot holds, in order; an encoding is a table of
 * functions that spell each value. A dict is begun with the number of its pairs, followed by keys
 * and values in turn; what is inside ends with the container.
 *
 *   begin(DICT, 2)  string("addr") integer(4096)  string("frames") begin(LIST, 0) end()  end()
 *
 * The calls return nothing: an encoder that fails remembers it in `status`, and the walk
 * looks there now and then. */
#ifndef TSR_WRITE_WRITE_H
#define TSR_WRITE_WRITE_H

#include "formats/assemble.h"
#include "tessera/export.h"

enum {
  /* Kept values within kept values; a snapshot's own lists and dicts come on top. */
  TSR__WRITE_NESTING = 1000,
  /* Containers open at once: a kept value that is an event or a segment opens up to four. */
  TSR__WRITE_DEPTH = 4 * TSR__WRITE_NESTING + 16,
  /* Values in the depths of kept values: where these name one another twice and twice again, a
   * small file would become an endless one. */
  TSR__WRITE_NESTED_VALUES = 16 << 20
};

/* A container that is being written. */
typedef struct tsr__level {
  uint64_t count;    /* of its items, or pairs */
  uint64_t position; /* keys and values, or items, already begun */
  uint32_t *memo;    /* of a pickle's tuple that may be named again; else NULL */
  uint8_t kind;      /* tsr__container_kind */
  bool has_lines;    /* each item or pair on its own line, where that can be */
} tsr__level;

/* What every encoder begins with. Invariant: depth <= TSR__WRITE_DEPTH. */
typedef struct tsr__encoder {
  const tsr_snapshot *snapshot; /* not owned */
  tsr_write_fn *write;
  void *context;
  int status; /* 0, or the first failure: _WRITE, _MEMORY or _UNSUPPORTED */
  uint32_t depth;
  tsr__level levels[TSR__WRITE_DEPTH];
} tsr__encoder;

typedef struct tsr__encoding {
  /* A new encoder; NULL when out of memory. */
  tsr__encoder *(*create)(const tsr_snapshot *snapshot, tsr_write_fn *write, void *context);
  /* Write what is left; the status is final then. */
  void (*finish)(tsr__encoder *encoder);
  void (*release)(tsr__encoder *encoder);

  /* The value that comes next has this tag (frame, stack, pair or loose) and id. True: it was
   * written before, and now by reference, so that nothing is left to do; false: write it, beginning
   * with `begin`. */
  bool (*refer)(tsr__encoder *encoder, tsr__tag tag, uint32_t id);
  void (*begin)(tsr__encoder *encoder, tsr__container_kind kind, uint64_t count, bool has_lines);
  void (*end)(tsr__encoder *encoder);
  /* The 64 bits of an integer, which is negative or not. */
  void (*integer)(tsr__encoder *encoder, uint64_t bits, bool is_negative);
  /* One of more than 64 bits: a string's id, of its digits (base/decimal.h). */
  void (*big)(tsr__encoder *encoder, uint32_t digits);
  void (*real)(tsr__encoder *encoder, double value);
  void (*boolean)(tsr__encoder *encoder, bool value);
  void (*null)(tsr__encoder *encoder);
  void (*string)(tsr__encoder *encoder, uint32_t id);
} tsr__encoding;

/* JSON with lines and JSON as Python indents it; repr(). */
extern const tsr__encoding tsr__pickle_encoding, tsr__json_encoding, tsr__python_json_encoding,
    tsr__python_encoding;

/* Give bytes to the caller's function, unless an earlier call failed. */
static inline void tsr__encoder_flush(tsr__encoder *encoder, const void *data, size_t size_bytes) {
  if (encoder->status || !size_bytes) return;
  if (encoder->write(encoder->context, data, size_bytes)) encoder->status = TSR_ERROR_WRITE;
}

/* The innermost open container, or NULL. */
static inline tsr__level *tsr__encoder_level(tsr__encoder *encoder) {
  return encoder->depth ? &encoder->levels[encoder->depth - 1] : NULL;
}

/* U+FFFD, which stands for bytes that are no text. */
#define TSR__NOT_TEXT UINT32_C(0xfffd)

/* The character at `*at`, which moves past it. Lone surrogates are characters here, as in
 * Python. A byte that begins none counts as U+FFFD and clears `*is_valid`. `*at` < `end`. */
uint32_t tsr__next_character(const unsigned char **at, const unsigned char *end, bool *is_valid);

#endif
