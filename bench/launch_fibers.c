/* A fiber a rank, with its own place for failures. */
#include "bench/launch_fibers.h"

#include "common/fiber.h"
#include "common/log.h"
#include "common/team_virtual.h"

#include <stdlib.h>

struct fiber_rank {
    struct failure failure;
    enum status status;
};

struct launch {
    struct team_virtual *team;
    struct fiber_rank *ranks;
    int nranks;
    launch_fn *work;
    void *context;
};

static void enter(int index, void *context)
{
    struct launch *l = context;
    status_bind(&l->ranks[index].failure);
    log_set_rank(index, l->nranks);
}

static void run(int index, void *context)
{
    struct launch *l = context;
    struct team *team = team_virtual_rank(l->team, index);
    enum status status = l->work(team, l->context);
    if (status != OK)
        team_abort(team, status);
    l->ranks[index].status = status;
}

static void stuck(void *context)
{
    struct launch *l = context;
    team_virtual_stuck(l->team);
}

/* The worst status, and as this thread's failure the text of the first rank that has it. */
static enum status worst_of(const struct launch *l)
{
    const struct fiber_rank *worst = &l->ranks[0];
    for (int r = 1; r < l->nranks; r++)
        if (l->ranks[r].status > worst->status)
            worst = &l->ranks[r];
    if (worst->status == OK)
        return OK;
    const struct failure *f = &worst->failure;
    return status_fail(worst->status, f->file ? f->file : __FILE__, f->line, "%s",
                       f->text[0] ? f->text : status_text(worst->status));
}

static enum status run_all(struct launch *l)
{
    const struct fiber_work work = {.run = run, .enter = enter, .stuck = stuck, .context = l};
    struct failure *former = status_bind(NULL);
    status_bind(former);
    for (int r = 0; r < l->nranks; r++)
        l->ranks[r].failure.rank = -1;
    enum status status = fibers_run(l->nranks, &work);
    status_bind(former);
    log_set_rank(-1, 0);
    return status == OK ? worst_of(l) : status;
}

enum status launch_fibers(int nranks, double timeout_s, launch_fn *work, void *context)
{
    (void)timeout_s;
    struct launch l = {.nranks = nranks, .work = work, .context = context};
    TRY(team_virtual_open(nranks, &l.team));
    l.ranks = calloc((size_t)nranks, sizeof *l.ranks);
    enum status status = l.ranks ? run_all(&l) : FAIL(ERR_MEMORY, "no memory for %d ranks", nranks);
    free(l.ranks);
    team_virtual_close(l.team);
    return status;
}
