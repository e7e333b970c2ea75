/* doctor_fields.c - the fields of the JSON of `tessera doctor`, which python/doctor/doctor.py makes; tests/doctor compares both. */
#include <stddef.h>

#include "doctor.h"

#define FIELD(KIND, KEY, ...) \
  { .key = (KEY), .kind = TSR_FIELD_##KIND, .about = __VA_ARGS__ }

static const tsr_record check_fields = {
    .name = "DoctorCheck",
    .about = "One check.",
    .fields =
        (const tsr_field[]){
            FIELD(TEXT, "group", "`tessera`, `python`, `machine`, `predictions` or `card`"),
            FIELD(TEXT, "name", "what was checked"),
            FIELD(
                TEXT, "status",
                "`ok`; `note`, if it is worth knowing and nothing is wrong; `skipped`, if it could "
                "not be checked here; or `failed`"),
            FIELD(TEXT, "message", "what was found"),
            FIELD(TEXT, "advice", "what to do about it", .is_nullable = true),
            {.key = NULL}},
};

static const tsr_record device_fields = {
    .name = "DoctorDevice",
    .about = "A GPU that programs ran on.",
    .fields =
        (const tsr_field[]){
            FIELD(COUNT, "device", "its number in PyTorch"),
            FIELD(TEXT, "name", "as PyTorch names it"),
            FIELD(TEXT, "capability", "its compute capability"),
            FIELD(TEXT, "predicted_as", "the card of `simulate --gpu` that predictions were for"),
            FIELD(TEXT, "driver", "the driver's version", .is_nullable = true),
            FIELD(TEXT, "cuda", "the version of CUDA that PyTorch was built for",
                  .is_nullable = true),
            FIELD(BYTES, "total_bytes", "the card's memory, as the driver says"),
            FIELD(BYTES, "context_bytes", "what the CUDA context of a process takes",
                  .is_nullable = true),
            FIELD(BYTES, "libraries_bytes",
                  "what a process takes besides its context and PyTorch's memory after it ran all "
                  "programs: libraries and their kernels",
                  .is_nullable = true),
            FIELD(BYTES, "nccl_bytes_per_communicator",
                  "what a second communicator of two processes takes on a card; null without two "
                  "cards",
                  .is_nullable = true),
            FIELD(BYTES, "other_bytes",
                  "what was in use when the measurement began, without a context: other processes, "
                  "and the driver",
                  .is_nullable = true),
            {.key = NULL}},
};

static const tsr_record phase_fields = {
    .name = "DoctorPhase",
    .about = "A phase of a program. Both figures are requested bytes.",
    .fields = (const tsr_field[]){FIELD(TEXT, "name", "`forward`, `backward` or `optimizer`"),
                                  FIELD(BYTES, "predicted_bytes", "its highest peak, as predicted"),
                                  FIELD(BYTES, "measured_bytes", "as PyTorch's counters had it"),
                                  {.key = NULL}},
};

static const tsr_record program_fields = {
    .name = "DoctorProgram",
    .about = "A training program. Peaks are those of its first three steps.",
    .fields =
        (const tsr_field[]){
            FIELD(TEXT, "name", "the program"),
            FIELD(TEXT, "about", "what it does"),
            FIELD(
                TEXT, "status",
                "`equal` to what was measured, or without a GPU recorded; `near` it, within 0.5 % "
                "or 64 KiB; `explained`, where `message` says by what; `differs`; `read`, if it "
                "is not predicted and its snapshot shows what PyTorch counted; `misread`, if the "
                "snapshot shows something else; `not_run`; or `failed`"),
            FIELD(TEXT, "message", "what differs, or why it did not run"),
            FIELD(RECORD, "phases", "of a program that ran", .record = &phase_fields,
                  .is_list = true),
            FIELD(BYTES, "predicted_peak_bytes", "allocated at the peak", .is_nullable = true),
            FIELD(BYTES, "measured_peak_bytes", "the same, by PyTorch's counters",
                  .is_nullable = true),
            FIELD(BYTES, "predicted_reserved_bytes", "the most that is reserved",
                  .is_nullable = true),
            FIELD(BYTES, "measured_reserved_bytes", "the same, by PyTorch's counters",
                  .is_nullable = true),
            FIELD(BYTES, "read_peak_bytes",
                  "allocated at the peak of the whole program, by the snapshot of the run",
                  .is_nullable = true),
            FIELD(BYTES, "read_reserved_bytes", "the most reserved, by the same",
                  .is_nullable = true),
            {.key = NULL}},
};

const tsr_record cli_doctor_fields = {
    .name = "doctor",
    .about = "Whether tessera is right on this machine.",
    .fields =
        (const tsr_field[]){
            FIELD(TEXT, "verdict", "`well`, or `failed` if a check failed"),
            FIELD(TEXT, "version", "of tessera"),
            FIELD(TEXT, "system", "as in `tessera --version --json`", .is_nullable = true),
            FIELD(TEXT, "processor", "the same", .is_nullable = true),
            FIELD(TEXT, "python", "its version; null if none could be started",
                  .is_nullable = true),
            FIELD(TEXT, "torch", "PyTorch's version; null without it", .is_nullable = true),
            FIELD(TEXT, "cuda", "the version of CUDA that PyTorch was built for",
                  .is_nullable = true),
            FIELD(TEXT, "allocator_settings",
                  "the user's settings of PyTorch's allocator, which the programs do not have"),
            FIELD(FLAG, "is_quick", "whether only some programs were chosen (`--quick`)"),
            FIELD(FLAG, "is_saved", "whether machine.json was written"),
            FIELD(DURATION, "duration_us", "how long all of it took"),
            FIELD(RECORD, "checks", "in the order in which they were made", .record = &check_fields,
                  .is_list = true),
            FIELD(RECORD, "devices", "empty without a GPU", .record = &device_fields,
                  .is_list = true),
            FIELD(RECORD, "programs", "empty if PyTorch cannot trace or run any",
                  .record = &program_fields, .is_list = true),
            {.key = NULL}},
};
