/* test_frames.c - whose code is a frame? */
#include "tessera/unstable/frames.h"

#include <string.h>

#include "test_support.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))
#define SITE            "/opt/lib/python3.11/site-packages/"

static tsr_text text_of(const char *string) {
  return (tsr_text){string, string ? strlen(string) : 0};
}

static void test_frame_origins(void **state) {
  (void)state;
  static const struct {
    const char *name, *file;
    tsr_origin origin;
    const char *package; /* NULL: not asked */
  } cases[] = {
      {"forward", "model.py", TSR_ORIGIN_USER, NULL},
      {"forward", "/home/me/torch/model.py", TSR_ORIGIN_USER, NULL},
      {"on_train_start", "C:\\work\\train.py", TSR_ORIGIN_USER, NULL},
      {"_start", "C:\\work\\train.py", TSR_ORIGIN_USER, NULL},
      {"<module>", "/tmp/ipykernel_12/77.py", TSR_ORIGIN_USER, NULL},
      {"<module>", "<ipython-input-3-abc>", TSR_ORIGIN_USER, NULL},
      {"<module>", "<stdin>", TSR_ORIGIN_USER, NULL},
      {"fit", SITE "lightning/trainer.py", TSR_ORIGIN_LIBRARY, "lightning"},
      {"fit", "C:\\Lib\\site-packages\\lightning\\trainer.py", TSR_ORIGIN_LIBRARY, "lightning"},
      {"b", "/usr/lib/python3/dist-packages/six.py", TSR_ORIGIN_LIBRARY, "six"},
      {"forward", SITE "torchvision/models/resnet.py", TSR_ORIGIN_LIBRARY, "torchvision"},
      {"forward", SITE "torch/nn/modules/linear.py", TSR_ORIGIN_TORCH, "torch"},
      {"f", "/src/pytorch/torch/nn/functional.py", TSR_ORIGIN_TORCH, "torch"},
      {"f", "torch/_dynamo/eval_frame.py", TSR_ORIGIN_TORCH, "torch"},
      {"f", "/home/me/mytorch/nn/net.py", TSR_ORIGIN_USER, NULL},
      {"forward", "<eval_with_key>.5", TSR_ORIGIN_TORCH, "torch"},
      {"at::empty(c10::ArrayRef<long>)", "??", TSR_ORIGIN_NATIVE, "torch"},
      {"my_kernel", "/home/me/op.cu", TSR_ORIGIN_NATIVE, "C++"},
      {"f", SITE "torch/lib/libtorch_cpu.so", TSR_ORIGIN_NATIVE, "torch"},
      {"f", "/lib/x86_64-linux-gnu/libc.so.6", TSR_ORIGIN_NATIVE, "C++"},
      {"run", "/usr/lib/python3.11/threading.py", TSR_ORIGIN_PYTHON, "python"},
      {"_run_code", "<frozen runpy>", TSR_ORIGIN_PYTHON, "python"},
      {"<module>", "<string>", TSR_ORIGIN_PYTHON, "python"},
      {"main", "/opt/conda/bin/python3.11", TSR_ORIGIN_PYTHON, "python"},
      {"torch::CapturedTraceback::gather(bool)", "??", TSR_ORIGIN_NOISE, "torch"},
      {"_PyEval_EvalFrameDefault", "??", TSR_ORIGIN_NOISE, "python"},
      {"call", "/usr/src/python/Objects/call.c", TSR_ORIGIN_NOISE, "python"},
      {"__libc_start_main_impl", "./csu/libc-start.c", TSR_ORIGIN_NOISE, "C++"},
      {"<unwind unsupported>", "??", TSR_ORIGIN_NOISE, "C++"},
      {"??", "??", TSR_ORIGIN_NOISE, "C++"},
      {NULL, NULL, TSR_ORIGIN_NOISE, "C++"},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    tsr_text name = text_of(cases[i].name), file = text_of(cases[i].file);
    tsr_origin origin = tsr_frame_origin(name, file);
    if (origin != cases[i].origin) print_error("%s, %s\n", cases[i].name, cases[i].file);
    assert_int_equal(origin, cases[i].origin);
    if (!cases[i].package) continue;
    tsr_text package = tsr_frame_package(origin, name, file);
    assert_int_equal(package.size_bytes, strlen(cases[i].package));
    assert_memory_equal(package.data, cases[i].package, package.size_bytes);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_frame_origins),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
