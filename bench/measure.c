/* One point on its ranks: the error run, warm-up runs, timed runs. */
#include "bench/measure.h"

#include "bench/launch.h"
#include "bench/rank_setup.h"
#include "bench/remote.h"
#include "bench/stats.h"
#include "common/log.h"
#include "strategies/trajectory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { MODES = RUN_COMM + 1, MAX_EVENTS = 200000 };
#define PS_PER_US 1e6

/* What one rank brings back of one timed run. */
struct run_sample {
    double total_us, compute_us, exposed_us, bubble_us, start_us;
};

/* What a measuring shares between its ranks; in one process, or one copy in each. */
struct measure_job {
    const struct point *point;
    const struct measure_request *request;
    struct measurement *out; /* filled by rank 0 */
    struct rank_setup *setups;
    int runs;                /* timed, of all modes */
};

/* One rank's samples, [modes][repeat] and the ends of steps of the main mode, [repeat][steps]. */
struct samples {
    struct run_sample *run;
    double *step_end_us;
};

static enum run_mode main_mode(const struct point *point)
{
    for (int mode = 0; mode < MODES; mode++)
        if (point->runs_mode[mode])
            return (enum run_mode)mode;
    return RUN_FULL;
}

/* ---- one run ---- */

static enum status run_once(struct rank_setup *setup, enum run_mode mode, bool counts,
                            struct meter_times *times)
{
    struct rank *rank = &setup->rank;
    enum status status = rank_load_noise(rank);
    meter_reset(rank->meter);
    rank->meter->mode = mode;
    rank->meter->is_counting = counts;
    TRY(team_agree(rank->team, status));
    uint64_t moved = rank_setup_moved_bytes(setup);
    TRY(team_barrier(rank->team));
    TRY(meter_start(rank->meter));
    status = rank->strategy->sample(rank);
    if (status == OK)
        status = lane_sync(rank->lanes);
    if (status == OK)
        status = meter_stop(rank->meter);
    if (status != OK) {
        team_abort(rank->team, status);
        return status;
    }
    TRY(team_barrier(rank->team));
    setup->moved_bytes = rank_setup_moved_bytes(setup) - moved;
    meter_resolve(rank->meter, times);
    return OK;
}

static enum status copy_output(struct measure_job *job, const struct trajectory *t)
{
    const struct problem *p = &job->point->problem;
    struct measurement *out = job->out;
    size_t n = t->tokens * t->token_values;
    out->values = n;
    out->x0 = malloc(n * sizeof *out->x0);
    out->trajectory = malloc((size_t)t->steps * n * sizeof *out->trajectory);
    if (!out->x0 || !out->trajectory)
        return FAIL(ERR_MEMORY, "no memory for a trajectory of %d steps", t->steps);
    for (int step = 0; step < t->steps; step++)
        trajectory_unpatchify(p, t->values + (size_t)step * n, out->trajectory + (size_t)step * n);
    memcpy(out->x0, out->trajectory + (size_t)(t->steps - 1) * n, n * sizeof *out->x0);
    return OK;
}

/* Untimed and uncounted: keeps every step's latent. */
static enum status error_run(struct measure_job *job, struct rank_setup *setup)
{
    struct rank *rank = &setup->rank;
    struct meter_times times;
    struct trajectory *trajectory = NULL;
    TRY(team_agree(rank->team, trajectory_open(rank->problem, &trajectory)));
    rank->trajectory = trajectory;
    enum status status = run_once(setup, RUN_FULL, false, &times);
    rank->trajectory = NULL;
    if (status == OK)
        status = trajectory_gather(trajectory, rank->team);
    if (status == OK && rank->team->rank == 0)
        status = copy_output(job, trajectory);
    trajectory_close(trajectory);
    return status;
}

/* ---- timed runs ---- */

static void keep_sample(struct rank_setup *setup, const struct meter_times *times,
                        struct run_sample *sample)
{
    struct meter *meter = setup->rank.meter;
    *sample = (struct run_sample){
        .total_us = (double)times->total_ps / PS_PER_US,
        .compute_us = (double)times->compute_ps / PS_PER_US,
        .exposed_us = (double)times->exposed_ps / PS_PER_US,
        .bubble_us = (double)times->bubble_ps / PS_PER_US,
        .start_us = (double)(lane_mark_ps(setup->rank.lanes, &meter->start) +
                             team_clock_offset_ps(setup->rank.team)) /
                    PS_PER_US};
}

static void keep_steps(struct rank_setup *setup, double *ends)
{
    struct meter *meter = setup->rank.meter;
    int64_t start = lane_mark_ps(setup->rank.lanes, &meter->start);
    for (int step = 0; step < setup->rank.problem->steps; step++)
        ends[step] =
            (double)(lane_mark_ps(setup->rank.lanes, &meter->step_ends[step]) - start) / PS_PER_US;
}

/* Bytes are facts of the schedule: they must be the same in every run. */
static enum status keep_counts(struct rank_setup *setup, bool is_first)
{
    const struct comm_counts *now = &setup->rank.meter->counts;
    if (is_first) {
        setup->result.counts = *now;
        setup->result.moved_bytes = setup->moved_bytes;
    } else if (memcmp(now, &setup->result.counts, sizeof *now) != 0 ||
               setup->moved_bytes != setup->result.moved_bytes) {
        return FAIL(ERR_INTERNAL, "rank %d sent other bytes than in the first run",
                    setup->rank.index);
    }
    return OK;
}

static enum status one_repeat(struct measure_job *job, struct rank_setup *setup, int repeat,
                              struct samples *samples)
{
    const struct point *point = job->point;
    enum run_mode first = main_mode(point);
    for (int mode = 0; mode < MODES; mode++) {
        struct meter_times times;
        if (!point->runs_mode[mode])
            continue;
        TRY(run_once(setup, (enum run_mode)mode, true, &times));
        keep_sample(setup, &times, &samples->run[mode * point->repeat + repeat]);
        if (mode != (int)first)
            continue;
        keep_steps(setup, samples->step_end_us + (size_t)repeat * (size_t)point->problem.steps);
        TRY(team_agree(setup->rank.team, keep_counts(setup, repeat == 0)));
        if (job->request->want_trace && repeat == point->repeat - 1)
            TRY(rank_setup_keep_events(setup));
    }
    return OK;
}

static enum status timed_runs(struct measure_job *job, struct rank_setup *setup, struct samples *samples)
{
    struct meter_times times;
    const struct point *point = job->point;
    for (int run = 0; run < point->warmup_runs && point->repeat > 0; run++)
        TRY(run_once(setup, main_mode(point), false, &times));
    arena_seal(setup->rank.scratch, true);
    arena_seal(setup->rank.persistent, true);
    for (int repeat = 0; repeat < point->repeat; repeat++)
        TRY(one_repeat(job, setup, repeat, samples));
    return OK;
}

/* ---- bringing it together on rank 0 ---- */

/* The sample of one rank in one run, out of everybody's. */
static const struct run_sample *sample_of(const struct measure_job *job, const struct run_sample *all, int rank,
                                          int mode, int repeat)
{
    return &all[((size_t)rank * MODES + (size_t)mode) * (size_t)job->point->repeat + (size_t)repeat];
}

static double latest_us(const struct measure_job *job, const struct run_sample *all, int mode, int repeat)
{
    double latest = 0;
    for (int r = 0; r < job->point->nranks; r++)
        latest = fmax(latest, sample_of(job, all, r, mode, repeat)->total_us);
    return latest;
}

static double mode_median_us(const struct measure_job *job, const struct run_sample *all, int mode,
                             double *scratch)
{
    if (!job->point->runs_mode[mode] || job->point->repeat == 0)
        return NAN;
    for (int i = 0; i < job->point->repeat; i++)
        scratch[i] = latest_us(job, all, mode, i);
    return stats_median(scratch, (size_t)job->point->repeat);
}

static double rank_median(const struct measure_job *job, const struct run_sample *all, int rank, size_t field,
                          double *scratch)
{
    for (int i = 0; i < job->point->repeat; i++) {
        const struct run_sample *sample = sample_of(job, all, rank, main_mode(job->point), i);
        scratch[i] = *(const double *)((const char *)sample + field);
    }
    return stats_median(scratch, (size_t)job->point->repeat);
}

static double most_skew_us(const struct measure_job *job, const struct run_sample *all, int rank)
{
    double most = 0;
    for (int i = 0; i < job->point->repeat; i++) {
        double first = INFINITY, own = 0;
        for (int r = 0; r < job->point->nranks; r++) {
            double start = sample_of(job, all, r, main_mode(job->point), i)->start_us;
            first = fmin(first, start);
            own = r == rank ? start : own;
        }
        most = fmax(most, own - first);
    }
    return most;
}

static void merge_samples(const struct measure_job *job, const struct run_sample *all, double *scratch)
{
    struct measurement *out = job->out;
    const struct point *point = job->point;
    out->wall_full_us = mode_median_us(job, all, RUN_FULL, scratch);
    out->wall_compute_us = mode_median_us(job, all, RUN_COMPUTE, scratch);
    out->wall_comm_us = mode_median_us(job, all, RUN_COMM, scratch);
    for (int i = 0; i < point->repeat; i++)
        out->latency_us[i] = latest_us(job, all, main_mode(point), i);
    for (int r = 0; r < point->nranks && point->repeat > 0; r++) {
        struct rank_result *rank = &out->ranks[r];
        rank->compute_us = rank_median(job, all, r, offsetof(struct run_sample, compute_us), scratch);
        rank->exposed_us = rank_median(job, all, r, offsetof(struct run_sample, exposed_us), scratch);
        rank->bubble_us = rank_median(job, all, r, offsetof(struct run_sample, bubble_us), scratch);
        rank->start_skew_us = most_skew_us(job, all, r);
    }
}

/* A step takes from the last rank's end of the step before to the last rank's end of this one. */
static void merge_steps(const struct measure_job *job, const double *all, double *scratch)
{
    size_t steps = (size_t)job->point->problem.steps, repeat = (size_t)job->point->repeat;
    for (size_t step = 0; step < steps && repeat > 0; step++) {
        for (size_t i = 0; i < repeat; i++) {
            double end = 0, before = 0;
            for (size_t r = 0; r < (size_t)job->point->nranks; r++) {
                const double *ends = all + (r * repeat + i) * steps;
                end = fmax(end, ends[step]);
                before = fmax(before, step ? ends[step - 1] : 0);
            }
            scratch[i] = end - before;
        }
        job->out->per_step_us[step] = stats_median(scratch, repeat);
    }
}

static enum status gather_samples(struct measure_job *job, struct rank_setup *setup, struct samples *mine)
{
    const struct point *point = job->point;
    size_t runs = (size_t)(MODES * point->repeat), ends = (size_t)(point->repeat * point->problem.steps);
    size_t ranks = setup->rank.index == 0 ? (size_t)point->nranks : 0;
    struct run_sample *all = calloc(ranks * runs + 1, sizeof *all);
    double *steps = calloc(ranks * ends + 1, sizeof *steps);
    double *scratch = calloc((size_t)point->repeat + 1, sizeof *scratch);
    enum status status = all && steps && scratch ? OK : FAIL(ERR_MEMORY, "no memory for samples");
    status = team_agree(setup->rank.team, status);
    if (status == OK)
        status = team_gather(setup->rank.team, 0, mine->run, runs * sizeof *all, all);
    if (status == OK)
        status = team_gather(setup->rank.team, 0, mine->step_end_us, ends * sizeof *steps, steps);
    if (status == OK && setup->rank.index == 0) {
        merge_samples(job, all, scratch);
        merge_steps(job, steps, scratch);
    }
    free(all);
    free(steps);
    free(scratch);
    return status;
}

static uint64_t process_peak_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

static enum status gather_results(struct measure_job *job, struct rank_setup *setup)
{
    struct rank *rank = &setup->rank;
    setup->result.memory = *rank->ledger;
    setup->result.process_peak_bytes = process_peak_bytes();
    rank->strategy->cost(rank->problem, rank->layout, rank->index, &setup->result.claim);
    if (rank->index == 0)
        job->out->attention = rank->device->attention;
    return team_gather(rank->team, 0, &setup->result, sizeof setup->result, job->out->ranks);
}

static enum status gather_events(struct measure_job *job, struct rank_setup *setup)
{
    struct measurement *out = job->out;
    return job->request->want_trace && job->point->repeat > 0
               ? rank_setup_gather_events(setup, &out->events, &out->event_count,
                                          &out->dropped_events)
               : OK;
}

/* ---- a rank from start to end ---- */

static enum status measure_rank(struct measure_job *job, struct rank_setup *setup, struct samples *samples)
{
    const struct point *point = job->point;
    setup->rank.device->splits_inner = job->request->splits_inner;
    if (job->request->want_output && point->device->memory != MEMORY_VIRTUAL)
        TRY(error_run(job, setup));
    TRY(timed_runs(job, setup, samples));
    TRY(gather_results(job, setup));
    TRY(gather_samples(job, setup, samples));
    return gather_events(job, setup);
}

enum status measure_job_rank(struct team *team, void *context)
{
    struct measure_job *job = context;
    const struct point *point = job->point;
    struct rank_setup *setup = &job->setups[team->rank];
    size_t repeat = (size_t)point->repeat + 1;
    size_t max_events = job->request->want_trace ? MAX_EVENTS : 0;
    if (team->rank == 0)
        job->out->is_oversubscribed = team->is_oversubscribed;
    struct samples samples = {
        .run = calloc(MODES * repeat, sizeof *samples.run),
        .step_end_us = calloc(repeat * (size_t)point->problem.steps, sizeof *samples.step_end_us)};
    enum status status = samples.run && samples.step_end_us
                             ? rank_setup_open(setup, point, team, max_events)
                             : FAIL(ERR_MEMORY, "no memory for samples");
    status = team_agree(team, status);
    if (status == OK)
        status = team_agree(team, measure_rank(job, setup, &samples));
    if (status == OK)
        rank_setup_close(setup); /* after a failure: by the launching thread, once all have left */
    else
        lane_drain(setup->rank.lanes);
    free(samples.run);
    free(samples.step_end_us);
    return status;
}

static enum status prepare(const struct point *point, struct measurement *out)
{
    *out = (struct measurement){.nranks = point->nranks, .repeat = point->repeat,
                                .steps = point->problem.steps, .wall_full_us = NAN,
                                .wall_compute_us = NAN, .wall_comm_us = NAN};
    out->ranks = calloc((size_t)point->nranks, sizeof *out->ranks);
    out->latency_us = calloc((size_t)point->repeat + 1, sizeof *out->latency_us);
    out->per_step_us = calloc((size_t)point->problem.steps, sizeof *out->per_step_us);
    if (!out->ranks || !out->latency_us || !out->per_step_us)
        return FAIL(ERR_MEMORY, "no memory for the results of %d ranks", point->nranks);
    return OK;
}

enum status measure_job_new(const struct point *point, const struct measure_request *request,
                            struct measurement *out, struct measure_job **job)
{
    TRY(prepare(point, out));
    struct measure_job *made = calloc(1, sizeof *made);
    struct rank_setup *setups = calloc((size_t)point->nranks, sizeof *setups);
    if (!made || !setups) {
        free(made);
        free(setups);
        return FAIL(ERR_MEMORY, "no memory for %d ranks", point->nranks);
    }
    *made = (struct measure_job){.point = point, .request = request, .out = out, .setups = setups};
    *job = made;
    return OK;
}

void measure_job_free(struct measure_job *job)
{
    if (!job)
        return;
    for (int r = 0; r < job->point->nranks; r++)
        rank_setup_close(&job->setups[r]);
    free(job->setups);
    free(job);
}

enum status measure_point(const struct point *point, const struct measure_request *request,
                          struct measurement *out)
{
    struct measure_job *job = NULL;
    char *description = NULL;
    TRY(measure_job_new(point, request, out, &job));
    enum status status = OK;
    if (launch_has_begun() && point->nranks > 1)
        status = remote_describe(point, request, &description);
    if (status == OK)
        status = launch_described(point->transport->name, point->nranks, point->timeout_s,
                                  measure_job_rank, job, description);
    free(description);
    measure_job_free(job);
    return status;
}

void measure_free(struct measurement *m)
{
    free(m->ranks);
    free(m->latency_us);
    free(m->per_step_us);
    free(m->x0);
    free(m->trajectory);
    free(m->events);
    *m = (struct measurement){0};
}
