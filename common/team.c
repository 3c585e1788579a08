/* What every team does alike, on top of a back end's gather and broadcast. */
#include "common/team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

enum status team_gather(struct team *t, int root, const void *send, size_t bytes, void *recv)
{
    team_heartbeat(t);
    return t->ops->gather(t, root, send, bytes, recv);
}

enum status team_broadcast(struct team *t, int root, void *data, size_t bytes)
{
    team_heartbeat(t);
    return t->ops->broadcast(t, root, data, bytes);
}

void team_abort(struct team *t, enum status why)
{
    ASSERT(why != OK);
    t->ops->abort(t, why);
}

enum status team_status(struct team *t)
{
    return t->ops->status(t);
}

enum status team_peer_failed(struct team *t)
{
    const struct failure *cause = t->ops->cause(t);
    return FAIL(ERR_PEER, "rank %d failed first: %.400s", cause->rank, cause->text);
}

void team_heartbeat(struct team *t)
{
    t->ops->heartbeat(t);
}

int64_t team_clock_offset_ps(struct team *t)
{
    return t->ops->clock_offset_ps != NULL ? t->ops->clock_offset_ps(t) : 0;
}

struct team_deadline team_deadline_start(struct team *t)
{
    return (struct team_deadline){t->ops->beats(t), clock_ns()};
}

bool team_deadline_passed(struct team *t, struct team_deadline *deadline)
{
    uint64_t beats = t->ops->beats(t);
    if (beats != deadline->beats) {
        *deadline = (struct team_deadline){beats, clock_ns()};
        return false;
    }
    return (double)(clock_ns() - deadline->since_ns) > t->timeout_s * 1e9;
}

/* What a rank says of itself in team_agree. */
struct vote {
    enum status code;
    int rank;
    char text[sizeof((struct failure *)0)->text];
};

static struct vote own_vote(const struct team *t, enum status mine)
{
    struct vote vote = {.code = mine, .rank = t->rank};
    const struct failure *first = status_first();
    if (mine != OK)
        snprintf(vote.text, sizeof vote.text, "%s",
                 first->code != OK ? first->text : status_text(mine));
    return vote;
}

/* The largest code; of equals the lowest rank. */
static struct vote worst_vote(const struct vote *votes, int n)
{
    int worst = 0;
    for (int r = 1; r < n; r++)
        if (votes[r].code > votes[worst].code)
            worst = r;
    return votes[worst];
}

static enum status exchange_votes(struct team *t, struct vote *vote)
{
    struct vote *votes = NULL;
    if (t->rank == 0) {
        votes = calloc((size_t)t->nranks, sizeof *votes);
        if (votes == NULL)
            return FAIL(ERR_MEMORY, "team: no memory for the statuses of %d ranks", t->nranks);
    }
    enum status s = team_gather(t, 0, vote, sizeof *vote, votes);
    if (s == OK && t->rank == 0)
        *vote = worst_vote(votes, t->nranks);
    free(votes);
    TRY(s);
    return team_broadcast(t, 0, vote, sizeof *vote);
}

enum status team_barrier(struct team *t)
{
    char *arrived = NULL, token = 0;
    if (t->rank == 0) {
        arrived = malloc((size_t)t->nranks);
        if (arrived == NULL)
            return FAIL(ERR_MEMORY, "team: no memory for a barrier of %d ranks", t->nranks);
    }
    enum status s = team_gather(t, 0, &token, 1, arrived);
    free(arrived);
    TRY(s);
    return team_broadcast(t, 0, &token, 1);
}

/* The team was aborted (or is now, because the exchange failed): everybody ends the phase first. */
static enum status agree_after_abort(struct team *t, enum status mine)
{
    if (team_status(t) == OK)
        team_abort(t, mine);
    enum status settled = t->ops->settle(t), why = team_status(t);
    if (mine == OK)
        mine = team_peer_failed(t);
    mine = why > mine ? why : mine;
    return settled > mine ? settled : mine;
}

enum status team_agree(struct team *t, enum status mine)
{
    if (team_status(t) != OK)
        return agree_after_abort(t, mine);
    struct vote vote = own_vote(t, mine);
    enum status s = exchange_votes(t, &vote);
    if (s != OK)
        return agree_after_abort(t, s > mine ? s : mine);
    if (vote.code != OK && mine == OK)
        (void)FAIL(ERR_PEER, "rank %d failed first: %.400s", vote.rank, vote.text);
    return vote.code;
}
