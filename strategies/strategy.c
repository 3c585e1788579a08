/* The one list of strategies, the options that several of them share, and what is common to all. */
#include "strategies/strategy.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>



static const struct strategy *const strategies[] = {
    &strategy_serial,
    &strategy_tp,
    &strategy_tp_sp,
    &strategy_tp_stale,
    &strategy_distrifusion,
    &strategy_pipefusion,
    &strategy_ulysses,
    &strategy_ring,
    &strategy_usp,
    &strategy_tsp,
    &strategy_dsp,
    NULL,
};

const struct option strategy_opt_warmup_steps = {
    .name = "warmup-steps", .type = OPTION_INT, .fallback = "1", .min = 0, .max = 1000,
    .help = "synchronous steps before stale ones begin", .unit = "steps", .is_identity = true};
const struct option strategy_opt_staleness = {
    .name = "staleness", .type = OPTION_INT, .fallback = "1", .min = 0, .max = 1000,
    .help = "age of the values that stale steps use; 0 makes every step synchronous",
    .unit = "steps", .is_identity = true};
const struct option strategy_opt_refresh = {
    .name = "refresh", .type = OPTION_INT, .fallback = "0", .min = 0, .max = 1000,
    .help = "every so many steps after the warm-up one is synchronous; 0: none", .unit = "steps",
    .is_identity = true};
static const char *const stale_modes[] = {"all", "peers", "coded", NULL};
const struct option strategy_opt_stale_mode = {
    .name = "stale-mode", .type = OPTION_CHOICE, .fallback = "all", .choices = stale_modes,
    .help = "what is old: everybody's partial sums, only those of the other ranks, or all but coded changes",
    .is_identity = true};
static const char *const stale_transports[] = {"allreduce", "allgather", NULL};
const struct option strategy_opt_stale_transport = {
    .name = "stale-transport", .type = OPTION_CHOICE, .fallback = "allreduce",
    .choices = stale_transports,
    .help = "send one reduction, or every rank's partial sum (peers only)", .is_identity = true};
static const char *const stale_halves[] = {"both", "attn", "mlp", NULL};
const struct option strategy_opt_stale_halves = {
    .name = "stale-halves", .type = OPTION_CHOICE, .fallback = "both", .choices = stale_halves,
    .help = "which half of a block may be stale; the other stays synchronous", .is_identity = true};
const struct option strategy_opt_stale_blocks = {
    .name = "stale-blocks", .type = OPTION_RANGE, .fallback = "all", .min = 0, .max = INT_MAX,
    .help = "blocks that may be stale, inclusive, from 0; the others stay synchronous",
    .is_identity = true};
const struct option strategy_opt_extrapolate = {
    .name = "extrapolate", .type = OPTION_REAL, .fallback = "0", .min = -10, .max = 10,
    .help = "carry a stale value forward by this share of its last change per step",
    .is_identity = true};
const struct option strategy_opt_patches = {
    .name = "patches", .type = OPTION_INT, .fallback = "8", .min = 1, .max = 1 << 20,
    .help = "token chunks that flow through the pipeline; never a function of the ranks",
    .is_identity = true};
const struct option strategy_opt_ulysses_degree = {
    .name = "ulysses-degree", .type = OPTION_INT, .fallback = "", .min = 1, .max = COMM_MAX_RANKS,
    .help = "ranks that exchange heads; the ring spans the rest (default: the largest that divides "
            "the ranks and the heads)",
    .is_identity = true};

const struct strategy *const *strategy_list(void)
{
    return strategies;
}

const struct strategy *strategy_find(const char *name)
{
    for (const struct strategy *const *s = strategies; *s; s++)
        if (strcmp((*s)->name, name) == 0)
            return *s;
    return NULL;
}

enum status strategy_refuse(struct reason *reason, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(reason->text, sizeof reason->text, format, args);
    va_end(args);
    return FAIL(ERR_UNSUPPORTED, "%s", reason->text);
}

static enum status check_kind(const struct strategy *s, const struct problem *p, struct reason *why)
{
    bool is_video = p->shape->kind == MODEL_VIDEO;
    if (is_video && !s->runs_video)
        return strategy_refuse(why, "%s runs image models only; this model is a video model", s->name);
    if (!is_video && !s->runs_image)
        return strategy_refuse(why, "%s runs video models only; this model is an image model", s->name);
    return OK;
}

enum status strategy_check(const struct strategy *strategy, const struct problem *problem, int nranks,
                           struct layout *layout, struct reason *reason)
{
    if (nranks % problem->cfg_degree)
        return strategy_refuse(reason, "--cfg-degree %d does not divide %d ranks", problem->cfg_degree,
                               nranks);
    for (int axis = 0; axis < AXES; axis++)
        layout->degree[axis] = 1;
    layout->nranks = nranks;
    layout->degree[AXIS_CFG] = problem->cfg_degree;
    TRY(check_kind(strategy, problem, reason));
    strategy->shape_layout(problem, nranks / problem->cfg_degree, layout);
    return strategy->check ? strategy->check(problem, layout, reason) : OK;
}

/* What the user gave, if the strategy has a use for it. */
static int64_t int_used(const struct strategy *strategy, const struct problem *problem,
                        const struct option *option, int64_t unused)
{
    for (const struct option *const *o = strategy->options; o && *o; o++)
        if (*o == option)
            return option_int(problem->options, option);
    return unused;
}

bool strategy_step_is_sync(const struct strategy *strategy, const struct problem *problem, int step)
{
    int64_t warmup = int_used(strategy, problem, &strategy_opt_warmup_steps, 0);
    int64_t refresh = int_used(strategy, problem, &strategy_opt_refresh, 0);
    if (strategy->freshness == FRESH || step < warmup)
        return true;
    if (int_used(strategy, problem, &strategy_opt_staleness, 1) == 0)
        return true;
    return refresh > 0 && (step - warmup) % refresh == refresh - 1;
}

bool strategy_step_is_stale(const struct strategy *strategy, const struct problem *problem,
                            int64_t step)
{
    return step >= 0 && step < problem->steps &&
           !strategy_step_is_sync(strategy, problem, (int)step);
}

enum status strategy_check_staleness(const struct problem *problem, struct reason *reason)
{
    long long warmup = option_int(problem->options, &strategy_opt_warmup_steps);
    long long staleness = option_int(problem->options, &strategy_opt_staleness);
    if (warmup < staleness)
        return strategy_refuse(reason,
                               "--staleness %lld needs at least as many --warmup-steps (%lld given): "
                               "the values of that many earlier steps must exist",
                               staleness, warmup);
    return OK;
}
