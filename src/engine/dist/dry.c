/* dry.c - a rank without others, for predictions: nothing moves, and comm.c counts the bytes. */
#include "dist/comm.h"

static int exchange(void *self, const char *from, uint64_t stride_bytes, char *to,
                    uint64_t size_bytes, tsr_error *error) {
  (void)self, (void)from, (void)stride_bytes, (void)to, (void)size_bytes, (void)error;
  return 0;
}

static int gather(void *self, const char *mine, char *all, uint64_t size_bytes, tsr_error *error) {
  (void)self, (void)mine, (void)all, (void)size_bytes, (void)error;
  return 0;
}

static int broadcast(void *self, uint32_t root, char *data, uint64_t size_bytes, tsr_error *error) {
  (void)self, (void)root, (void)data, (void)size_bytes, (void)error;
  return 0;
}

static int barrier(void *self, tsr_error *error) {
  (void)self, (void)error;
  return 0;
}

static void fail(void *self, const char *reason) {
  (void)self, (void)reason;
}

static void release(void *self) {
  (void)self;
}

int tsr__dry_comm_new(uint32_t rank, uint32_t size, tsr__comm **out, tsr_error *error) {
  static const tsr__comm_backend dry = {"dry",     true,    exchange, gather,
                                        broadcast, barrier, fail,     release};
  return tsr__comm_new(&dry, NULL, rank, size, out, error);
}
