/* What the ranks of a communicator of transport `threads` share: operations under way, groups. */
#include "common/comm_threads.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Made at once, so that the usual run makes none later. */
enum { FIRST_OPERATIONS = 16 };

void threads_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* Every post has room for four arrays of nranks entries, behind the posts. */
static size_t *post_arrays(struct threads_operation *op, size_t posts, size_t nranks, size_t post)
{
    return (size_t *)(void *)(op->posts + posts) + post * 4 * nranks;
}

static struct threads_operation *make_operation(struct threads_group *group)
{
    size_t n = (size_t)group->nranks, posts = n < 2 ? 2 : n;
    struct threads_operation *op =
        calloc(1, sizeof *op + posts * (sizeof op->posts[0] + 4 * n * sizeof(size_t)));
    if (op == NULL)
        return NULL;
    threads_cond_init(&op->changed);
    for (size_t p = 0; p < posts; p++) {
        size_t *arrays = post_arrays(op, posts, n, p);
        op->posts[p].says.send_counts = arrays;
        op->posts[p].send_offsets = arrays + n;
        op->posts[p].says.recv_counts = arrays + 2 * n;
        op->posts[p].recv_offsets = arrays + 3 * n;
    }
    op->next_made = group->made;
    group->made = op;
    return op;
}

static struct threads_operation *unused_operation(struct threads_group *group)
{
    struct threads_operation *op = group->unused;
    if (op == NULL)
        return make_operation(group);
    group->unused = op->next;
    return op;
}

static struct threads_operation **bucket(struct threads_group *group, size_t channel,
                                         uint64_t number)
{
    return &group->buckets[(channel * 7 + number) % THREADS_BUCKETS];
}

struct threads_operation *threads_group_operation(struct threads_group *group, size_t channel,
                                                  uint64_t number)
{
    struct threads_operation **first = bucket(group, channel, number);
    for (struct threads_operation *op = *first; op != NULL; op = op->next)
        if (op->channel == channel && op->number == number)
            return op;
    struct threads_operation *op = unused_operation(group);
    if (op == NULL)
        return NULL;
    op->channel = channel;
    op->number = number;
    op->needed = channel == 0 ? group->nranks : 2;
    op->posted = op->awaited = 0;
    op->matched_ps = 0;
    for (int p = 0; p < op->needed; p++)
        op->posts[p].is_posted = false;
    atomic_store(&op->state, OPERATION_OPEN);
    atomic_store(&op->next_task, 0);
    atomic_store(&op->tasks_done, 0);
    op->next = *first;
    *first = op;
    return op;
}

static void unlink_operation(struct threads_group *group, const struct threads_operation *op)
{
    struct threads_operation **link = bucket(group, op->channel, op->number);
    while (*link != op)
        link = &(*link)->next;
    *link = op->next;
}

void threads_group_awaited(struct threads_group *group, struct threads_operation *op)
{
    pthread_mutex_lock(&group->mutex);
    if (++op->awaited == op->needed) {
        unlink_operation(group, op);
        op->next = group->unused;
        group->unused = op;
    }
    pthread_mutex_unlock(&group->mutex);
}

static void group_free(struct threads_group *group)
{
    while (group->made != NULL) {
        struct threads_operation *next = group->made->next_made;
        pthread_cond_destroy(&group->made->changed);
        free(group->made);
        group->made = next;
    }
    pthread_cond_destroy(&group->has_split);
    pthread_mutex_destroy(&group->mutex);
    free(group->team_ranks);
    free(group->moved);
    free(group->parts);
    free(group);
}

static bool group_fill(struct threads_group *group)
{
    size_t n = (size_t)group->nranks;
    group->team_ranks = calloc(n, sizeof *group->team_ranks);
    group->moved = calloc(n, sizeof *group->moved);
    group->parts = calloc(n, sizeof *group->parts);
    if (group->team_ranks == NULL || group->moved == NULL || group->parts == NULL)
        return false;
    for (int i = 0; i < FIRST_OPERATIONS; i++) {
        struct threads_operation *op = make_operation(group);
        if (op == NULL)
            return false;
        op->next = group->unused;
        group->unused = op;
    }
    return true;
}

struct threads_group *threads_group_new(int nranks)
{
    struct threads_group *group = calloc(1, sizeof *group);
    if (group == NULL)
        return NULL;
    group->nranks = group->users = nranks;
    pthread_mutex_init(&group->mutex, NULL);
    threads_cond_init(&group->has_split);
    if (group_fill(group))
        return group;
    group_free(group);
    return NULL;
}

void threads_group_release(struct threads_group *group)
{
    pthread_mutex_lock(&group->mutex);
    bool is_last = --group->users == 0;
    pthread_mutex_unlock(&group->mutex);
    if (is_last)
        group_free(group);
}

/* ---- split ---- */

static int count_color(const struct threads_group *group, int color)
{
    int n = 0;
    for (int r = 0; r < group->nranks; r++)
        n += group->parts[r].color == color;
    return n;
}

/* How many of the same color come before rank r by (key, rank). */
static int rank_in_color(const struct threads_group *group, int r)
{
    const struct threads_part *parts = group->parts;
    int before = 0;
    for (int q = 0; q < group->nranks; q++)
        if (parts[q].color == parts[r].color)
            before += parts[q].key < parts[r].key || (parts[q].key == parts[r].key && q < r);
    return before;
}

static bool found_group(struct threads_group *group, int color)
{
    struct threads_group *child = threads_group_new(count_color(group, color));
    if (child == NULL)
        return false;
    for (int r = 0; r < group->nranks; r++) {
        struct threads_part *part = &group->parts[r];
        if (part->color != color)
            continue;
        part->group = child;
        part->rank = rank_in_color(group, r);
        child->team_ranks[part->rank] = group->team_ranks[r];
    }
    return true;
}

void threads_group_divide(struct threads_group *group)
{
    group->split_failed = false;
    for (int r = 0; r < group->nranks; r++)
        group->parts[r].group = NULL;
    for (int r = 0; r < group->nranks; r++) {
        const struct threads_part *part = &group->parts[r];
        if (part->color >= 0 && part->group == NULL && !found_group(group, part->color))
            group->split_failed = true;
    }
}
