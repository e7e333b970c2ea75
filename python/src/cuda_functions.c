/* cuda_functions.c - what PyTorch's C++ asks of a CUDA device, answered where there is no driver.
 *
 * tessera/_fake_cuda.py puts these functions into tables of virtual functions: of a device guard
 * (c10/core/impl/DeviceGuardImplInterface.h) and of the hooks (ATen/detail/AcceleratorHooksInterface.h). They are C, since a
 * c10::Stream and a c10::Device are returned by value, in registers, which a callback of ctypes cannot. What they are
 * passed does not matter: it is in registers that nobody reads.
 *
 * The package's extension has them, and so does a library of their own, which the command brings along for a Python that
 * does not have the package (python/tracer). */
#include "cuda_functions.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* c10::Device and c10::Stream. */
typedef struct cuda_device {
  int8_t type, index;
} cuda_device;
typedef struct cuda_stream {
  cuda_device device;
  int64_t id;
} cuda_stream;

enum { CUDA = 1 }; /* c10/core/DeviceType.h */

static int8_t type_of_device(void) {
  return CUDA;
}
static cuda_device first_device(void) {
  return (cuda_device){.type = CUDA, .index = 0};
}
static cuda_stream default_stream(void) {
  return (cuda_stream){.device = {.type = CUDA, .index = 0}, .id = 0};
}
static int8_t count_of_devices(void) {
  return 1;
}
static bool yes(void) {
  return true;
}
static bool no(void) {
  return false;
}
static void nothing_to_do(void) {}

const cuda_function tessera_cuda_functions[] = {
    {"type", (any_function *)type_of_device},
    {"exchangeDevice", (any_function *)first_device},
    {"getDevice", (any_function *)first_device},
    {"getStream", (any_function *)default_stream},
    {"getDefaultStream", (any_function *)default_stream},
    {"exchangeStream", (any_function *)default_stream},
    {"record", (any_function *)nothing_to_do},
    {"block", (any_function *)nothing_to_do},
    {"queryEvent", (any_function *)yes},
    {"deviceCount", (any_function *)count_of_devices},
    {"hasPrimaryContext", (any_function *)no},
    {NULL, NULL},
};
