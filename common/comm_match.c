/* Comparing what ranks bring to an operation. */
#include "common/comm_match.h"

#include <stdio.h>

/* A comparison under way. */
struct comparison {
    const struct comm_post *const *posts;
    int nranks;
    const int *team_ranks;
    char *why;
    size_t size;
};

static bool disagree(const struct comparison *c, int a, int b, const char *what, size_t of_a, size_t of_b)
{
    snprintf(c->why, c->size, "%s: %s is %zu on rank %d and %zu on rank %d",
             comm_op_name(c->posts[a]->op), what, of_a, c->team_ranks[a], of_b, c->team_ranks[b]);
    return false;
}

static bool all_to_all_matches(const struct comparison *c)
{
    for (int s = 0; s < c->nranks; s++)
        for (int r = 0; r < c->nranks; r++) {
            size_t sent = c->posts[s]->send_counts[r], expected = c->posts[r]->recv_counts[s];
            if (sent != expected)
                return disagree(c, s, r, "the part from the one to the other", sent, expected);
        }
    return true;
}

/* Counts of the parts, where all ranks give all of them. */
static const size_t *part_counts(const struct comm_post *post)
{
    return post->op == COMM_ALL_GATHER       ? post->recv_counts
           : post->op == COMM_REDUCE_SCATTER ? post->send_counts
                                             : NULL;
}

static bool matches_first(const struct comparison *c, int r)
{
    const struct comm_post *a = c->posts[0], *b = c->posts[r];
    if (a->op != b->op || a->dtype != b->dtype) {
        snprintf(c->why, c->size, "rank %d calls %s of %s, rank %d %s of %s", c->team_ranks[0],
                 comm_op_name(a->op), dtype_name(a->dtype), c->team_ranks[r], comm_op_name(b->op),
                 dtype_name(b->dtype));
        return false;
    }
    if (a->root != b->root)
        return disagree(c, 0, r, "the root", (size_t)a->root, (size_t)b->root);
    if (a->count != b->count)
        return disagree(c, 0, r, "the count", a->count, b->count);
    const size_t *of_a = part_counts(a), *of_b = part_counts(b);
    for (int q = 0; of_a != NULL && q < c->nranks; q++)
        if (of_a[q] != of_b[q])
            return disagree(c, 0, r, "the size of a part", of_a[q], of_b[q]);
    return true;
}

bool comm_match_collective(const struct comm_post *const *posts, int nranks, const int *team_ranks,
                           char *why, size_t size)
{
    const struct comparison c = {posts, nranks, team_ranks, why, size};
    for (int r = 1; r < nranks; r++)
        if (!matches_first(&c, r))
            return false;
    return posts[0]->op != COMM_ALL_TO_ALL || all_to_all_matches(&c);
}

bool comm_match_message(const struct comm_post *send, const struct comm_post *recv, int from, int to,
                        char *why, size_t size)
{
    if (send->dtype != recv->dtype)
        snprintf(why, size, "message: rank %d sends %s, rank %d expects %s", from,
                 dtype_name(send->dtype), to, dtype_name(recv->dtype));
    else if (send->count != recv->count)
        snprintf(why, size, "message: rank %d sends %zu elements, rank %d expects %zu", from,
                 send->count, to, recv->count);
    return send->dtype == recv->dtype && send->count == recv->count;
}
