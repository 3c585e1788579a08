/* bench plot: figures from result files, through gnuplot. */
#include "bench/cli.h"
#include "bench/files.h"
#include "bench/plot_data.h"
#include "bench/plot_gnuplot.h"
#include "common/log.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct option opt_output = {
    .name = "output", .type = OPTION_TEXT, .fallback = "figures",
    .help = "folder for the figures, and for the .dat and .gp file each is remade from"};
static const struct option opt_figure = {
    .name = "figure", .type = OPTION_TEXT, .fallback = "all",
    .help = "which figure to draw, by name; all: every one that the results have points for"};
static const struct option opt_format = {
    .name = "format", .type = OPTION_TEXT, .fallback = "svg,pdf", .help = "svg, pdf, png, or a list"};
static const struct option opt_where = {
    .name = "where", .type = OPTION_TEXT, .fallback = "",
    .help = "only records whose options have these values, as in strategy=tp,resolution=32"};
static const struct option *const plot_options[] = {&opt_output, &opt_figure, &opt_format, &opt_where,
                                                    NULL};

/* ---- filtering ---- */

static bool has_value(const cJSON *record, const char *key, const char *wanted)
{
    char path[80], text[40];
    snprintf(path, sizeof path, "config.%.60s", key);
    for (char *p = path; *p; p++)
        if (*p == '-')
            *p = '_';
    const cJSON *value = json_at(record, path);
    if (cJSON_IsNumber(value)) {
        snprintf(text, sizeof text, "%.17g", value->valuedouble);
        return strcmp(text, wanted) == 0;
    }
    return cJSON_IsString(value) && strcmp(value->valuestring, wanted) == 0;
}

static enum status filter(struct results *results, const char *where)
{
    char *copy = strdup(where), *rest = copy, *word;
    if (!copy)
        return FAIL(ERR_MEMORY, "--where: no memory");
    enum status status = OK;
    while (*where && status == OK && (word = strsep(&rest, ",")) != NULL) {
        char *equals = strchr(word, '=');
        if (!equals) {
            status = FAIL(ERR_USAGE, "--where %s: \"%s\" is no option=value", where, word);
            break;
        }
        *equals = '\0';
        size_t kept = 0;
        for (size_t i = 0; i < results->count; i++) {
            if (has_value(results->records[i], word, equals + 1))
                results->records[kept++] = results->records[i];
            else
                cJSON_Delete(results->records[i]);
        }
        results->count = kept;
    }
    free(copy);
    return status;
}

static enum status read_results(const struct cli *cli, const char *where, struct results *out)
{
    *out = (struct results){0};
    for (size_t i = 0; i < cli->operand_count; i++) {
        struct results more;
        enum status status = results_read(cli->operands[i], &more);
        cJSON **grown = status == OK ? realloc(out->records, (out->count + more.count + 1) *
                                                                 sizeof *grown)
                                     : NULL;
        if (!grown) {
            results_free(&more);
            return status != OK ? status : FAIL(ERR_MEMORY, "no memory for the records");
        }
        out->records = grown;
        if (more.count > 0)
            memcpy(grown + out->count, more.records, more.count * sizeof *grown);
        out->count += more.count;
        free(more.records);
    }
    results_drop_superseded(out);
    TRY(filter(out, where));
    if (out->count == 0)
        return FAIL(ERR_USAGE, "%s: no records%s", cli->operands[0], *where ? " match --where" : "");
    return OK;
}

/* ---- figures ---- */

static enum status fill_script(FILE *out, const struct figure *figure, const struct plot_data *data)
{
    fprintf(out, "# Remake with: gnuplot -e \"format='pdf'\" %s.gp\nname = '%s'\ndata = '%s.dat'\n",
            figure->name, figure->name, figure->name);
    plot_data_write_variables(out, data);
    TRY(plot_gnuplot_append(out, "style"));
    return plot_gnuplot_append(out, figure->name);
}

static enum status write_script(const struct figure *figure, const struct plot_data *data,
                                const char *path)
{
    struct files_output file;
    TRY(files_create(path, &file));
    enum status status = fill_script(file.stream, figure, data);
    if (status == OK)
        return files_commit(&file);
    files_discard(&file);
    return status;
}

static enum status write_data(const struct plot_data *data, const char *path)
{
    struct files_output file;
    TRY(files_create(path, &file));
    plot_data_write(file.stream, data);
    return files_commit(&file);
}

static enum status draw_formats(const char *folder, const char *name, const char *formats)
{
    char *copy = strdup(formats), *rest = copy, *format;
    if (!copy)
        return FAIL(ERR_MEMORY, "--format: no memory");
    enum status status = OK;
    while (status == OK && (format = strsep(&rest, ",")) != NULL)
        status = plot_gnuplot_draw(folder, name, format);
    free(copy);
    return status;
}

static enum status make_figure(const struct figure *figure, const struct results *results,
                               const struct option_set *options, bool *drawn)
{
    const char *folder = option_text(options, &opt_output);
    char script[FILES_PATH], dat[FILES_PATH];
    struct plot_data data;
    enum status status = plot_data_collect(figure, results, &data);
    *drawn = data.count > 0;
    if (status == OK && data.count > 0) {
        status = plot_gnuplot_place(folder, figure->name, "dat", dat);
        if (status == OK)
            status = plot_gnuplot_place(folder, figure->name, "gp", script);
        if (status == OK)
            status = write_data(&data, dat);
        if (status == OK)
            status = write_script(figure, &data, script);
        if (status == OK)
            status = draw_formats(folder, figure->name, option_text(options, &opt_format));
    }
    plot_data_free(&data);
    return status;
}

static enum status check_options(const struct option_set *options)
{
    const char *wanted = option_text(options, &opt_figure), *formats = option_text(options, &opt_format);
    bool known = strcmp(wanted, "all") == 0;
    for (const struct figure *f = plot_figures; f->name; f++)
        known = known || strcmp(wanted, f->name) == 0;
    if (!known)
        return FAIL(ERR_USAGE, "--figure %.60s: no such figure; bench plot --help lists them", wanted);
    for (const char *p = formats; ; p += strcspn(p, ",") + 1) {
        size_t n = strcspn(p, ",");
        if (n != 3 || (strncmp(p, "svg", 3) && strncmp(p, "pdf", 3) && strncmp(p, "png", 3)))
            return FAIL(ERR_USAGE, "--format %.60s: formats are svg, pdf and png", formats);
        if (!p[n])
            return OK;
    }
}

static enum status make_figures(const struct option_set *options, const struct results *results)
{
    const char *wanted = option_text(options, &opt_figure);
    bool is_all = strcmp(wanted, "all") == 0, any = false;
    char inside[FILES_PATH];
    TRY(plot_gnuplot_place(option_text(options, &opt_output), "figure", "gp", inside));
    TRY(files_make_parent(inside));
    for (const struct figure *f = plot_figures; f->name; f++) {
        bool drawn = false;
        if (!is_all && strcmp(wanted, f->name) != 0)
            continue;
        TRY(make_figure(f, results, options, &drawn));
        if (!drawn)
            log_info("%s: the results have no points for it; left out", f->name);
        any = any || drawn;
    }
    return any ? OK : FAIL(ERR_USAGE, "the results have no points for this figure");
}

static enum status run(const struct cli *cli)
{
    struct option_set options = {0};
    struct results results = {0};
    enum status status = cli_options(cli, &options);
    if (status == OK)
        status = check_options(&options);
    if (status == OK)
        status = read_results(cli, option_text(&options, &opt_where), &results);
    if (status == OK)
        status = make_figures(&options, &results);
    results_free(&results);
    option_set_free(&options);
    return status;
}

const struct command command_plot = {
    .name = "plot",
    .summary = "figures from result files, through gnuplot",
    .synopsis = "RESULTS.jsonl... [OPTIONS]",
    .description =
        "Draws figures as SVG and PDF. Figures: error-vs-staleness (error of the image, per mode and "
        "number of ranks), bytes-vs-gpus (sent per rank and step), error-per-step (at the largest "
        "number of ranks), latency-vs-gpus (with the 95% interval of the median). Every strategy has "
        "one colour everywhere. Points that differ in seed or class are drawn as their median with "
        "their range. Latencies of more ranks than cores, and points that failed, are left out, and "
        "the figure says so. The .dat and .gp files beside a figure remake it.",
    .examples = "  bench plot results/quickstart.jsonl -o figures\n"
                "  bench plot results/quickstart.jsonl --figure error-per-step --where resolution=32\n",
    .operands_min = 1,
    .operands_max = 64,
    .options = plot_options,
    .run = run,
};
