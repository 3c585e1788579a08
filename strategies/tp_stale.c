/* tp-stale: tensor parallelism with stale activations, the question this project was started for.
 *
 * Rank r's half of a block gives a partial sum P_r(i) at step i. Synchronous steps use the sum S(i)
 * of all; on stale steps the reduction of P(i) is started and not awaited, and the residual adds
 *   mode all:    Y   = S'                           V' = V(i-s) + w (V(i-s) - V(i-s-1)),
 *   mode peers:  Y_r = S' + g (P_r(i) - P_r')       V = S or P_r,
 * with s the staleness, w the share of extrapolation (stale_rules_share) and g = --own-change; g = 1
 * means a fresh own part and old ones of the others. Communication has s steps to finish.
 *
 * With --repair d it has d halves: Y only holds the place of S(i) in the input of the next d halves;
 * then the hidden state takes gate (S(i) - Y). Mode coded: see stale_coded.h. Definitions and byte
 * counts: docs/strategies.md. */
#include "strategies/forward.h"
#include "strategies/stale_coded.h"
#include "strategies/stale_cost.h"
#include "strategies/tensor_parallel.h"

#include <stdlib.h>

/* One exchange of one half: what step i leaves for later halves and steps. */
struct slot {
    struct comm_request request;
    struct devmem sum; /* allreduce: S(i); allgather: P_q(i) of every rank, in rank order */
    struct devmem own; /* peers with allreduce: P_r(i) */
};

struct tp_stale {
    struct forward forward;
    struct stale_rules rules;
    double share;             /* stale_rules_share of the step under way */
    struct slot *slot;        /* [blocks, halves, slots] */
    struct devmem gathered;   /* allgather: parts of a step that nobody reads later, or the sum */
    struct devmem correction; /* repair: T [rows, D] */
    int repaired;             /* repair: halves of the step under way that are done with */
    struct stale_coded coded;
    struct stale_coded_base *base; /* mode coded: [blocks, halves] */
};

static enum status check(const struct problem *problem, const struct layout *layout,
                         struct reason *reason)
{
    TRY(stale_rules_check(problem, reason));
    return tensor_parallel_check(problem, layout, reason);
}

static int half_index(int block, enum dit_half half)
{
    return block * DIT_HALVES + (int)half;
}

static bool may_be_stale(const struct tp_stale *s, int index)
{
    return stale_rules_may(&s->rules, index / DIT_HALVES, (enum dit_half)(index % DIT_HALVES));
}

/* ---- memory ---- */

static struct slot *slot_at(const struct tp_stale *s, int index, int64_t step)
{
    return &s->slot[(size_t)index * (size_t)s->rules.slots + (size_t)(step % s->rules.slots)];
}

static enum status alloc_half(struct rank *rank, struct tp_stale *s, int index)
{
    size_t rows = s->forward.rows, hidden = (size_t)rank->problem->shape->hidden;
    size_t ranks = (size_t)comm_nranks(rank->group);
    if (s->rules.mode == STALE_CODED)
        return stale_coded_alloc(rank, &s->coded, &s->base[index]);
    for (int i = 0; i < s->rules.slots; i++) {
        struct slot *slot = slot_at(s, index, i);
        TRY(rank_alloc(rank, MEMORY_STALE, s->rules.gathers ? ranks * rows : rows, hidden,
                       &slot->sum));
        if (s->rules.mode == STALE_PEERS && !s->rules.gathers)
            TRY(rank_alloc(rank, MEMORY_STALE, rows, hidden, &slot->own));
    }
    return OK;
}

static enum status alloc_kept(struct rank *rank, struct tp_stale *s)
{
    int halves = rank->problem->shape->blocks * DIT_HALVES;
    s->slot = calloc((size_t)(halves * s->rules.slots + 1), sizeof *s->slot);
    s->base = calloc((size_t)halves, sizeof *s->base);
    if (!s->slot || !s->base)
        return FAIL(ERR_MEMORY, "no memory for the exchanges of %d halves", halves);
    for (int index = 0; index < halves; index++)
        if (may_be_stale(s, index))
            TRY(alloc_half(rank, s, index));
    return OK;
}

static enum status alloc_buffers(struct rank *rank, struct tp_stale *s)
{
    size_t rows = s->forward.rows, hidden = (size_t)rank->problem->shape->hidden;
    if (s->rules.staleness == 0)
        return OK;
    if (s->rules.repair > 0)
        TRY(rank_alloc(rank, MEMORY_ACTIVATIONS, rows, hidden, &s->correction));
    if (s->rules.gathers)
        TRY(rank_alloc(rank, MEMORY_ACTIVATIONS, (size_t)comm_nranks(rank->group) * rows, hidden,
                       &s->gathered));
    if (s->rules.mode == STALE_CODED)
        TRY(stale_coded_open(rank, rows, s->rules.code_bits, &s->coded));
    return alloc_kept(rank, s);
}

static enum status setup(struct rank *rank)
{
    void *state;
    TRY(rank_state(rank, sizeof(struct tp_stale), &state));
    struct tp_stale *s = state;
    s->rules = stale_rules_of(rank->problem);
    TRY(forward_open(rank, comm_nranks(rank->group), comm_rank(rank->group), &s->forward));
    return alloc_buffers(rank, s);
}

static void teardown(struct rank *rank)
{
    struct tp_stale *s = rank->state;
    stale_coded_close(&s->coded);
    free(s->base);
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
    return comm_all_reduce(rank->group, TRAFFIC_HIDDEN, rank->problem->dtype, send, recv,
                           elements(s), request);
}

/* Gathers everybody's `partial` into `parts`. */
static enum status all_gather(struct rank *rank, const struct tp_stale *s, struct devmem partial,
                              struct devmem parts, struct comm_request *request)
{
    struct devmem mine = part_of(rank, s, parts, comm_rank(rank->group));
    struct sum_call copy = {.n = elements(s), .dst = mine};
    add_term(&copy, 1, partial);
    TRY(device_sum(rank->device, &copy));
    return comm_all_gather(rank->group, TRAFFIC_HIDDEN, rank->problem->dtype, mine, parts,
                           elements(s), request);
}

/* Starts the exchange of this step's partial sum. Buffers change hands instead of being copied: the
 * slot takes the partial sum's, and the one it gives up serves the next half (it may hold what the
 * residual of this half still reads; the next partial sum comes after that). */
static enum status start_exchange(struct rank *rank, struct tp_stale *s, struct slot *slot)
{
    struct devmem partial = s->forward.partial;
    if (s->rules.gathers)
        return all_gather(rank, s, partial, slot->sum, &slot->request);
    s->forward.partial = slot->sum;
    if (s->rules.mode == STALE_ALL) {
        slot->sum = partial;
        return all_reduce(rank, s, partial, partial, &slot->request);
    }
    slot->sum = slot->own;
    slot->own = partial;
    return all_reduce(rank, s, slot->own, slot->sum, &slot->request);
}

/* ---- synchronous steps ---- */

/* *sum = the sum of all; kept in `slot` when a later step reads it (NULL: none does). */
static enum status reduce_now(struct rank *rank, struct tp_stale *s, struct slot *slot,
                              bool gathers, struct devmem *sum)
{
    struct devmem partial = s->forward.partial;
    if (gathers) {
        struct devmem parts = slot ? slot->sum : s->gathered;
        TRY(all_gather(rank, s, partial, parts, NULL));
        *sum = partial;
        return sum_parts(rank, s, parts, -1, 1, false, partial);
    }
    *sum = slot ? slot->sum : partial;
    if (slot && s->rules.mode == STALE_PEERS) {
        s->forward.partial = slot->own;
        slot->own = partial;
    }
    return all_reduce(rank, s, partial, *sum, NULL);
}

/* ---- stale steps ---- */

/* *sum = S(i-s) + w (S(i-s) - S(i-s-1)), in the buffer of this step's slot unless it is S(i-s). */
static enum status use_old_sum(struct rank *rank, struct tp_stale *s, const struct slot *slot,
                               const struct slot *old, const struct slot *older, struct devmem *sum)
{
    *sum = older ? slot->sum : old->sum;
    if (!older)
        return OK;
    struct sum_call call = {.n = elements(s), .dst = *sum};
    add_term(&call, 1 + s->share, old->sum);
    add_term(&call, -s->share, older->sum);
    return device_sum(rank->device, &call);
}

/* *sum = S' + g (P_r(i) - P_r'), in the buffer of this step's slot. */
static enum status use_old_peers(struct rank *rank, struct tp_stale *s, const struct slot *slot,
                                 const struct slot *old, const struct slot *older,
                                 struct devmem *sum)
{
    struct sum_call call = {.n = elements(s), .dst = slot->sum};
    *sum = slot->sum;
    double g = s->rules.own_change;
    add_term(&call, g, s->forward.partial);
    add_term(&call, 1 + s->share, old->sum);
    add_term(&call, -g * (1 + s->share), old->own);
    if (older) {
        add_term(&call, -s->share, older->sum);
        add_term(&call, g * s->share, older->own);
    }
    return device_sum(rank->device, &call);
}

/* The same from gathered parts, in a buffer of its own: the slot is overwritten by the next gather.
 */
static enum status use_old_parts(struct rank *rank, struct tp_stale *s, const struct slot *old,
                                 const struct slot *older, struct devmem *sum)
{
    int me = comm_rank(rank->group);
    struct sum_call copy = {.n = elements(s), .dst = s->gathered};
    *sum = s->gathered;
    add_term(&copy, 1, s->forward.partial);
    TRY(device_sum(rank->device, &copy));
    TRY(sum_parts(rank, s, old->sum, me, 1 + s->share, true, *sum));
    return older ? sum_parts(rank, s, older->sum, me, -s->share, true, *sum) : OK;
}

/* The exchanges that step i reads, the step's own one first; older is NULL where nothing is
 * extrapolated. */
struct slots {
    struct slot *now, *old, *older;
};

static struct slots slots_of(const struct tp_stale *s, int index, int step)
{
    int old_step = step - s->rules.staleness;
    return (struct slots){slot_at(s, index, step), slot_at(s, index, old_step),
                          s->share != 0 ? slot_at(s, index, old_step - 1) : NULL};
}

static enum status reduce_old(struct rank *rank, struct tp_stale *s, int step, int index,
                              struct devmem *sum)
{
    struct slots slots = slots_of(s, index, step);
    TRY(comm_wait(&slots.old->request));
    if (slots.older)
        TRY(comm_wait(&slots.older->request));
    if (s->rules.gathers)
        TRY(use_old_parts(rank, s, slots.old, slots.older, sum));
    else if (s->rules.mode == STALE_PEERS)
        TRY(use_old_peers(rank, s, slots.now, slots.old, slots.older, sum));
    else
        TRY(use_old_sum(rank, s, slots.now, slots.old, slots.older, sum));
    return stale_rules_is_read(&s->rules, step) ? start_exchange(rank, s, slots.now) : OK;
}

/* ---- repair ---- */

/* The hidden state takes gate (S(i) - Y): the sum of half `index` is here. */
static enum status repair_half(struct rank *rank, struct tp_stale *s, int step, int index)
{
    struct slots slots = slots_of(s, index, step);
    struct sum_call call = {.n = elements(s), .dst = s->correction};
    bool is_peers = s->rules.mode == STALE_PEERS;
    double g = s->rules.own_change;
    TRY(comm_wait(&slots.now->request));
    add_term(&call, 1, slots.now->sum);
    add_term(&call, -(1 + s->share), slots.old->sum);
    if (slots.older)
        add_term(&call, s->share, slots.older->sum);
    if (is_peers) {
        add_term(&call, -g, slots.now->own);
        add_term(&call, g * (1 + s->share), slots.old->own);
    }
    if (is_peers && slots.older)
        add_term(&call, -g * s->share, slots.older->own);
    TRY(device_sum(rank->device, &call));
    return dit_correct(&s->forward.dit, index / DIT_HALVES, (enum dit_half)(index % DIT_HALVES),
                       s->forward.rows, s->correction, s->forward.hidden);
}

/* Half `index` has been computed: repairs those that are `repair` or more behind it; the model's
 * last half, all that are left. */
static enum status repair_behind(struct rank *rank, struct tp_stale *s, int step, int index)
{
    bool is_last = index == rank->problem->shape->blocks * DIT_HALVES - 1;
    int end = is_last ? index : index - s->rules.repair + 1;
    for (; s->repaired < end; s->repaired++)
        if (may_be_stale(s, s->repaired))
            TRY(repair_half(rank, s, step, s->repaired));
    return OK;
}

/* ---- the halves of a step ---- */

static enum status reduce_coded(struct rank *rank, struct tp_stale *s, bool is_stale, int index,
                                struct devmem *sum)
{
    struct devmem partial = s->forward.partial;
    *sum = is_stale ? partial : s->coded.reduced;
    return is_stale ? stale_coded_reduce(rank, &s->coded, partial, &s->base[index])
                    : stale_coded_start(rank, &s->coded, partial, &s->base[index]);
}

static enum status reduce_half(struct rank *rank, struct tp_stale *s, int step, int index,
                               struct devmem *sum)
{
    bool may = may_be_stale(s, index), is_read = may && stale_rules_is_read(&s->rules, step);
    bool is_stale = may && stale_rules_step_is_stale(&s->rules, step);
    if (s->rules.mode == STALE_CODED && (is_stale || is_read))
        return reduce_coded(rank, s, is_stale, index, sum);
    if (is_stale)
        return reduce_old(rank, s, step, index, sum);
    return reduce_now(rank, s, is_read ? slot_at(s, index, step) : NULL, may && s->rules.gathers,
                      sum);
}

static enum status reduce(struct rank *rank, int step, int block, enum dit_half half,
                          struct devmem partial, struct devmem *sum)
{
    (void)partial; /* the same as s->forward.partial */
    struct tp_stale *s = rank->state;
    int index = half_index(block, half);
    TRY(reduce_half(rank, s, step, index, sum));
    if (s->rules.repair > 0 && stale_rules_step_is_stale(&s->rules, step))
        return repair_behind(rank, s, step, index);
    return OK;
}

/* In mode peers the ranks' hidden states differ on stale steps, so their predictions are averaged.
 */
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
    s->share = stale_rules_share(&s->rules, step);
    s->repaired = 0;
    TRY(forward_predict(rank, &s->forward, step, reduce));
    *noise = s->forward.noise;
    if (s->rules.mode == STALE_PEERS && stale_rules_step_is_stale(&s->rules, step))
        return average_noise(rank, *noise);
    return OK;
}

static enum status sample(struct rank *rank)
{
    return sample_stepwise(rank, predict);
}

static const struct option *const options[] = {
    &strategy_opt_warmup_steps,
    &strategy_opt_staleness,
    &strategy_opt_refresh,
    &strategy_opt_stale_mode,
    &strategy_opt_stale_transport,
    &strategy_opt_stale_halves,
    &strategy_opt_stale_blocks,
    &strategy_opt_extrapolate,
    &stale_opt_extrapolate_in,
    &stale_opt_repair,
    &stale_opt_code_bits,
    &stale_opt_own_change,
    NULL,
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
    .cost = stale_cost,
};
