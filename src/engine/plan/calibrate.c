/* calibrate.c - predicts a recorded run, and scales the rates of its card so that a predicted step takes as long as
 * a recorded one. The reader compares the recording with the prediction (ask/recorded.h). */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "ask/recorded.h"
#include "base/memory.h"
#include "exec/measure.h"
#include "exec/rates.h"
#include "plan/planner.h"

/* ---- the prediction ---- */

static int predict_time(const tsr_model *model, const tsr_simulate_options *how,
                        tsr_calibration *out, tsr_error *error) {
  tsr__survey survey = {.repeats = 0};
  tsr_simulate_options options = *how;
  options.profile = false;
  const tsr__survey_options sums = {.sums_only = true};
  if (options.steps < 2) options.steps = 2;
  int status = tsr__measure_survey(model, &options, 0, &sums, &survey, error);
  if (status) return status;
  static const tsr__phase_kind phases[TSR_CALIBRATION_PHASES] = {
      TSR__PHASE_FORWARD, TSR__PHASE_BACKWARD, TSR__PHASE_OPTIMIZER};
  for (size_t i = 0; i < TSR_CALIBRATION_PHASES; i++)
    out->phases[i].predicted_s = survey.cost.phase_s[phases[i]];
  out->predicted_s = survey.cost.step_s;
  tsr__survey_release(&survey);
  return 0;
}

/* How well one factor explains the phases. */
static tsr__time_band band_of(const tsr_calibration *c) {
  tsr__band_sample phases[TSR_CALIBRATION_PHASES];
  for (size_t i = 0; i < TSR_CALIBRATION_PHASES; i++)
    phases[i] = (tsr__band_sample){c->phases[i].measured_s, c->phases[i].predicted_s * c->factor};
  return tsr__band_learn(TSR__BAND_RECORDED, phases, TSR_CALIBRATION_PHASES, NULL, 0, 0);
}

/* The card's rates, scaled by one factor so that the predicted step takes the recorded time. The rates of copies do
 * not change. */
static int scale_rates(const tsr_simulate_options *how, tsr_calibration *out, tsr_error *error) {
  tsr__machine_rates rates;
  if (out->measured_s <= 0 || out->predicted_s <= 0 ||
      !tsr__rates_for(how, tsr__gpu_of(how), &rates))
    return 0;
  out->factor = out->measured_s / out->predicted_s;
  assert(out->factor > 0 && isfinite(out->factor));
  for (size_t k = 0; k < TSR__KERNEL_COUNT; k++)
    for (size_t width = 0; width < TSR__RATE_WIDTHS; width++) {
      rates.kernel[k][width].ns_per_flop *= out->factor;
      rates.kernel[k][width].ns_per_byte *= out->factor;
    }
  rates.launch_ns *= out->factor;
  rates.is_measured = true;
  rates.band = band_of(out);
  out->rates = tsr__rates_new(&rates, "a recorded run");
  return out->rates ? 0 : tsr__fail_memory(error);
}

/* ---- the calibration ---- */

int tsr_calibrate(const tsr_model *model, const tsr_simulate_options *how, tsr_study *recorded,
                  tsr_calibration *out, tsr_error *error) {
  tsr_simulate_options own = *how;
  tsr_calibration found = {.steps = 0};
  tsr_simulation *simulation = NULL;
  int status = tsr__choose_gpu(model, &own, error);
  if (status == 0) status = predict_time(model, &own, &found, error);
  if (status == 0) status = tsr_simulate(model, &own, &simulation, error);
  if (status == 0) status = tsr__recorded_run(recorded, simulation->snapshot, &found, error);
  if (status == 0) status = scale_rates(&own, &found, error);
  tsr_simulation_free(simulation);
  if (status)
    tsr_calibration_release(&found);
  else
    *out = found;
  return status;
}

void tsr_calibration_release(tsr_calibration *calibration) {
  tsr_rates_free(calibration->rates);
  calibration->rates = NULL;
}

const char *tsr_calibration_phase(size_t index) {
  static const char *const words[TSR_CALIBRATION_PHASES] = {"forward", "backward", "optimizer"};
  return index < TSR_CALIBRATION_PHASES ? words[index] : "";
}
