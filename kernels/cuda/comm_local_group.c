/* What the ranks of a communicator of transport `local` share: operations under way, and splitting. */
#include "kernels/cuda/comm_local.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool make_members(struct local_group *g)
{
    bool is_whole = true;
    for (int r = 0; r < g->nranks; r++) {
        struct local_member *m = &g->members[r];
        m->to = calloc((size_t)g->nranks, sizeof(struct lane *));
        m->from = calloc((size_t)g->nranks, sizeof(struct lane *));
        is_whole = is_whole && m->to && m->from;
    }
    return is_whole;
}

static void group_free(struct local_group *g)
{
    struct local_operation *const lists[] = {g->open, g->unused};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (struct local_operation *op = lists[i], *next; op; op = next) {
            next = op->next;
            free(op);
        }
    for (int r = 0; r < g->nranks; r++) {
        free(g->members[r].to);
        free(g->members[r].from);
    }
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->mutex);
    free(g);
}

struct local_group *local_group_new(int nranks)
{
    struct local_group *g = calloc(1, sizeof *g + (size_t)nranks * sizeof g->members[0]);
    pthread_condattr_t monotonic;
    if (!g)
        return NULL;
    g->nranks = g->users = nranks;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&g->mutex, NULL);
    pthread_cond_init(&g->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (make_members(g))
        return g;
    group_free(g);
    return NULL;
}

void local_group_release(struct local_group *g)
{
    pthread_mutex_lock(&g->mutex);
    bool is_last = --g->users == 0;
    pthread_mutex_unlock(&g->mutex);
    if (is_last)
        group_free(g);
}

void local_group_wait(struct local_group *g)
{
    enum { SECOND_NS = 1000000000 };
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += TEAM_SLICE_NS;
    until.tv_sec += until.tv_nsec / SECOND_NS;
    until.tv_nsec %= SECOND_NS;
    pthread_cond_timedwait(&g->changed, &g->mutex, &until);
}

/* ---- splitting ---- */

/* Whether member a stands before b in their group: by key, then by rank. */
static bool stands_before(const struct local_group *g, int a, int b)
{
    const struct local_member *x = &g->members[a], *y = &g->members[b];
    return x->key != y->key ? x->key < y->key : a < b;
}

static enum status place(struct local_group *g, int r)
{
    struct local_member *me = &g->members[r];
    int size = 0, first = -1;
    me->split_rank = 0;
    me->split_group = NULL;
    if (me->color < 0)
        return OK;
    for (int other = 0; other < g->nranks; other++) {
        if (g->members[other].color != me->color)
            continue;
        first = first < 0 ? other : first;
        size++;
        me->split_rank += other != r && stands_before(g, other, r);
    }
    me->split_group = first < r ? g->members[first].split_group : local_group_new(size);
    return me->split_group ? OK : FAIL(ERR_MEMORY, "local: no memory for a group of %d", size);
}

enum status local_group_divide(struct local_group *g)
{
    for (int r = 0; r < g->nranks; r++)
        TRY(place(g, r));
    return OK;
}

/* ---- operations ---- */

enum { COUNT_ARRAYS = 4 };

static size_t operation_bytes(const struct local_group *g, int posts)
{
    size_t arrays = COUNT_ARRAYS * (size_t)g->nranks * sizeof(size_t);
    return sizeof(struct local_operation) + (size_t)posts * (sizeof(struct local_post) + arrays);
}

/* All operations are of one size, so that any may become any other. */
static struct local_operation *new_operation(struct local_group *g)
{
    struct local_operation *op = g->unused;
    size_t bytes = operation_bytes(g, g->nranks > 2 ? g->nranks : 2);
    if (!op)
        return calloc(1, bytes);
    g->unused = op->next;
    memset(op, 0, bytes);
    return op;
}

struct local_operation *local_group_operation(struct local_group *g, size_t channel, uint64_t number)
{
    for (struct local_operation *op = g->open; op; op = op->next)
        if (op->channel == channel && op->number == number)
            return op;
    struct local_operation *op = new_operation(g);
    if (!op)
        return NULL;
    size_t n = (size_t)g->nranks;
    op->channel = channel;
    op->number = number;
    op->needed = channel == 0 ? g->nranks : 2;
    size_t *counts = (size_t *)(void *)&op->posts[op->needed];
    for (int i = 0; i < op->needed; i++, counts += COUNT_ARRAYS * n) {
        op->posts[i].send_counts = counts;
        op->posts[i].send_offsets = counts + n;
        op->posts[i].recv_counts = counts + 2 * n;
        op->posts[i].recv_offsets = counts + 3 * n;
    }
    op->next = g->open;
    g->open = op;
    return op;
}

void local_group_awaited(struct local_group *g, struct local_operation *op)
{
    if (++op->awaited < op->needed)
        return;
    struct local_operation **at = &g->open;
    while (*at != op)
        at = &(*at)->next;
    *at = op->next;
    op->next = g->unused;
    g->unused = op;
}
