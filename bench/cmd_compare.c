/* bench compare: two result files, or two builds run in turn. */
#include "bench/cli.h"
#include "bench/compare.h"
#include "bench/compare_runs.h"
#include "bench/compare_table.h"

#include <string.h>

static const struct option opt_fail_on = {
    .name = "fail-on", .type = OPTION_TEXT,
    .fallback = "latency=10%,simulated=0,bytes=0,memory=0,error=5%",
    .help = "exit 1 where NEW is worse by more than this; latency, simulated (latency of device sim), "
            "bytes, memory and error in per cent, missing in points that are ok in BASE only; none: "
            "report, exit 0"};
static const struct option opt_noise = {
    .name = "noise", .type = OPTION_REAL, .fallback = "2", .min = 0, .max = 1000, .unit = "per cent",
    .help = "measured latencies this near to each other are the same"};
static const struct option opt_run = {
    .name = "run", .type = OPTION_FLAG, .fallback = "",
    .help = "the operands are two programs; after -- follow the options of bench run"};
static const struct option opt_samples = {
    .name = "samples", .type = OPTION_INT, .fallback = "15", .min = 1, .max = 10000, .unit = "runs",
    .help = "with --run: how often each program is run; each run gives one sample"};
static const char *const statistics[] = {"median", "min", NULL};
static const struct option opt_statistic = {
    .name = "statistic", .type = OPTION_CHOICE, .fallback = "median", .choices = statistics,
    .help = "with --run, or several records of a point: which latency of a run is its sample; min is the "
            "least disturbed one, for a busy machine"};
static const struct option *const compare_options[] = {&opt_fail_on, &opt_noise, &opt_run, &opt_samples,
                                                       &opt_statistic, NULL};

static enum status read_files(const struct cli *cli, struct results sides[2])
{
    if (cli->operand_count != 2)
        return FAIL(ERR_USAGE, "unexpected \"%s\"; usage: bench compare %s", cli->operands[2],
                    cli->command->synopsis);
    for (int i = 0; i < 2; i++)
        TRY(results_read(cli->operands[i], &sides[i]));
    return OK;
}

static enum status get_sides(const struct cli *cli, const struct option_set *options,
                             struct results sides[2])
{
    if (!option_setting(options, &opt_run)->value.flag)
        return read_files(cli, sides);
    return compare_runs(cli->operands, cli->operands + 2, cli->operand_count - 2,
                        (int)option_int(options, &opt_samples), sides);
}

static enum status judge(const struct cli *cli, const struct comparison *comparison,
                         const struct compare_limits *limits, const char *fail_on)
{
    if (comparison->joined == 0 && comparison->lost == 0)
        return FAIL(ERR_USAGE, "%s and %s have no point in common", cli->operands[0], cli->operands[1]);
    compare_table_print(stdout, comparison, cli->operands[0], cli->operands[1]);
    if (compare_passes(comparison, limits))
        return OK;
    return FAIL(ERR_MISMATCH, "%s is worse: %zu points over a limit, %zu lost (--fail-on %s)",
                cli->operands[1], comparison->regressed, comparison->lost, fail_on);
}

static enum status compare_all(const struct cli *cli, const struct option_set *options,
                               struct results sides[2], struct comparison *comparison)
{
    struct compare_limits limits = {.noise = option_real(options, &opt_noise) / 100.0,
                                    .by_min = option_choice(options, &opt_statistic) == 1};
    TRY(compare_parse_limits(option_text(options, &opt_fail_on), &limits));
    TRY(get_sides(cli, options, sides));
    TRY(compare_results(&sides[0], &sides[1], &limits, comparison));
    return judge(cli, comparison, &limits, option_text(options, &opt_fail_on));
}

static enum status run(const struct cli *cli)
{
    struct option_set options = {0};
    struct results sides[2] = {{0}, {0}};
    struct comparison comparison = {0};
    enum status status = cli_options(cli, &options);
    if (status == OK)
        status = compare_all(cli, &options, sides, &comparison);
    compare_free(&comparison);
    results_free(&sides[0]);
    results_free(&sides[1]);
    option_set_free(&options);
    return status;
}

const struct command command_compare = {
    .name = "compare",
    .summary = "what became slower, larger or less exact between two result files or builds",
    .synopsis = "BASE.jsonl NEW.jsonl [OPTIONS] | --run BASE NEW [OPTIONS] -- POINT-OPTIONS",
    .description =
        "Joins the points of two result files by case_id and prints a row for each: the time of NEW as "
        "a ratio to that of BASE with its 95% interval, and how bytes sent, memory and output error "
        "changed. Points that appear, vanish or begin to fail are listed.\n"
        "Bytes, memory and simulated time are exact: any difference is one. Measured latency differs "
        "when Mann and Whitney's U test, corrected by Holm for the number of points, says so (9 samples "
        "on both sides; from 6 on, the 95% intervals of the medians must lie apart), and by more than "
        "--noise. Latencies of more ranks than cores are not judged. Errors within 5 x the noise floor "
        "on both sides are equal.\n"
        "With --run, two builds of bench run one point in turn, so that drift of the machine hits both "
        "alike; each run is one sample. A job for continuous integration: docs/ci.md.",
    .examples = "  bench compare results/before.jsonl results/after.jsonl\n"
                "  bench compare results/ci-baseline.jsonl new.jsonl --fail-on bytes=0,memory=0,missing=0\n"
                "  bench compare --run old/bench new/bench -- --strategy tp --gpus 2 --reference none\n",
    .operands_min = 2,
    .operands_max = 1000,
    .options = compare_options,
    .run = run,
};
