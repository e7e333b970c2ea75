/* train_row.h - what train.c (the run) and train_row.c (its options) have in common. */
#ifndef CLI_TRAIN_ROW_H
#define CLI_TRAIN_ROW_H

/* The words of --isa, in the order of tsr_train_isa from TSR_TRAIN_ISA_PLAIN on; ends in NULL. */
extern const char *const cli_train_isa_words[];

#endif
