/* Making and taking down what a rank works with. */
#include "bench/rank_setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status open_communicators(struct rank *rank, const struct point *point)
{
    int cfg = layout_coordinate(&point->layout, rank->index, AXIS_CFG);
    int group_rank = layout_group_rank(&point->layout, rank->index);
    TRY(comm_open(point->transport, rank->team, rank->lanes, rank->meter, &rank->world));
    rank->group = rank->world;
    if (point->problem.cfg_degree == 1)
        return OK;
    TRY(comm_split(rank->world, cfg, group_rank, &rank->group));
    return comm_split(rank->world, group_rank, cfg, &rank->twin);
}

/* Waits that must be kept where marks have events: a bound on those of any strategy's run. */
static size_t most_waits(const struct point *point)
{
    size_t ranks = (size_t)point->nranks, blocks = (size_t)point->problem.shape->blocks;
    if (point->device->memory != MEMORY_CUDA)
        return 0;
    return (size_t)point->problem.steps * (blocks * (16 + 8 * ranks) + 8 * point->problem.tokens + 64);
}

static enum status open_device(struct rank_setup *setup, const struct point *point, size_t max_events)
{
    struct rank *rank = &setup->rank;
    struct device_config config = {.rank = rank->index, .nranks = rank->nranks,
                                   .threads = point->threads, .dtype = point->problem.dtype,
                                   .platform = point->platform.name[0] ? &point->platform : NULL};
    TRY(device_open(point->device, &config, &rank->device));
    rank->lanes = rank->device->lanes;
    TRY(meter_open(&setup->meter, rank->lanes, point->problem.steps, most_waits(point), max_events));
    rank->meter = &setup->meter;
    rank->device->meter = rank->meter;
    rank->device->team = rank->team;
    TRY(arena_open(rank->lanes, rank->ledger, &rank->persistent));
    return arena_open(rank->lanes, rank->ledger, &rank->scratch);
}

enum status rank_setup_open(struct rank_setup *setup, const struct point *point, struct team *team,
                            size_t max_events)
{
    setup->rank = (struct rank){.problem = &point->problem, .strategy = point->strategy,
                                .layout = &point->layout, .index = team->rank,
                                .nranks = team->nranks, .team = team, .ledger = &setup->ledger};
    struct rank *rank = &setup->rank;
    TRY(team_agree(team, open_device(setup, point, max_events)));
    TRY(team_agree(team, open_communicators(rank, point)));
    enum status status = point->strategy->setup(rank);
    setup->is_set_up = rank->state != NULL;
    return team_agree(team, status);
}

void rank_setup_close(struct rank_setup *setup)
{
    struct rank *rank = &setup->rank;
    if (setup->is_set_up && rank->strategy->teardown)
        rank->strategy->teardown(rank);
    free(rank->state);
    arena_close(rank->scratch);
    arena_close(rank->persistent);
    for (int i = 0; i < rank->subgroups; i++)
        comm_close(rank->subgroup[i]);
    if (rank->group != rank->world)
        comm_close(rank->group);
    comm_close(rank->twin);
    comm_close(rank->world);
    if (rank->meter)
        meter_close(rank->meter);
    device_close(rank->device);
    free(setup->events);
    *setup = (struct rank_setup){.result = setup->result};
}

uint64_t rank_setup_moved_bytes(const struct rank_setup *setup)
{
    const struct rank *rank = &setup->rank;
    uint64_t bytes = comm_moved_bytes(rank->world);
    if (rank->group != rank->world)
        bytes += comm_moved_bytes(rank->group);
    for (int i = 0; i < rank->subgroups; i++)
        bytes += comm_moved_bytes(rank->subgroup[i]);
    return rank->twin ? bytes + comm_moved_bytes(rank->twin) : bytes;
}

enum status rank_setup_keep_events(struct rank_setup *setup)
{
    const struct meter *meter = &setup->meter;
    int64_t start = lane_mark_ps(setup->rank.lanes, &meter->start) +
                    team_clock_offset_ps(setup->rank.team);
    free(setup->events);
    setup->events = calloc(meter->event_count + 1, sizeof *setup->events);
    if (!setup->events)
        return FAIL(ERR_MEMORY, "no memory for %zu trace events", meter->event_count);
    setup->event_count = meter->event_count;
    setup->dropped_events = meter->dropped_events;
    setup->start_ps = start;
    for (size_t i = 0; i < meter->event_count; i++) {
        const struct meter_event *from = &meter->events[i];
        struct trace_event *to = &setup->events[i];
        *to = (struct trace_event){.rank = setup->rank.index, .peer = from->peer,
                                   .step = from->step, .layer = from->layer, .patch = from->patch,
                                   .traffic = from->traffic, .begin_ps = start + from->begin_ps,
                                   .end_ps = start + from->end_ps};
        snprintf(to->name, sizeof to->name, "%s", from->name);
        snprintf(to->lane, sizeof to->lane, "%s", from->lane);
    }
    return OK;
}

/* What the ranks tell each other before their events travel. */
struct kept {
    size_t events, dropped;
    int64_t start_ps;
};

/* Everybody pads to the largest count: gathers are of equal sizes. */
static enum status gather_padded(struct rank_setup *setup, const struct kept *kept, size_t most,
                                 struct trace_event **out, size_t *count)
{
    struct team *team = setup->rank.team;
    size_t ranks = team->rank == 0 ? (size_t)team->nranks : 0, total = 0;
    struct trace_event *mine = calloc(most + 1, sizeof *mine), *all = calloc(ranks * most + 1,
                                                                            sizeof *all);
    enum status status = mine && all ? OK : FAIL(ERR_MEMORY, "no memory for the trace");
    status = team_agree(team, status);
    if (status == OK) {
        memcpy(mine, setup->events, setup->event_count * sizeof *mine);
        status = team_gather(team, 0, mine, most * sizeof *mine, all);
    }
    for (size_t r = 0; status == OK && r < ranks; r++) {
        memmove(all + total, all + r * most, kept[r].events * sizeof *all);
        total += kept[r].events;
    }
    free(mine);
    if (status != OK || team->rank != 0) {
        free(all);
        return status;
    }
    *out = all;
    *count = total;
    return OK;
}

/* One time line for all ranks: from the first rank's start. */
static void align_events(const struct kept *kept, int nranks, struct trace_event *events, size_t count)
{
    int64_t first = kept[0].start_ps;
    for (int r = 1; r < nranks; r++)
        first = kept[r].start_ps < first ? kept[r].start_ps : first;
    for (size_t i = 0; i < count; i++) {
        events[i].begin_ps -= first;
        events[i].end_ps -= first;
    }
}

enum status rank_setup_gather_events(struct rank_setup *setup, struct trace_event **out, size_t *count,
                                     size_t *dropped)
{
    struct team *team = setup->rank.team;
    struct kept mine = {setup->event_count, setup->dropped_events, setup->start_ps};
    struct kept *kept = calloc((size_t)team->nranks, sizeof *kept);
    size_t most = 0, lost = 0;
    enum status status = kept ? OK : FAIL(ERR_MEMORY, "no memory for the trace");
    status = team_agree(team, status);
    if (status == OK)
        status = team_gather(team, 0, &mine, sizeof mine, kept);
    for (int r = 0; status == OK && team->rank == 0 && r < team->nranks; r++) {
        most = kept[r].events > most ? kept[r].events : most;
        lost += kept[r].dropped;
    }
    if (status == OK)
        status = team_broadcast(team, 0, &most, sizeof most);
    if (status == OK)
        status = gather_padded(setup, kept, most, out, count);
    if (status == OK && team->rank == 0) {
        align_events(kept, team->nranks, *out, *count);
        *dropped = lost;
    }
    free(kept);
    return status;
}
