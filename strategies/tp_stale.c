/* tp-stale: tensor parallelism with stale activations, the question this project was started for.
 *
 * Rank r's half of a block gives a partial sum P_r(i) at step i. Synchronous steps use the sum of all;
 * on stale steps the reduction of P(i) is started and not awaited, and the residual adds, with s the
 * staleness and c the extrapolation,
 *   mode all:    Y   = S(i-s) + c s (S(i-s) - S(i-s-1)),                   S(j) = sum_q P_q(j)
 *   mode peers:  Y_r = P_r(i) + O(i-s) + c s (O(i-s) - O(i-s-1)),          O(j) = S(j) - P_r(j)
 * so communication has s steps to finish. Definitions and byte counts: docs/strategies.md. */
#include "strategies/forward.h"

#include "strategies/tensor_parallel.h"

#include <stdlib.h>

enum { MODE_ALL, MODE_PEERS };
enum { TRANSPORT_ALLREDUCE, TRANSPORT_ALLGATHER };
enum { HALVES_BOTH, HALVES_ATTN, HALVES_MLP };

/* One exchange of one half: what step i leaves for steps i+s and i+s+1. */
struct slot {
    struct comm_request request;
    struct devmem sum;  /* allreduce: S(i); allgather: P_q(i) of every rank, in rank order */
    struct devmem own;  /* peers with allreduce: P_r(i) */
};

struct tp_stale {
    struct forward forward;
    int staleness, mode, transport, slots; /* slots: exchanges kept per half of a block */
    double extrapolate;
    struct slot *slot;             /* [blocks, halves, slots] */
    struct devmem gathered;        /* allgather: parts of a step that nobody reads later, or the sum */
};

/* ---- what the options mean ---- */

static int mode_of(const struct problem *p)
{
    return option_choice(p->options, &strategy_opt_stale_mode);
}

static int transport_of(const struct problem *p)
{
    return option_choice(p->options, &strategy_opt_stale_transport);
}

/* May this half of this block use old values at all? */
static bool may_be_stale(const struct problem *p, int block, enum dit_half half)
{
    int halves = option_choice(p->options, &strategy_opt_stale_halves);
    const struct option_setting *blocks = option_setting(p->options, &strategy_opt_stale_blocks);
    bool is_chosen = halves == HALVES_BOTH || (halves == HALVES_ATTN) == (half == DIT_ATTN);
    return is_chosen && block >= blocks->value.range.first && block <= blocks->value.range.last;
}

static bool step_is_stale(const struct problem *p, int64_t step)
{
    return strategy_step_is_stale(&strategy_tp_stale, p, step);
}

/* Will a later step read what step i leaves? */
static bool is_read_later(const struct problem *p, int step)
{
    int64_t staleness = option_int(p->options, &strategy_opt_staleness);
    if (staleness == 0)
        return false;
    return step_is_stale(p, step + staleness) ||
           (option_real(p->options, &strategy_opt_extrapolate) != 0 &&
            step_is_stale(p, step + staleness + 1));
}

static int slots_of(const struct problem *p)
{
    int64_t staleness = option_int(p->options, &strategy_opt_staleness);
    bool extrapolates = option_real(p->options, &strategy_opt_extrapolate) != 0;
    return staleness == 0 ? 0 : (int)staleness + extrapolates;
}

static enum status check(const struct problem *problem, const struct layout *layout,
                         struct reason *reason)
{
    const struct option_setting *blocks = option_setting(problem->options, &strategy_opt_stale_blocks);
    TRY(strategy_check_staleness(problem, reason));
    if (mode_of(problem) == MODE_ALL && transport_of(problem) == TRANSPORT_ALLGATHER)
        return strategy_refuse(reason, "--stale-transport allgather needs --stale-mode peers: in mode "
                                       "all every rank uses the one sum");
    if (blocks->value.range.first >= problem->shape->blocks)
        return strategy_refuse(reason, "--stale-blocks starts at %d but the model has blocks 0-%d",
                               blocks->value.range.first, problem->shape->blocks - 1);
    return tensor_parallel_check(problem, layout, reason);
}

/* ---- memory ---- */

static struct slot *slot_at(const struct tp_stale *s, int block, enum dit_half half, int64_t step)
{
    size_t index = (size_t)(block * DIT_HALVES + (int)half) * (size_t)s->slots;
    return &s->slot[index + (size_t)(step % s->slots)];
}

static enum status alloc_half(struct rank *rank, struct tp_stale *s, int block, enum dit_half half)
{
    size_t rows = s->forward.rows, hidden = (size_t)rank->problem->shape->hidden;
    size_t ranks = (size_t)comm_nranks(rank->group);
    bool gathers = s->transport == TRANSPORT_ALLGATHER;
    for (int i = 0; i < s->slots; i++) {
        struct slot *slot = slot_at(s, block, half, i);
        TRY(rank_alloc(rank, MEMORY_STALE, gathers ? ranks * rows : rows, hidden, &slot->sum));
        if (s->mode == MODE_PEERS && !gathers)
            TRY(rank_alloc(rank, MEMORY_STALE, rows, hidden, &slot->own));
    }
    return OK;
}

static enum status alloc_slots(struct rank *rank, struct tp_stale *s)
{
    const struct problem *p = rank->problem;
    int blocks = p->shape->blocks;
    if (s->slots == 0)
        return OK;
    s->slot = calloc((size_t)(blocks * DIT_HALVES * s->slots), sizeof *s->slot);
    if (!s->slot)
        return FAIL(ERR_MEMORY, "no memory for %d exchanges", blocks * DIT_HALVES * s->slots);
    for (int block = 0; block < blocks; block++)
        for (int half = 0; half < DIT_HALVES; half++)
            if (may_be_stale(p, block, (enum dit_half)half))
                TRY(alloc_half(rank, s, block, (enum dit_half)half));
    if (s->transport == TRANSPORT_ALLGATHER)
        return rank_alloc(rank, MEMORY_ACTIVATIONS, (size_t)comm_nranks(rank->group) * s->forward.rows,
                          (size_t)p->shape->hidden, &s->gathered);
    return OK;
}

static enum status setup(struct rank *rank)
{
    void *state;
    TRY(rank_state(rank, sizeof(struct tp_stale), &state));
    struct tp_stale *s = state;
    const struct problem *p = rank->problem;
    s->staleness = (int)option_int(p->options, &strategy_opt_staleness);
    s->extrapolate = option_real(p->options, &strategy_opt_extrapolate);
    s->mode = mode_of(p);
    s->transport = transport_of(p);
    s->slots = slots_of(p);
    TRY(forward_open(rank, comm_nranks(rank->group), comm_rank(rank->group), &s->forward));
    return alloc_slots(rank, s);
}

static void teardown(struct rank *rank)
{
    struct tp_stale *s = rank->state;
    free(s->slot);
    forward_close(&s->forward);
}

/* ---- arithmetic on partial sums ---- */

static size_t elements(const struct tp_stale *s)
{
    return s->forward.rows * s->forward.dit.hidden;
}

/* `peer`'s partial sum in a gathered array. */
static struct devmem part_of(const struct rank *rank, const struct tp_stale *s, struct devmem parts,
                             int peer)
{
    return devmem_at(parts, (size_t)peer * elements(s) * dtype_bytes(rank->problem->dtype));
}

static void add_term(struct sum_call *call, double coefficient, struct devmem src)
{
    call->coefficient[call->count] = coefficient;
    call->src[call->count++] = src;
}

/* dst (+)= coefficient * sum of the gathered parts, without the rank `except`, in rank order. */
static enum status sum_parts(struct rank *rank, const struct tp_stale *s, struct devmem parts,
                             int except, double coefficient, bool adds, struct devmem dst)
{
    int ranks = comm_nranks(rank->group);
    for (int peer = 0; peer < ranks; adds = true) {
        struct sum_call call = {.n = elements(s), .dst = dst};
        if (adds)
            add_term(&call, 1, dst);
        for (; peer < ranks && call.count < DEVICE_MAX_TERMS; peer++)
            if (peer != except)
                add_term(&call, coefficient, part_of(rank, s, parts, peer));
        TRY(device_sum(rank->device, &call));
    }
    return OK;
}

/* ---- exchanges ---- */

static enum status all_reduce(struct rank *rank, const struct tp_stale *s, struct devmem send,
                              struct devmem recv, struct comm_request *request)
{
    return comm_all_reduce(rank->group, TRAFFIC_HIDDEN, rank->problem->dtype, send, recv, elements(s),
                           request);
}

/* Gathers everybody's `partial` into `parts`. */
static enum status all_gather(struct rank *rank, const struct tp_stale *s, struct devmem partial,
                              struct devmem parts, struct comm_request *request)
{
    struct devmem mine = part_of(rank, s, parts, comm_rank(rank->group));
    struct sum_call copy = {.n = elements(s), .dst = mine};
    add_term(&copy, 1, partial);
    TRY(device_sum(rank->device, &copy));
    return comm_all_gather(rank->group, TRAFFIC_HIDDEN, rank->problem->dtype, mine, parts, elements(s),
                           request);
}

/* Starts the exchange of this step's partial sum. Buffers change hands instead of being copied: the slot
 * takes the partial sum's, and the one it gives up serves the next half (it may hold what the residual
 * of this half still reads; the next partial sum comes after that). */
static enum status start_exchange(struct rank *rank, struct tp_stale *s, struct slot *slot)
{
    struct devmem partial = s->forward.partial;
    if (s->transport == TRANSPORT_ALLGATHER)
        return all_gather(rank, s, partial, slot->sum, &slot->request);
    s->forward.partial = slot->sum;
    if (s->mode == MODE_ALL) {
        slot->sum = partial;
        return all_reduce(rank, s, partial, partial, &slot->request);
    }
    slot->sum = slot->own;
    slot->own = partial;
    return all_reduce(rank, s, slot->own, slot->sum, &slot->request);
}

/* ---- synchronous steps ---- */

/* *sum = the sum of all; kept in `slot` when a later step reads it (NULL: none does). */
static enum status reduce_now(struct rank *rank, struct tp_stale *s, struct slot *slot, bool gathers,
                              struct devmem *sum)
{
    struct devmem partial = s->forward.partial;
    if (gathers) {
        struct devmem parts = slot ? slot->sum : s->gathered;
        TRY(all_gather(rank, s, partial, parts, NULL));
        *sum = partial;
        return sum_parts(rank, s, parts, -1, 1, false, partial);
    }
    *sum = slot ? slot->sum : partial;
    if (slot && s->mode == MODE_PEERS) {
        s->forward.partial = slot->own;
        slot->own = partial;
    }
    return all_reduce(rank, s, partial, *sum, NULL);
}

/* ---- stale steps ---- */

/* *sum = S(i-s) + share (S(i-s) - S(i-s-1)), in the buffer of this step's slot unless it is S(i-s). */
static enum status use_old_sum(struct rank *rank, struct tp_stale *s, const struct slot *slot,
                               const struct slot *old, const struct slot *older, double share,
                               struct devmem *sum)
{
    *sum = older ? slot->sum : old->sum;
    if (!older)
        return OK;
    struct sum_call call = {.n = elements(s), .dst = *sum};
    add_term(&call, 1 + share, old->sum);
    add_term(&call, -share, older->sum);
    return device_sum(rank->device, &call);
}

/* *sum = P(i) + O(i-s) + share (O(i-s) - O(i-s-1)), in the buffer of this step's slot. */
static enum status use_old_peers(struct rank *rank, struct tp_stale *s, const struct slot *slot,
                                 const struct slot *old, const struct slot *older, double share,
                                 struct devmem *sum)
{
    struct sum_call call = {.n = elements(s), .dst = slot->sum};
    *sum = slot->sum;
    add_term(&call, 1, s->forward.partial);
    add_term(&call, 1 + share, old->sum);
    add_term(&call, -(1 + share), old->own);
    if (older) {
        add_term(&call, -share, older->sum);
        add_term(&call, share, older->own);
    }
    return device_sum(rank->device, &call);
}

/* The same from gathered parts, in a buffer of its own: the slot is overwritten by the next gather. */
static enum status use_old_parts(struct rank *rank, struct tp_stale *s, const struct slot *old,
                                 const struct slot *older, double share, struct devmem *sum)
{
    int me = comm_rank(rank->group);
    struct sum_call copy = {.n = elements(s), .dst = s->gathered};
    *sum = s->gathered;
    add_term(&copy, 1, s->forward.partial);
    TRY(device_sum(rank->device, &copy));
    TRY(sum_parts(rank, s, old->sum, me, 1 + share, true, *sum));
    return older ? sum_parts(rank, s, older->sum, me, -share, true, *sum) : OK;
}

static enum status reduce_old(struct rank *rank, struct tp_stale *s, int step, int block,
                              enum dit_half half, struct devmem *sum)
{
    int old_step = step - s->staleness;
    struct slot *slot = slot_at(s, block, half, step), *old = slot_at(s, block, half, old_step);
    struct slot *older = NULL;
    double share = s->extrapolate * s->staleness;
    TRY(comm_wait(&old->request));
    if (s->extrapolate != 0 && old_step > 0) {
        older = slot_at(s, block, half, old_step - 1);
        TRY(comm_wait(&older->request));
    }
    if (!older)
        share = 0;
    if (s->transport == TRANSPORT_ALLGATHER)
        TRY(use_old_parts(rank, s, old, older, share, sum));
    else if (s->mode == MODE_PEERS)
        TRY(use_old_peers(rank, s, slot, old, older, share, sum));
    else
        TRY(use_old_sum(rank, s, slot, old, older, share, sum));
    return is_read_later(rank->problem, step) ? start_exchange(rank, s, slot) : OK;
}

static enum status reduce(struct rank *rank, int step, int block, enum dit_half half,
                          struct devmem partial, struct devmem *sum)
{
    (void)partial; /* the same as s->forward.partial */
    struct tp_stale *s = rank->state;
    bool may = may_be_stale(rank->problem, block, half) && s->slots > 0;
    if (may && step_is_stale(rank->problem, step))
        return reduce_old(rank, s, step, block, half, sum);
    bool keeps = may && is_read_later(rank->problem, step);
    return reduce_now(rank, s, keeps ? slot_at(s, block, half, step) : NULL,
                      may && s->transport == TRANSPORT_ALLGATHER, sum);
}

/* In mode peers the ranks' hidden states differ on stale steps, so their predictions are averaged. */
static enum status average_noise(struct rank *rank, struct devmem noise)
{
    const struct problem *p = rank->problem;
    size_t n = region_tokens(region_whole(p)) * p->token_values;
    TRY(comm_all_reduce(rank->group, TRAFFIC_NOISE, p->dtype, noise, noise, n, NULL));
    struct sum_call mean = {.n = n, .dst = noise};
    add_term(&mean, 1.0 / comm_nranks(rank->group), noise);
    return device_sum(rank->device, &mean);
}

static enum status predict(struct rank *rank, int step, struct devmem *noise)
{
    struct tp_stale *s = rank->state;
    TRY(forward_predict(rank, &s->forward, step, reduce));
    *noise = s->forward.noise;
    if (s->mode == MODE_PEERS && step_is_stale(rank->problem, step))
        return average_noise(rank, *noise);
    return OK;
}

static enum status sample(struct rank *rank)
{
    return sample_stepwise(rank, predict);
}

/* ---- the claim ---- */

static void cost_half(const struct problem *p, int step, bool may, int me, int ranks, struct cost *out)
{
    size_t counts[COMM_MAX_RANKS], offsets[COMM_MAX_RANKS], n = problem_hidden_elements(p);
    bool is_stale = step_is_stale(p, step);
    bool gathers = may && slots_of(p) > 0 && transport_of(p) == TRANSPORT_ALLGATHER;
    if (may && is_stale && !is_read_later(p, step))
        return;
    struct comm_call call = {.op = COMM_ALL_REDUCE, .traffic = TRAFFIC_HIDDEN, .dtype = p->dtype,
                             .count = n};
    if (gathers) {
        for (int r = 0; r < ranks; r++)
            counts[r] = n, offsets[r] = (size_t)r * n;
        call.op = COMM_ALL_GATHER, call.recv_counts = counts, call.recv_offsets = offsets;
    }
    cost_add(out, is_stale ? PHASE_STALE : PHASE_SYNC, &call, me, ranks, 1);
}

static uint64_t stale_bytes(const struct problem *p, int ranks)
{
    uint64_t halves = 0, tensor = problem_hidden_elements(p) * dtype_bytes(p->dtype);
    for (int block = 0; block < p->shape->blocks; block++)
        for (int half = 0; half < DIT_HALVES; half++)
            halves += may_be_stale(p, block, (enum dit_half)half);
    uint64_t kept = transport_of(p) == TRANSPORT_ALLGATHER ? (uint64_t)ranks
                    : mode_of(p) == MODE_PEERS             ? 2
                                                           : 1;
    return halves * (uint64_t)slots_of(p) * kept * tensor;
}

static void cost(const struct problem *problem, const struct layout *layout, int rank, struct cost *out)
{
    int ranks = layout_group_size(layout), me = layout_group_rank(layout, rank);
    size_t latent = region_tokens(region_whole(problem));
    struct comm_call average = {.op = COMM_ALL_REDUCE, .traffic = TRAFFIC_NOISE,
                                .dtype = problem->dtype, .count = latent * problem->token_values};
    for (int step = 0; step < problem->steps; step++) {
        for (int block = 0; block < problem->shape->blocks; block++)
            for (int half = 0; half < DIT_HALVES; half++)
                cost_half(problem, step, may_be_stale(problem, block, (enum dit_half)half), me, ranks,
                          out);
        if (mode_of(problem) == MODE_PEERS && step_is_stale(problem, step))
            cost_add(out, PHASE_STALE, &average, me, ranks, 1);
    }
    out->stale_bytes = stale_bytes(problem, ranks);
    cost_add_twin(problem, &strategy_tp_stale, latent, out);
}

static const struct option *const options[] = {
    &strategy_opt_warmup_steps, &strategy_opt_staleness,    &strategy_opt_refresh,
    &strategy_opt_stale_mode,   &strategy_opt_stale_transport, &strategy_opt_stale_halves,
    &strategy_opt_stale_blocks, &strategy_opt_extrapolate,  NULL,
};

const struct strategy strategy_tp_stale = {
    .name = "tp-stale",
    .summary = "tensor parallel on partial sums of earlier steps",
    .paper = "docs/stale-tp.md",
    .freshness = STALE,
    .runs_image = true,
    .options = options,
    .shape_layout = tensor_parallel_layout,
    .check = check,
    .setup = setup,
    .sample = sample,
    .teardown = teardown,
    .cost = cost,
};
