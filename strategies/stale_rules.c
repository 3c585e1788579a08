/* Options of tp-stale and what follows from them. */
#include "strategies/stale_rules.h"

#include <math.h>

enum { HALVES_BOTH, HALVES_ATTN, HALVES_MLP };
enum { TRANSPORT_ALLREDUCE, TRANSPORT_ALLGATHER };
enum { IN_STEPS, IN_LOGSNR, IN_ANGLE };

const struct option stale_opt_repair = {
    .name = "repair",
    .type = OPTION_INT,
    .fallback = "0",
    .min = 0,
    .max = 1000,
    .help =
        "half blocks after which a stale sum gives way to the fresh one of the same step; 0: never",
    .unit = "halves",
    .is_identity = true};
static const char *const clocks[] = {"steps", "logsnr", "angle", NULL};
const struct option stale_opt_extrapolate_in = {
    .name = "extrapolate-in",
    .type = OPTION_CHOICE,
    .fallback = "steps",
    .choices = clocks,
    .help = "the time in which --extrapolate carries values forward: steps, or one of the "
            "sampler's own",
    .is_identity = true};
const struct option stale_opt_code_bits = {.name = "code-bits",
                                           .type = OPTION_INT,
                                           .fallback = "4",
                                           .min = 2,
                                           .max = 8,
                                           .unit = "bits",
                                           .help = "size of a coded change (--stale-mode coded)",
                                           .is_identity = true};

const struct option stale_opt_own_change = {
    .name = "own-change",
    .type = OPTION_REAL,
    .fallback = "1",
    .min = 0,
    .max = 1024,
    .help = "weight of the own part's fresh change (--stale-mode peers); above 1 it also stands "
            "for the "
            "peers'",
    .is_identity = true};

struct stale_rules stale_rules_of(const struct problem *p)
{
    const struct option_set *o = p->options;
    struct stale_rules rules = {
        .problem = p,
        .mode = (enum stale_mode)option_choice(o, &strategy_opt_stale_mode),
        .staleness = (int)option_int(o, &strategy_opt_staleness),
        .repair = (int)option_int(o, &stale_opt_repair),
        .code_bits = (int)option_int(o, &stale_opt_code_bits),
        .gathers = option_choice(o, &strategy_opt_stale_transport) == TRANSPORT_ALLGATHER,
        .extrapolate = option_real(o, &strategy_opt_extrapolate),
        .own_change = option_real(o, &stale_opt_own_change),
    };
    if (rules.staleness > 0 && rules.mode != STALE_CODED)
        rules.slots = rules.staleness + (rules.extrapolate != 0) + (rules.repair > 0);
    return rules;
}

static enum status check_repair(const struct stale_rules *rules, struct reason *reason)
{
    if (rules->repair > 0 && rules->staleness > 1)
        return strategy_refuse(reason,
                               "--repair brings every sum within its step: --staleness %d has "
                               "nothing to wait for; use 1",
                               rules->staleness);
    if (rules->repair > 0 && rules->gathers)
        return strategy_refuse(reason,
                               "--repair needs --stale-transport allreduce: the sum itself");
    return OK;
}

static enum status check_own_change(const struct stale_rules *rules, struct reason *reason)
{
    if (rules->own_change == 1 || (rules->mode == STALE_PEERS && !rules->gathers))
        return OK;
    return strategy_refuse(reason, "--own-change needs --stale-mode peers and --stale-transport "
                                   "allreduce: only there a rank knows its own part and the sum");
}

static enum status check_coded(const struct stale_rules *rules, struct reason *reason)
{
    if (rules->mode != STALE_CODED)
        return OK;
    if (rules->staleness > 1)
        return strategy_refuse(reason,
                               "--stale-mode coded sends the change since the last step: "
                               "--staleness %d is not possible; use 1",
                               rules->staleness);
    if (rules->repair > 0 || rules->extrapolate != 0)
        return strategy_refuse(reason,
                               "--stale-mode coded has no old sums to repair or extrapolate");
    return OK;
}

enum status stale_rules_check(const struct problem *problem, struct reason *reason)
{
    struct stale_rules rules = stale_rules_of(problem);
    const struct option_setting *blocks =
        option_setting(problem->options, &strategy_opt_stale_blocks);
    TRY(strategy_check_staleness(problem, reason));
    if (rules.mode != STALE_PEERS && rules.gathers)
        return strategy_refuse(reason,
                               "--stale-transport allgather needs --stale-mode peers: in the "
                               "other modes every rank uses the one sum");
    if (blocks->value.range.first >= problem->shape->blocks)
        return strategy_refuse(reason, "--stale-blocks starts at %d but the model has blocks 0-%d",
                               blocks->value.range.first, problem->shape->blocks - 1);
    TRY(check_repair(&rules, reason));
    TRY(check_own_change(&rules, reason));
    return check_coded(&rules, reason);
}

bool stale_rules_step_is_stale(const struct stale_rules *rules, int64_t step)
{
    return strategy_step_is_stale(&strategy_tp_stale, rules->problem, step);
}

bool stale_rules_may(const struct stale_rules *rules, int block, enum dit_half half)
{
    const struct problem *p = rules->problem;
    int halves = option_choice(p->options, &strategy_opt_stale_halves);
    const struct option_setting *blocks = option_setting(p->options, &strategy_opt_stale_blocks);
    bool is_chosen = halves == HALVES_BOTH || (halves == HALVES_ATTN) == (half == DIT_ATTN);
    bool is_last = block == p->shape->blocks - 1 && half == DIT_MLP;
    return rules->staleness > 0 && is_chosen && block >= blocks->value.range.first &&
           block <= blocks->value.range.last && !(rules->repair > 0 && is_last);
}

bool stale_rules_is_read(const struct stale_rules *rules, int step)
{
    if (rules->staleness == 0)
        return false;
    return (rules->repair > 0 && stale_rules_step_is_stale(rules, step)) ||
           stale_rules_step_is_stale(rules, step + rules->staleness) ||
           (rules->extrapolate != 0 &&
            stale_rules_step_is_stale(rules, step + rules->staleness + 1));
}

/* When a step is, in the chosen time. The sampler's own: half the logarithm of the signal-to-noise
 * ratio, in which solvers of diffusion ODEs take their steps (DPM-Solver, arXiv:2206.00927), or the
 * angle between noise and image, cos^2 = alpha (arXiv:2202.00512, section 4). */
static double time_of(const struct problem *p, int step)
{
    double alpha = model_alpha(model_timestep(step, p->steps));
    switch (option_choice(p->options, &stale_opt_extrapolate_in)) {
    case IN_LOGSNR:
        return 0.5 * log(alpha / (1 - alpha));
    case IN_ANGLE:
        return acos(sqrt(alpha));
    default:
        return step;
    }
}

double stale_rules_share(const struct stale_rules *rules, int step)
{
    const struct problem *p = rules->problem;
    int old = step - rules->staleness;
    if (rules->extrapolate == 0 || old < 1)
        return 0;
    double ahead = time_of(p, step) - time_of(p, old);
    return rules->extrapolate * ahead / (time_of(p, old) - time_of(p, old - 1));
}
