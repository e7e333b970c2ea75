/* state.h - reads and writes a run's weights and the optimizer's state.
 *
 *   model.safetensors           the weights, under transformers' names; or
 *   adapter_model.safetensors   the adapters, under peft's names
 *   training-300.safetensors    after step 300: two moments of each weight ("NAME.exp_avg", "NAME.exp_avg_sq"),
 *                               for a fused optimizer its count of steps ("NAME.step"), a loss scaler's two
 *                               numbers, and in its metadata the step and the caller's text
 *
 * The weights' metadata names the training file that belongs to them. So a folder is saved at the moment when
 * model.safetensors is replaced: before it, both old files exist, and after it, both new ones. */
#ifndef TSR_TRAIN_STATE_H
#define TSR_TRAIN_STATE_H

#include "exec/run.h"
#include "models/weights.h"
#include "tessera/unstable/training.h"
#include "train/shards.h"

/* What a run starts from. */
typedef struct tsr__saved {
  tsr__weight_files weights;  /* of the model; no files: they are random */
  tsr__weight_files adapters; /* of a run that trained adapters; no files: they are new */
  tsr__safetensors training;  /* for a resumed run */
  char *training_path;        /* its path; owned */
  uint64_t steps, updates;    /* steps done; optimizer updates among them */
  uint64_t data_tokens,
      data_hash; /* the number of tokens, and tsr__tokens_hash; 0 tokens: unknown */
} tsr__saved;

/* Open the weights of a file or folder, and compare them with the checksum that a run has saved with them. Fails as
 * tsr__weight_files_open does, and with TSR_ERROR_FORMAT. */
int tsr__saved_open_weights(const char *path, tsr__saved *out, tsr_error *error);
/* Open a folder to resume from, with weights or adapters, and compare its files with their checksums. Fails as above, and with TSR_ERROR_FORMAT if no run
 * was saved there. */
int tsr__saved_open(const char *folder, tsr__saved *out, tsr_error *error);
/* The caller's text that was saved with the run, which lives as long as `saved`, or "". */
const char *tsr__saved_notes(const tsr__saved *saved);
/* Accepts a zeroed struct. */
void tsr__saved_release(tsr__saved *saved);

/* Whether a weight is read from a file. */
bool tsr__saved_has(const tsr__saved *saved, const tsr__weight_list *weights,
                    tsr__tensor_id tensor);
/* Bytes of the arrays that a save writes. */
uint64_t tsr__saved_bytes(const tsr__program *program, const tsr__weight_list *weights);
/* Check that the files have what the program needs, before it runs. */
int tsr__saved_check(const tsr__saved *saved, const tsr__program *program,
                     const tsr__weight_list *weights, tsr_error *error);
/* Fill the program's parameters, and a scaler's numbers, which must be in memory. */
int tsr__saved_load(const tsr__saved *saved, const tsr__program *program,
                    const tsr__weight_list *weights, const tsr__executor *executor,
                    tsr_error *error);
/* The checksum of the model whose adapters are trained, as it is in memory. */
uint32_t tsr__saved_base_sum(const tsr__weight_list *weights, const tsr__executor *executor);
/* Compare it with that of the run that is resumed. Fails with TSR_ERROR_FORMAT. */
int tsr__saved_check_base(const tsr__saved *saved, uint32_t base_sum, tsr_error *error);
/* Fill a tensor if it is part of the optimizer's state. */
int tsr__saved_restore(const tsr__saved *saved, const tsr__program *program,
                       const tsr__weight_list *weights, const tsr__executor *executor,
                       tsr__tensor_id tensor, tsr_error *error);

/* The state between two steps, which may be saved. */
struct tsr_train_state {
  const tsr__program *program;
  const tsr__weight_list *weights;
  const tsr__executor *executor;
  tsr__comm *comm; /* to other ranks, or NULL */
  uint64_t steps, updates;
  uint64_t data_tokens, data_hash;
  uint32_t base_sum; /* tsr__saved_base_sum, of a run that trains adapters */
};

#endif
