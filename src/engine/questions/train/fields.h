/* fields.h - the events of `train`. */
#ifndef TSR_QUESTIONS_TRAIN_FIELDS_H
#define TSR_QUESTIONS_TRAIN_FIELDS_H

#include "emit/fields.h"

extern const tsr_record tsr__fields_train_plan, tsr__fields_train_step, tsr__fields_train_sample,
    tsr__fields_train_ops, tsr__fields_train_profile, tsr__fields_train_end;

#endif
