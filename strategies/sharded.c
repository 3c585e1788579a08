/* Routes between shardings. Every message block and every shard is a box of the same five dimensions,
 * [outer, lo, middle, hi, inner]: lo and hi are the two dimensions of a switch in the order of the
 * activation, so that packing and unpacking are strided copies. In a split or a gather hi has size 1. */
#include "strategies/sharded.h"

struct fold {
    int lo, hi; /* dimensions; hi -1: none */
    size_t outer, middle, inner;
};

static size_t product(const struct sharded_shape *shape, int first, int end)
{
    size_t n = 1;
    for (int dim = first; dim < end; dim++)
        n *= shape->size[dim];
    return n;
}

static struct fold fold_of(const struct sharded_shape *shape, int from, int to)
{
    bool is_switch = from != SHARDED_WHOLE && to != SHARDED_WHOLE;
    int lo = is_switch && from < to ? from : is_switch ? to : from == SHARDED_WHOLE ? to : from;
    int hi = is_switch ? from + to - lo : -1, last = is_switch ? hi : lo;
    return (struct fold){.lo = lo, .hi = hi, .outer = product(shape, 0, lo),
                         .middle = is_switch ? product(shape, lo + 1, hi) : 1,
                         .inner = product(shape, last + 1, shape->dims) * shape->width};
}

/* Part of a dimension; of none: the one thing there is. */
static struct span part_of(const struct sharded_shape *shape, int ranks, int rank, int dim)
{
    return dim < 0 ? (struct span){0, 1} : partition_span(shape->size[dim], ranks, rank);
}

static size_t size_of(const struct sharded_shape *shape, int dim)
{
    return dim < 0 ? 1 : shape->size[dim];
}

/* What a block of a message holds of a dimension of which it brings `count`. */
static size_t block_size(const struct sharded_shape *shape, int ranks, int dim, size_t count)
{
    size_t most = part_of(shape, ranks, 0, dim).count; /* the first part is the largest */
    return shape->is_padded && dim >= 0 ? most : count;
}

size_t sharded_elements(const struct sharded_shape *shape, int ranks, int rank, int dim)
{
    size_t elements = part_of(shape, ranks, rank, dim).count * shape->width;
    for (int other = 0; other < shape->dims; other++)
        elements *= other == dim ? 1 : shape->size[other];
    return elements;
}

/* Elements of the block that `sender` sends to `receiver`. */
static size_t block_elements(const struct sharded_shape *shape, int ranks, int from, int to, int sender,
                             int receiver)
{
    struct fold fold = fold_of(shape, from, to);
    size_t sent = block_size(shape, ranks, from, part_of(shape, ranks, sender, from).count);
    size_t kept = block_size(shape, ranks, to, part_of(shape, ranks, receiver, to).count);
    return fold.outer * fold.middle * fold.inner * sent * kept;
}

/* ---- between arrays and messages ---- */

static bool has_padding(const struct sharded_route *r)
{
    size_t ranks = (size_t)comm_nranks(r->comm);
    return r->shape.is_padded && (size_of(&r->shape, r->from) % ranks != 0 ||
                                  size_of(&r->shape, r->to) % ranks != 0);
}

/* Do blocks stand in the array as in a message? `across`: the dimension that the peers share. */
static bool is_in_place(const struct sharded_route *r, int across)
{
    struct fold fold = fold_of(&r->shape, r->from, r->to);
    return fold.outer == 1 && across == fold.lo && !has_padding(r);
}

/* Strides of a box with these sizes. */
struct strides {
    size_t outer, lo, middle;
};

static struct strides strides_of(const struct fold *fold, size_t lo, size_t hi)
{
    size_t middle = hi * fold->inner;
    return (struct strides){lo * fold->middle * middle, fold->middle * middle, middle};
}

/* One side of a copy of several peers' blocks. */
struct side {
    struct devmem base;
    size_t peer;
    struct strides box;
};

static enum status copy_boxes(const struct sharded_route *r, struct copy_call copy, size_t outer,
                              const struct side *src, const struct side *dst)
{
    size_t unit = dtype_bytes(r->device->dtype);
    copy.src0 = src->peer;
    copy.src1 = src->box.lo;
    copy.src2 = src->box.middle;
    copy.dst0 = dst->peer;
    copy.dst1 = dst->box.lo;
    copy.dst2 = dst->box.middle;
    for (size_t i = 0; i < outer; i++) {
        copy.src = devmem_at(src->base, i * src->box.outer * unit);
        copy.dst = devmem_at(dst->base, i * dst->box.outer * unit);
        TRY(device_copy(r->device, &copy));
    }
    return OK;
}

/* Copies the blocks of `peers` ranks from `first`, whose parts of `across` are equally large, between the
 * array and the message. `along`: the dimension of which this rank has its part. */
static enum status copy_peers(const struct sharded_route *r, int across, int along, int first, int peers,
                              struct devmem array, struct devmem message, bool packs)
{
    int ranks = comm_nranks(r->comm);
    const struct sharded_shape *shape = &r->shape;
    struct fold fold = fold_of(shape, r->from, r->to);
    bool is_lo = across == fold.lo;
    struct span part = part_of(shape, ranks, first, across);
    size_t all = size_of(shape, across), mine = part_of(shape, ranks, comm_rank(r->comm), along).count;
    size_t block_part = block_size(shape, ranks, across, part.count);
    size_t block_mine = block_size(shape, ranks, along, mine);
    struct side in_array = {.box = strides_of(&fold, is_lo ? all : mine, is_lo ? mine : all)};
    struct side in_message = {.base = message, .box = strides_of(&fold, is_lo ? block_part : block_mine,
                                                                 is_lo ? block_mine : block_part)};
    size_t step = is_lo ? in_array.box.lo : fold.inner; /* from one of the parts' things to the next */
    in_array.base = devmem_at(array, part.first * step * dtype_bytes(r->device->dtype));
    in_array.peer = part.count * step;
    in_message.peer = fold.outer * in_message.box.outer;
    struct copy_call copy = {.n0 = (size_t)peers, .n1 = is_lo ? part.count : mine, .n2 = fold.middle,
                             .width = (is_lo ? mine : part.count) * fold.inner};
    return packs ? copy_boxes(r, copy, fold.outer, &in_array, &in_message)
                 : copy_boxes(r, copy, fold.outer, &in_message, &in_array);
}

/* The first ranks have one more than the others: two runs of equal parts. */
static enum status copy_all(const struct sharded_route *r, int across, int along, struct devmem array,
                            struct devmem message, const size_t *offsets, bool packs)
{
    int ranks = comm_nranks(r->comm), longer = (int)(size_of(&r->shape, across) % (size_t)ranks);
    struct devmem rest = devmem_at(message, offsets[longer] * dtype_bytes(r->device->dtype));
    if (longer > 0)
        TRY(copy_peers(r, across, along, 0, longer, array, message, packs));
    return copy_peers(r, across, along, longer, ranks - longer, array, rest, packs);
}

/* ---- the three ways ---- */

static enum status run_split(struct sharded_route *r, struct devmem src, struct devmem dst)
{
    int ranks = comm_nranks(r->comm), me = comm_rank(r->comm);
    struct fold fold = fold_of(&r->shape, r->from, r->to);
    struct span part = part_of(&r->shape, ranks, me, r->to);
    struct copy_call copy = {.n0 = 1, .n1 = 1, .n2 = fold.outer, .width = part.count * fold.inner,
                             .src2 = r->shape.size[r->to] * fold.inner,
                             .dst = dst, .dst2 = part.count * fold.inner};
    copy.src = devmem_at(src, part.first * fold.inner * dtype_bytes(r->device->dtype));
    return device_copy(r->device, &copy);
}

static enum status pack(struct sharded_route *r, struct devmem src, struct devmem *message)
{
    *message = src;
    if (devmem_is_none(r->packed))
        return OK;
    *message = r->packed;
    if (has_padding(r))
        TRY(device_zero(r->device, r->packed, r->packed_elements * dtype_bytes(r->device->dtype)));
    return copy_all(r, r->to, r->from, src, r->packed, r->send_offsets, true);
}

static enum status unpack(struct sharded_route *r, struct devmem dst)
{
    if (devmem_is_none(r->received))
        return OK;
    return copy_all(r, r->from, r->to, dst, r->received, r->recv_offsets, false);
}

enum status sharded_run(struct sharded_route *r, struct devmem src, struct devmem dst)
{
    struct devmem message = src, received = devmem_is_none(r->received) ? dst : r->received;
    enum dtype dtype = r->device->dtype;
    if (r->from == SHARDED_WHOLE)
        return run_split(r, src, dst);
    if (r->to == SHARDED_WHOLE)
        TRY(comm_all_gatherv(r->comm, r->traffic, dtype, src, received, r->recv_counts, r->recv_offsets,
                             NULL));
    else {
        TRY(pack(r, src, &message));
        if (r->is_even)
            TRY(comm_all_to_all(r->comm, r->traffic, dtype, message, received, r->send_counts[0], NULL));
        else
            TRY(comm_all_to_allv(r->comm, r->traffic, dtype, message, r->send_counts,
                                 r->send_offsets, received, r->recv_counts, r->recv_offsets, NULL));
    }
    return unpack(r, dst);
}

/* ---- setup ---- */

/* Counts and offsets of the messages; the sums of both. */
static void fill_tables(struct sharded_route *r, size_t *sent, size_t *received)
{
    int ranks = comm_nranks(r->comm), me = comm_rank(r->comm);
    *sent = *received = 0;
    r->is_even = true;
    for (int peer = 0; peer < ranks; peer++) {
        r->send_offsets[peer] = *sent;
        r->recv_offsets[peer] = *received;
        r->send_counts[peer] = block_elements(&r->shape, ranks, r->from, r->to, me, peer);
        r->recv_counts[peer] = block_elements(&r->shape, ranks, r->from, r->to, peer, me);
        r->is_even = r->is_even && r->send_counts[peer] == r->send_counts[0] &&
                     r->recv_counts[peer] == r->send_counts[0];
        *sent += r->send_counts[peer];
        *received += r->recv_counts[peer];
    }
}

enum status sharded_open(struct rank *rank, struct comm *comm, enum traffic traffic,
                         const struct sharded_shape *shape, int from, int to, struct sharded_route *r)
{
    size_t sent, received;
    ASSERT_CMP(from, !=, to);
    ASSERT(from < shape->dims && to < shape->dims);
    r->shape = *shape;
    r->shape.is_padded &= from != SHARDED_WHOLE && to != SHARDED_WHOLE;
    r->from = from;
    r->to = to;
    r->comm = comm;
    r->device = rank->device;
    r->traffic = traffic;
    r->packed = r->received = DEVMEM_NONE;
    if (from == SHARDED_WHOLE)
        return OK;
    fill_tables(r, &sent, &received);
    r->packed_elements = sent;
    if (to != SHARDED_WHOLE && !is_in_place(r, to))
        TRY(rank_alloc(rank, MEMORY_ACTIVATIONS, 1, sent, &r->packed));
    if (!is_in_place(r, from))
        TRY(rank_alloc(rank, MEMORY_ACTIVATIONS, 1, received, &r->received));
    return OK;
}

void sharded_cost(const struct sharded_shape *shape, int ranks, int rank, int from, int to,
                  enum traffic traffic, enum dtype dtype, uint64_t times, struct cost *out)
{
    size_t counts[COMM_MAX_RANKS];
    for (int peer = 0; peer < ranks; peer++)
        counts[peer] = block_elements(shape, ranks, from, to, rank, peer);
    struct comm_call call = {.op = COMM_ALL_TO_ALL, .traffic = traffic, .dtype = dtype,
                             .send_counts = counts};
    cost_add(out, PHASE_SYNC, &call, rank, ranks, times);
}
