/* imbalance.c - see imbalance.h. */
#include "questions/shared/imbalance.h"

#include "base/checked.h"
#include "study/block_call.h"

/* A smaller difference matters to no one. */
#define LEAST_BYTES (UINT64_C(16) << 20)
#define LEAST_SHARE 20

/* The peak of a GPU; 0 of host memory. */
static int peak_of(tsr_study *study, uint32_t device, uint64_t *out, tsr_error *error) {
  const tsr__timeline *timeline;
  *out = 0;
  if (device >= TSR_DEVICE_CPU) return 0;
  int status = tsr__study_timeline(study, device, &timeline, error);
  if (!status) *out = timeline->at_peak.allocated_bytes;
  return status;
}

static bool is_data_parallel(const tsr_snapshot *snapshot) {
  static const char *const files[] = {"torch/nn/parallel/data_parallel.py",
                                      "torch/nn/parallel/replicate.py",
                                      "torch/nn/parallel/scatter_gather.py"};
  uint32_t count = tsr_snapshot_frame_count(snapshot);
  for (uint32_t i = 0; i < count; i++) {
    tsr_text file = tsr_snapshot_string(snapshot, tsr_snapshot_frame(snapshot, i).file);
    for (size_t k = 0; k < sizeof files / sizeof *files; k++)
      if (tsr__path_has(file, files[k])) return true;
  }
  return false;
}

int tsr__imbalance_find(tsr_study *study, const uint32_t *devices, size_t count, tsr_imbalance *out,
                        tsr_error *error) {
  tsr_imbalance found = {.least_peak_bytes = UINT64_MAX};
  uint64_t sum = 0, peak;
  *out = (tsr_imbalance){0};
  for (size_t i = 0; i < count; i++) {
    int status = peak_of(study, devices[i], &peak, error);
    if (status) return status;
    if (peak <= found.peak_bytes) continue;
    found.peak_bytes = peak;
    found.device = devices[i];
  }
  for (size_t i = 0; i < count; i++) {
    int status = peak_of(study, devices[i], &peak, error);
    if (status) return status;
    if (!peak || peak < found.peak_bytes / LEAST_SHARE) continue;
    found.device_count++;
    sum = tsr__sum_u64(sum, peak);
    if (peak >= found.least_peak_bytes) continue;
    found.least_peak_bytes = peak;
    found.least_device = devices[i];
  }
  if (found.device_count < 2) return 0;
  uint64_t others = (sum - found.peak_bytes) / (found.device_count - 1);
  if (found.peak_bytes - others < LEAST_BYTES || found.peak_bytes / 3 < others / 2) return 0;
  found.mean_peak_bytes = sum / found.device_count;
  found.is_data_parallel = is_data_parallel(tsr_study_snapshot(study));
  *out = found;
  return 0;
}
