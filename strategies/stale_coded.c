/* Coded changes with error feedback, in two exchanges like an all-reduce. */
#include "strategies/stale_coded.h"

#include <stdlib.h>

static size_t problem_rows(const struct problem *p)
{
    return (size_t)p->frames * p->tokens * (size_t)p->batch;
}

/* ---- tables of parts ---- */

enum { TABLES = 4 };

static size_t coded_words(const struct problem *p, int bits)
{
    return device_code_words((size_t)p->shape->hidden, bits);
}

/* out: counts and offsets of an all-gather of codes; then of the parts of one chunk from every
 * rank. */
static void fill_tables(size_t rows, size_t words, int me, int ranks, size_t *const out[TABLES])
{
    size_t chunk = partition_span(rows, ranks, me).count * words;
    partition_table(rows, ranks, words, out[0], out[1]);
    for (int r = 0; r < ranks; r++) {
        out[2][r] = chunk;
        out[3][r] = (size_t)r * chunk;
    }
}

enum status stale_coded_open(struct rank *rank, size_t rows, int bits, struct stale_coded *c)
{
    int ranks = comm_nranks(rank->group), me = comm_rank(rank->group);
    c->bits = bits;
    c->rows = rows;
    c->width = (size_t)rank->problem->shape->hidden;
    c->words = coded_words(rank->problem, bits);
    c->chunk = partition_span(rows, ranks, me);
    c->counts = calloc((size_t)ranks * TABLES, sizeof *c->counts);
    if (!c->counts)
        return FAIL(ERR_MEMORY, "no memory for the parts of %d ranks", ranks);
    c->offsets = c->counts + ranks;
    c->in_counts = c->offsets + ranks;
    c->in_offsets = c->in_counts + ranks;
    fill_tables(rows, c->words, me, ranks,
                (size_t *const[]){c->counts, c->offsets, c->in_counts, c->in_offsets});
    TRY(arena_alloc(rank->scratch, MEMORY_ACTIVATIONS, rows * c->words * sizeof(uint32_t),
                    &c->codes));
    TRY(arena_alloc(rank->scratch, MEMORY_ACTIVATIONS,
                    (size_t)ranks * c->chunk.count * c->words * sizeof(uint32_t), &c->received));
    return rank_alloc(rank, MEMORY_ACTIVATIONS, rows, c->width, &c->reduced);
}

void stale_coded_close(struct stale_coded *c)
{
    free(c->counts);
}

enum status stale_coded_alloc(struct rank *rank, const struct stale_coded *c,
                              struct stale_coded_base *out)
{
    size_t whole = c->rows * c->width * sizeof(float);
    TRY(arena_alloc(rank->scratch, MEMORY_STALE, whole, &out->own));
    TRY(arena_alloc(rank->scratch, MEMORY_STALE, c->chunk.count * c->width * sizeof(float),
                    &out->parts));
    return arena_alloc(rank->scratch, MEMORY_STALE, whole, &out->sum);
}

/* ---- exchanges ---- */

/* `rows` of a [.., width] array of elements of `size` bytes, from row `first`. */
static struct devmem rows_at(const struct stale_coded *c, struct devmem array, size_t first,
                             size_t size)
{
    return devmem_at(array, first * c->width * size);
}

enum status stale_coded_start(struct rank *rank, const struct stale_coded *c, struct devmem partial,
                              struct stale_coded_base *base)
{
    enum dtype t = rank->problem->dtype;
    size_t n = c->rows * c->width;
    TRY(comm_all_reduce(rank->group, TRAFFIC_HIDDEN, t, partial, c->reduced, n, NULL));
    TRY(device_convert(rank->device, DTYPE_FP32, base->own, t, partial, n));
    TRY(device_convert(rank->device, DTYPE_FP32, base->sum, t, c->reduced, n));
    return device_convert(rank->device, DTYPE_FP32, base->parts, t,
                          rows_at(c, c->reduced, c->chunk.first, dtype_bytes(t)),
                          c->chunk.count * c->width);
}

static enum status encode(struct rank *rank, const struct stale_coded *c, size_t rows,
                          enum dtype dtype, struct devmem x, struct devmem base,
                          struct devmem codes)
{
    struct code_call call = {.rows = rows,
                             .width = c->width,
                             .bits = c->bits,
                             .dtype = dtype,
                             .x = x,
                             .base = base,
                             .codes = codes};
    return device_encode(rank->device, &call);
}

static enum status decode(struct rank *rank, const struct stale_coded *c, size_t rows, int parts,
                          struct devmem codes, struct devmem base, struct devmem y)
{
    struct code_call call = {.rows = rows,
                             .width = c->width,
                             .parts = (size_t)parts,
                             .bits = c->bits,
                             .base = base,
                             .y = y,
                             .codes = codes};
    return device_decode(rank->device, &call);
}

/* Every rank's change of its partial sum reaches the owners of its rows. */
static enum status send_parts(struct rank *rank, const struct stale_coded *c, struct devmem partial,
                              struct stale_coded_base *base)
{
    TRY(encode(rank, c, c->rows, rank->problem->dtype, partial, base->own, c->codes));
    TRY(decode(rank, c, c->rows, 1, c->codes, base->own, DEVMEM_NONE));
    TRY(comm_all_to_allv(rank->group, TRAFFIC_HIDDEN, DTYPE_FP32, c->codes, c->counts, c->offsets,
                         c->received, c->in_counts, c->in_offsets, NULL));
    return decode(rank, c, c->chunk.count, comm_nranks(rank->group), c->received, base->parts,
                  DEVMEM_NONE);
}

/* The owners' change of the sum reaches all ranks. */
static enum status send_sum(struct rank *rank, const struct stale_coded *c,
                            struct stale_coded_base *base, struct devmem sum)
{
    struct devmem mine = devmem_at(c->codes, c->chunk.first * c->words * sizeof(uint32_t));
    TRY(encode(rank, c, c->chunk.count, DTYPE_FP32, base->parts,
               rows_at(c, base->sum, c->chunk.first, sizeof(float)), mine));
    TRY(comm_all_gatherv(rank->group, TRAFFIC_HIDDEN, DTYPE_FP32, mine, c->codes, c->counts,
                         c->offsets, NULL));
    return decode(rank, c, c->rows, 1, c->codes, base->sum, sum);
}

enum status stale_coded_reduce(struct rank *rank, const struct stale_coded *c,
                               struct devmem partial, struct stale_coded_base *base)
{
    TRY(send_parts(rank, c, partial, base));
    return send_sum(rank, c, base, partial);
}

/* ---- the claim ---- */

void stale_coded_cost(const struct problem *p, int bits, int me, int ranks, struct cost *out)
{
    size_t table[TABLES][COMM_MAX_RANKS];
    fill_tables(problem_rows(p), coded_words(p, bits), me, ranks,
                (size_t *const[]){table[0], table[1], table[2], table[3]});
    struct comm_call parts = {.op = COMM_ALL_TO_ALL,
                              .traffic = TRAFFIC_HIDDEN,
                              .dtype = DTYPE_FP32,
                              .send_counts = table[0],
                              .send_offsets = table[1],
                              .recv_counts = table[2],
                              .recv_offsets = table[3]};
    struct comm_call sum = {.op = COMM_ALL_GATHER,
                            .traffic = TRAFFIC_HIDDEN,
                            .dtype = DTYPE_FP32,
                            .recv_counts = table[0],
                            .recv_offsets = table[1]};
    cost_add(out, PHASE_STALE, &parts, me, ranks, 1);
    cost_add(out, PHASE_STALE, &sum, me, ranks, 1);
}

uint64_t stale_coded_base_bytes(const struct problem *p, int me, int ranks)
{
    size_t rows = problem_rows(p), mine = partition_span(rows, ranks, me).count;
    return (2 * rows + mine) * (size_t)p->shape->hidden * sizeof(float);
}
