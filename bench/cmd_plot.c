/* bench plot: figures from result files, through gnuplot. */
#include "bench/cli.h"
#include "bench/files.h"
#include "bench/plot_figure.h"
#include "bench/plot_gnuplot.h"
#include "common/log.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct option opt_output = {
    .name = "output", .type = OPTION_TEXT, .fallback = "figures",
    .help = "folder for the figures, and for the .dat and .gp file each is remade from"};
static const struct option opt_figure = {
    .name = "figure", .type = OPTION_TEXT, .fallback = "all",
    .help = "which figure to draw, by name; all: every one that the results have points for; timeline: "
            "from a file of bench run --trace"};
static const struct option opt_format = {
    .name = "format", .type = OPTION_TEXT, .fallback = "svg,pdf", .help = "svg, pdf, png, or a list"};
static const char *const pages[] = {"auto", "single", "double", NULL};
static const struct option opt_size = {
    .name = "size", .type = OPTION_CHOICE, .fallback = "auto", .choices = pages,
    .help = "width for a paper: a single column (8.6 cm, panels below each other), both columns "
            "(17.8 cm), or as wide as the panels need"};
static const struct option opt_where = {
    .name = "where", .type = OPTION_TEXT, .fallback = "",
    .help = "only records whose options have these values, as in strategy=tp,resolution=32"};
static const struct option opt_errors = {
    .name = "errors", .type = OPTION_TEXT, .fallback = "",
    .help = "file of real runs: in figure pareto a simulated point has the median error of those with the same "
            "strategy, options, steps and GPUs"};
static const struct option *const plot_options[] = {&opt_output, &opt_figure, &opt_format, &opt_size,
                                                    &opt_where, &opt_errors, NULL};

static bool wants(const struct option_set *options, const char *name)
{
    return strcmp(option_text(options, &opt_figure), name) == 0;
}

static enum status check_formats(const char *formats)
{
    for (const char *p = formats;; p += strcspn(p, ",") + 1) {
        size_t n = strcspn(p, ",");
        if (n != 3 || (strncmp(p, "svg", 3) && strncmp(p, "pdf", 3) && strncmp(p, "png", 3)))
            return FAIL(ERR_USAGE, "--format %.60s: formats are svg, pdf and png", formats);
        if (!p[n])
            return OK;
    }
}

static enum status check_options(const struct option_set *options)
{
    bool known = wants(options, "all") || wants(options, "timeline");
    for (const struct figure *f = plot_figures; f->name; f++)
        known = known || wants(options, f->name);
    if (!known)
        return FAIL(ERR_USAGE, "--figure %.60s: no such figure; bench plot --help lists them",
                    option_text(options, &opt_figure));
    return check_formats(option_text(options, &opt_format));
}

static enum status make_figures(const struct option_set *options, const struct results *results,
                                const struct plot_request *request)
{
    bool any = false;
    for (const struct figure *f = plot_figures; f->name; f++) {
        bool drawn = false;
        if (!wants(options, "all") && !wants(options, f->name))
            continue;
        TRY(plot_figure_make(f, results, request, &drawn));
        if (!drawn)
            log_info("%s: the results have no points for it; left out", f->name);
        any = any || drawn;
    }
    return any ? OK : FAIL(ERR_USAGE, "the results have no points for this figure");
}

static enum status make_folder(const char *folder)
{
    char inside[FILES_PATH];
    TRY(plot_gnuplot_place(folder, "figure", "gp", inside));
    return files_make_parent(inside);
}

static enum status read_errors(const struct option_set *options, struct results *errors)
{
    const char *path = option_text(options, &opt_errors);
    return path[0] ? results_read_all(&path, 1, "", errors) : OK;
}

static enum status draw(const struct cli *cli, const struct option_set *options,
                        struct results *results, struct results *errors)
{
    struct plot_request request = {.folder = option_text(options, &opt_output),
                                         .formats = option_text(options, &opt_format),
                                         .page = option_text(options, &opt_size)};
    TRY(check_options(options));
    if (wants(options, "timeline")) {
        TRY(make_folder(request.folder));
        return plot_timeline_make(cli->operands[0], &request);
    }
    TRY(results_read_all(cli->operands, cli->operand_count, option_text(options, &opt_where), results));
    TRY(read_errors(options, errors));
    request.errors = errors->count > 0 ? errors : NULL;
    TRY(make_folder(request.folder));
    return make_figures(options, results, &request);
}

static enum status run(const struct cli *cli)
{
    struct option_set options = {0};
    struct results results = {0}, errors = {0};
    enum status status = cli_options(cli, &options);
    if (status == OK)
        status = draw(cli, &options, &results, &errors);
    results_free(&errors);
    results_free(&results);
    option_set_free(&options);
    return status;
}

const struct command command_plot = {
    .name = "plot",
    .summary = "figures from result files, through gnuplot",
    .synopsis = "RESULTS.jsonl... [OPTIONS]",
    .description =
        "Draws figures as SVG, PDF and PNG. Figures: error-vs-staleness (error of the image, per mode and "
        "number of ranks), bytes-vs-gpus (sent per rank and step), error-per-step (at the largest "
        "number of ranks), latency-vs-gpus (with the 95% interval of the median), scaling-efficiency "
        "(T(1) / (N T(N))), bytes-by-kind and memory-by-purpose (at the largest number of ranks), pareto "
        "(latency against error, and what no other point beats in both), of video models pair-bytes-vs-gpus, "
        "pair-bytes-vs-frames and latency-vs-frames (a pair is a spatial and a temporal block), timeline (of "
        "one run, from its --trace file).\n"
        "Every strategy has one colour everywhere. Points that differ in seed or class are drawn as "
        "their median with their range. Simulated points are hatched or hollow and named so. Over the number of "
        "ranks, points that were refused or failed are marked x, with the reason. What else is left out, as "
        "latencies of more ranks than cores, is counted beneath the figure, with the reason. The .dat and .gp "
        "files beside a figure remake it.\n"
        "Simulated runs have no image and no error. --errors gives them, in figure pareto, that of real runs of "
        "some other model, and the figure says so.",
    .examples = "  bench plot results/quickstart.jsonl -o figures\n"
                "  bench plot results/quickstart.jsonl --figure error-per-step --where resolution=32\n"
                "  bench plot results/a.jsonl results/b.jsonl --figure pareto --format pdf --size single\n"
                "  bench plot results/gpus/predicted.jsonl --errors results/gpus/errors.jsonl --figure pareto\n"
                "  bench plot --figure timeline trace.json\n",
    .operands_min = 1,
    .operands_max = 64,
    .options = plot_options,
    .run = run,
};
