/* kernel.c - the table of kernels. See kernel.h for what each computes. */
#include "kernels/kernel.h"

#include <assert.h>
#include <stddef.h>

#include "kernels/reference.h"

/* How work is counted. */
#define EACH(n)  .work = TSR__WORK_RESULTS, .operations = (n)
#define READS(n) .work = TSR__WORK_READS, .operations = (n)
#define PAIRS(n) .work = TSR__WORK_PAIRS, .operations = (n)
#define PRODUCT  .work = TSR__WORK_PRODUCT, .has_blas = true
#define MOVES    .work = TSR__WORK_NONE

/* The reference function. */
#define RUNS(name) .reference = tsr__reference_##name

/* The number of operands and results, and which may share memory. */
#define FROM(least, most) .least_reads = (least), .most_reads = (most)
#define TO(least, most)   .least_writes = (least), .most_writes = (most)
#define UNARY             FROM(1, 1), TO(1, 1), .in_place = {1}, .shapes = TSR__SHAPES_EACH
#define BINARY            FROM(2, 2), TO(1, 1), .in_place = {1}, .shapes = TSR__SHAPES_EACH
#define WITH_NUMBER       FROM(1, 2), TO(1, 1), .in_place = {1}, .shapes = TSR__SHAPES_EACH, .fills = true
#define COPY              FROM(1, 1), TO(1, 1), .shapes = TSR__SHAPES_COPY
#define REDUCE            FROM(1, 1), TO(1, 1), .shapes = TSR__SHAPES_REDUCE
#define CONSTANT          FROM(0, 0), TO(1, 1)
#define MATRICES          FROM(2, 3), TO(1, 1), .in_place = {3}, .shapes = TSR__SHAPES_PRODUCT
#define BATCHES           FROM(2, 3), TO(1, 1), .in_place = {3}, .shapes = TSR__SHAPES_BATCHES

static const tsr__kernel_row rows[TSR__KERNEL_COUNT] = {
    [TSR__KERNEL_NONE] = {"", MOVES},
    [TSR__KERNEL_ADD] = {"add", RUNS(add), EACH(1), WITH_NUMBER, .more_scalars = 1},
    [TSR__KERNEL_MUL] = {"mul", RUNS(mul), EACH(1), WITH_NUMBER, .more_scalars = 1},
    [TSR__KERNEL_DIV] = {"div", RUNS(div), EACH(1), WITH_NUMBER},
    [TSR__KERNEL_SUB] = {"sub", RUNS(sub), EACH(1), WITH_NUMBER},
    [TSR__KERNEL_NEG] = {"neg", RUNS(neg), EACH(1), UNARY},
    [TSR__KERNEL_POW] = {"pow", RUNS(pow), EACH(1), UNARY, .scalars = 1},
    [TSR__KERNEL_AT_MOST] = {"at most", RUNS(at_most), EACH(1), UNARY, .scalars = 1},
    [TSR__KERNEL_SQRT] = {"sqrt", RUNS(sqrt), EACH(1), UNARY},
    [TSR__KERNEL_RSQRT] = {"rsqrt", RUNS(rsqrt), EACH(1), UNARY},
    [TSR__KERNEL_RECIPROCAL] = {"reciprocal", RUNS(reciprocal), EACH(1), UNARY},
    [TSR__KERNEL_TANH] = {"tanh", RUNS(tanh), EACH(1), UNARY},
    [TSR__KERNEL_TANH_BACKWARD] = {"tanh backward", RUNS(tanh_backward), EACH(3), BINARY},
    [TSR__KERNEL_COS] = {"cos", RUNS(cos), EACH(1), UNARY},
    [TSR__KERNEL_SIN] = {"sin", RUNS(sin), EACH(1), UNARY},
    [TSR__KERNEL_GELU] = {"gelu", RUNS(gelu), EACH(8), UNARY, .scalars = 1},
    [TSR__KERNEL_GELU_BACKWARD] = {"gelu backward", RUNS(gelu_backward), EACH(16), BINARY,
                                   .scalars = 1},
    [TSR__KERNEL_SILU] = {"silu", RUNS(silu), EACH(4), UNARY},
    [TSR__KERNEL_SILU_BACKWARD] = {"silu backward", RUNS(silu_backward), EACH(8), BINARY},
    [TSR__KERNEL_SILU_GATE] = {"silu gate", RUNS(silu_gate), EACH(5), FROM(2, 2), TO(1, 1),
                               .in_place = {1}, .shapes = TSR__SHAPES_EACH},
    [TSR__KERNEL_SILU_GATE_BACKWARD] = {"silu gate backward", RUNS(silu_gate_backward), EACH(12),
                                        FROM(3, 3), TO(2, 2), .in_place = {2, 3},
                                        .shapes = TSR__SHAPES_EACH},
    [TSR__KERNEL_WHERE] = {"where", RUNS(where), EACH(1), FROM(1, 3), TO(1, 1), .in_place = {3},
                           .shapes = TSR__SHAPES_EACH, .fills = true},
    [TSR__KERNEL_NE] = {"ne", RUNS(ne), EACH(1), WITH_NUMBER},
    [TSR__KERNEL_EQ] = {"eq", RUNS(eq), EACH(1), BINARY},
    [TSR__KERNEL_AND] = {"and", RUNS(and), EACH(1), BINARY},
    [TSR__KERNEL_NOT] = {"not", RUNS(not ), EACH(1), UNARY},
    [TSR__KERNEL_IS_NEGINF] = {"is neginf", RUNS(is_neginf), EACH(1), UNARY},
    [TSR__KERNEL_ATTENDS] = {"attends", RUNS(attends), EACH(1), BINARY, .scalars = 1},
    [TSR__KERNEL_DROPOUT] = {"dropout", RUNS(dropout), EACH(2), FROM(1, 1), TO(2, 2),
                             .in_place = {1}, .shapes = TSR__SHAPES_EACH, .scalars = 1,
                             .draws = true},
    [TSR__KERNEL_DROPOUT_NOISE] = {"dropout noise", RUNS(dropout_noise), EACH(2), CONSTANT,
                                   .scalars = 1, .draws = true},
    [TSR__KERNEL_DROPOUT_BACKWARD] = {"dropout backward", RUNS(dropout_backward), EACH(2), BINARY,
                                      .scalars = 1},
    [TSR__KERNEL_DROP] = {"drop", RUNS(drop), EACH(2), UNARY, .scalars = 1, .draws = true},
    [TSR__KERNEL_TO_COPY] = {"to copy", RUNS(copy), MOVES, COPY},
    [TSR__KERNEL_QUANTISE] = {"quantise", RUNS(quantise), READS(3), FROM(1, 1), TO(1, 1)},
    [TSR__KERNEL_DEQUANTISE] = {"dequantise", RUNS(dequantise), EACH(1), FROM(1, 1), TO(1, 1)},
    [TSR__KERNEL_DEQUANTISE_4BIT] = {"dequantise 4 bits", RUNS(zeros), EACH(2), FROM(0, 2),
                                     TO(1, 1)},
    [TSR__KERNEL_QUANTISE_FP8] = {"quantise to FP8", RUNS(zeros), READS(2), FROM(1, 1), TO(1, 2)},
    [TSR__KERNEL_SCALED_MM] = {"scaled mm", RUNS(product), PRODUCT, MATRICES},
    [TSR__KERNEL_CLONE] = {"clone", RUNS(copy), MOVES, COPY},
    [TSR__KERNEL_INDEX] = {"index", RUNS(copy), MOVES, COPY},
    [TSR__KERNEL_REPEAT] = {"repeat", RUNS(repeat), MOVES, FROM(1, 1), TO(1, 1)},
    [TSR__KERNEL_CAT] = {"cat", RUNS(cat), MOVES, FROM(1, TSR__KERNEL_READS), TO(1, 1),
                         .scalars = 1},
    [TSR__KERNEL_PAD] = {"pad", RUNS(pad), MOVES, FROM(1, 1), TO(1, 1), .scalars = 1},
    [TSR__KERNEL_SLICE_BACKWARD] = {"slice backward", RUNS(slice_backward), MOVES, FROM(1, 1),
                                    TO(1, 1), .scalars = 1},
    [TSR__KERNEL_SET_ROWS] = {"set rows", RUNS(set_rows), MOVES, FROM(1, 1), TO(1, 1),
                              .scalars = 1},
    [TSR__KERNEL_ZEROS] = {"zeros", RUNS(zeros), MOVES, CONSTANT},
    [TSR__KERNEL_ZEROS_LIKE] = {"zeros like", RUNS(zeros), MOVES, CONSTANT},
    [TSR__KERNEL_ONES_LIKE] = {"ones like", RUNS(ones), MOVES, CONSTANT},
    [TSR__KERNEL_EMPTY_LIKE] = {"empty like", MOVES},
    [TSR__KERNEL_FULL] = {"full", RUNS(full), MOVES, CONSTANT, .scalars = 1},
    [TSR__KERNEL_ARANGE] = {"arange", RUNS(arange), MOVES, CONSTANT, .scalars = 2},
    [TSR__KERNEL_BATCH] = {"batch", RUNS(batch), MOVES, CONSTANT, .scalars = 1},
    [TSR__KERNEL_SUM] = {"sum", RUNS(sum), READS(1), FROM(1, 2), TO(1, 1), .in_place = {2},
                         .shapes = TSR__SHAPES_REDUCE},
    [TSR__KERNEL_SUM_GROUPS] = {"sum groups", RUNS(sum_groups), READS(1), FROM(1, 1), TO(1, 1)},
    [TSR__KERNEL_MEAN] = {"mean", RUNS(mean), READS(1), REDUCE},
    [TSR__KERNEL_MEAN_DIM] = {"mean dim", RUNS(mean), READS(1), REDUCE},
    [TSR__KERNEL_ALL] = {"all", RUNS(all), READS(1), REDUCE},
    [TSR__KERNEL_TRIL] = {"tril", RUNS(tril), MOVES, UNARY},
    [TSR__KERNEL_CUMSUM] = {"cumsum", RUNS(cumsum), READS(1), UNARY},
    [TSR__KERNEL_SOFTMAX] = {"softmax", RUNS(softmax), EACH(5), UNARY},
    [TSR__KERNEL_SOFTMAX_BACKWARD] = {"softmax backward", RUNS(softmax_backward), EACH(4), BINARY},
    [TSR__KERNEL_LOG_SOFTMAX] = {"log softmax", RUNS(log_softmax), EACH(5), UNARY},
    [TSR__KERNEL_LOG_SOFTMAX_BACKWARD] = {"log softmax backward", RUNS(log_softmax_backward),
                                          EACH(4), BINARY},
    [TSR__KERNEL_LAYER_NORM] = {"layer norm", RUNS(layer_norm), EACH(8), FROM(3, 3), TO(3, 3),
                                .scalars = 1},
    [TSR__KERNEL_LAYER_NORM_BACKWARD] = {"layer norm backward", RUNS(layer_norm_backward), EACH(12),
                                         FROM(5, 8), TO(0, 3), .in_place = {6, 7, 8}},
    [TSR__KERNEL_RMS_NORM] = {"rms norm", RUNS(rms_norm), EACH(6), FROM(2, 2), TO(2, 2),
                              .scalars = 1},
    [TSR__KERNEL_RMS_NORM_BACKWARD] = {"rms norm backward", RUNS(rms_norm_backward), EACH(10),
                                       FROM(4, 6), TO(0, 2), .in_place = {5, 6}},
    [TSR__KERNEL_NLL_LOSS] = {"nll loss", RUNS(nll_loss), EACH(1), FROM(2, 2), TO(2, 2),
                              .scalars = 1},
    [TSR__KERNEL_NLL_LOSS_BACKWARD] = {"nll loss backward", RUNS(nll_loss_backward), EACH(1),
                                       FROM(4, 4), TO(1, 1), .in_place = {1}, .scalars = 1},
    [TSR__KERNEL_EMBEDDING] = {"embedding", RUNS(embedding), MOVES, FROM(2, 2), TO(1, 1)},
    [TSR__KERNEL_EMBEDDING_BACKWARD] = {"embedding backward", RUNS(embedding_backward), READS(1),
                                        FROM(2, 2), TO(1, 1), .most_scratch = 4},
    [TSR__KERNEL_EMBEDDING_ADD] = {"embedding add", RUNS(embedding_add), READS(1), FROM(2, 3),
                                   TO(1, 1), .in_place = {3}, .most_scratch = 2},
    [TSR__KERNEL_ROTATE] = {"rotate", RUNS(rotate), READS(6), FROM(4, 4), TO(2, 2),
                            .in_place = {1, 2}, .scalars = 1},
    [TSR__KERNEL_ADDMM] = {"addmm", RUNS(product), PRODUCT, FROM(3, 3), TO(1, 1),
                           .shapes = TSR__SHAPES_PRODUCT},
    [TSR__KERNEL_MM] = {"mm", RUNS(product), PRODUCT, MATRICES},
    [TSR__KERNEL_BMM] = {"bmm", RUNS(products), PRODUCT, BATCHES},
    [TSR__KERNEL_EFFICIENT] = {"efficient", RUNS(efficient), PAIRS(4), FROM(3, 4), TO(1, 4),
                               .scalars = 3, .draws = true},
    [TSR__KERNEL_EFFICIENT_BACKWARD] = {"efficient backward", RUNS(efficient_backward), PAIRS(10),
                                        FROM(8, 10), TO(0, 3), .most_scratch = 2, .scalars = 3,
                                        .draws = true},
    [TSR__KERNEL_FLASH] = {"flash", RUNS(flash), PAIRS(4), FROM(3, 3), TO(2, 4), .scalars = 4,
                           .more_scalars = 1, .draws = true},
    [TSR__KERNEL_FLASH_BACKWARD] = {"flash backward", RUNS(flash_backward), PAIRS(10), FROM(6, 7),
                                    TO(0, 3), .most_scratch = 4, .scalars = 4, .draws = true},
    [TSR__KERNEL_CHUNK_SOFTMAX] = {"chunk softmax", RUNS(chunk_softmax), EACH(5), FROM(1, 1),
                                   TO(2, 2), .scalars = 4, .draws = true},
    [TSR__KERNEL_CHUNK_WEIGHTS] = {"chunk weights", RUNS(chunk_weights), PRODUCT, FROM(3, 3),
                                   TO(1, 1), .scalars = 3},
    [TSR__KERNEL_CHUNK_BACKWARD] = {"chunk backward", RUNS(chunk_backward), PRODUCT, FROM(4, 4),
                                    TO(2, 2), .in_place = {0, 4}, .scalars = 2, .draws = true},
    [TSR__KERNEL_CHUNKED] = {"chunked", MOVES},
    [TSR__KERNEL_CROSS_ENTROPY] = {"cross entropy", RUNS(cross_entropy), EACH(5), FROM(4, 4),
                                   TO(2, 2), .in_place = {1, 4}, .scalars = 1, .more_scalars = 1},
    [TSR__KERNEL_LOSS] = {"loss", RUNS(loss), READS(4), FROM(2, 2), TO(3, 3), .scalars = 1},
    [TSR__KERNEL_LOSS_BACKWARD] = {"loss backward", RUNS(loss_backward), EACH(4), FROM(5, 5),
                                   TO(1, 1), .in_place = {1}, .scalars = 2},
    [TSR__KERNEL_LERP] = {"lerp", RUNS(lerp), EACH(3), BINARY, .scalars = 1},
    [TSR__KERNEL_ADDCMUL] = {"addcmul", RUNS(addcmul), EACH(3), FROM(3, 3), TO(1, 1),
                             .in_place = {1}, .shapes = TSR__SHAPES_EACH, .scalars = 1},
    [TSR__KERNEL_ADDCDIV] = {"addcdiv", RUNS(addcdiv), EACH(3), FROM(3, 3), TO(1, 1),
                             .in_place = {1}, .shapes = TSR__SHAPES_EACH, .scalars = 1},
    [TSR__KERNEL_FOREACH_SQRT] = {"foreach sqrt", RUNS(sqrt), EACH(1), UNARY},
    [TSR__KERNEL_FUSED_ADAMW] = {"fused adamw", RUNS(fused_adamw), EACH(14), FROM(5, 5), TO(4, 4),
                                 .in_place = {1, 3, 4, 5}, .scalars = 5},
    [TSR__KERNEL_ADAMW] = {"adamw", RUNS(adamw), EACH(12), FROM(4, 4), TO(3, 3),
                           .in_place = {1, 3, 4}, .scalars = 6},
    [TSR__KERNEL_FOREACH_NORM] = {"foreach norm", RUNS(norm), READS(2), REDUCE, .most_scratch = 1},
    [TSR__KERNEL_NORM] = {"norm", RUNS(norm), READS(2), REDUCE},
    [TSR__KERNEL_NORM_PART] = {"norm part", RUNS(norm_part), READS(2), FROM(2, 2), TO(1, 1),
                               .in_place = {2}, .scalars = 1},
    [TSR__KERNEL_NORM_END] = {"norm end", RUNS(norm_end), MOVES, FROM(1, 1), TO(1, 1)},
    /* The division is not counted, because it is negligible next to the products. */
    [TSR__KERNEL_UNSCALE] = {"unscale", RUNS(unscale), MOVES, FROM(3, 3), TO(2, 2),
                             .in_place = {1, 3}},
    [TSR__KERNEL_UPDATE_SCALE] = {"update scale", RUNS(update_scale), MOVES, FROM(3, 3), TO(2, 2),
                                  .in_place = {1, 2}, .scalars = 1},
    [TSR__KERNEL_WORKSPACE] = {"workspace", MOVES},
};

const tsr__kernel_row *tsr__kernel_row_of(tsr__kernel kernel) {
  assert((unsigned)kernel < TSR__KERNEL_COUNT && rows[kernel].name);
  return &rows[kernel];
}
