/* bench validate: the simulator against published measurements. */
#include "bench/cli.h"
#include "bench/platform_file.h"
#include "bench/plot_gnuplot.h"
#include "bench/validate.h"
#include "strategies/strategy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct option opt_platform = {
    .name = "platform", .type = OPTION_TEXT, .fallback = "",
    .help = "name or file of the platform of rows whose own platform neither FILE describes nor ditto has"};
static const struct option opt_output = {
    .name = "output", .type = OPTION_TEXT, .fallback = "",
    .help = "folder for the figure, and for the .dat and .gp file it is remade from"};
static const struct option opt_format = {
    .name = "format", .type = OPTION_TEXT, .fallback = "svg", .help = "svg, pdf or png"};
static const struct option *const validate_options[] = {&opt_platform, &opt_output, &opt_format, NULL};

struct job {
    struct option_set options;
    struct published published;
    struct validate_row *rows; /* as published */
};

/* ---- platforms ---- */

static bool is_shipped(const char *name)
{
    for (const char *const *n = platform_names(); *n != NULL; n++)
        if (strcmp(*n, name) == 0)
            return true;
    return false;
}

static enum status find_platform(const struct job *job, const char *name, struct platform *out)
{
    const char *given = option_text(&job->options, &opt_platform);
    for (size_t i = 0; i < job->published.platform_count; i++)
        if (strcmp(job->published.platforms[i].name, name) == 0) {
            *out = job->published.platforms[i];
            return OK;
        }
    if (given[0]) {
        TRY(platform_load(given, out));
        if (strcmp(out->name, name) == 0)
            return OK;
    }
    if (is_shipped(name))
        return platform_load(name, out);
    if (!given[0])
        return FAIL(ERR_USAGE, "platform %s: neither described by the file nor shipped; give --platform",
                    name);
    snprintf(out->name, sizeof out->name, "%s", name);
    return OK;
}

static void print_bus(const struct platform *p, const struct fit_report *r)
{
    printf("bus %.1f GB/s", p->node.bus * 1e-9);
    if (r->is_bus_fitted)
        printf(" (fitted on %d tp rows, which alone imply %.1f to %.1f)\n", r->bus_rows,
               r->least_bus * 1e-9, r->most_bus * 1e-9);
    else if (r->bus_rows > 0)
        printf(" (the platform's: single tp rows imply %.1f to %.1f, so it is not bandwidth)\n",
               r->least_bus * 1e-9, r->most_bus * 1e-9);
    else
        printf(" (the platform's: no tp row to fit it on)\n");
}

static void print_calibration(const struct validate_platform *v)
{
    const struct platform *p = &v->emulated;
    printf("%s: calibrated on %d serial and tp rows: products reach %.3f of the peak, attention %.3f, ",
           p->name, v->emulated_fit.rows, p->gpu.gemm_ceiling, p->gpu.attention_ceiling);
    print_bus(p, &v->emulated_fit);
}

/* ---- the table ---- */

static const char *const use_text[] = {
    [VALIDATE_JUDGED] = "", [VALIDATE_FITTED] = "fitted", [VALIDATE_APART] = "apart",
    [VALIDATE_EXCLUDED] = "excluded", [VALIDATE_FAILED] = "no prediction"};

/* Those that are the strategy's own; the others are the same for all rows as a rule. */
static void print_settings(const struct published_row *row)
{
    const struct strategy *strategy = strategy_find(row->strategy);
    for (int i = 0; i < row->setting_count; i++)
        for (const struct option *const *o = strategy ? strategy->options : NULL; o && *o; o++)
            if (strcmp((*o)->name, row->settings[i].name) == 0)
                printf(" %s=%s", row->settings[i].name, row->settings[i].text);
}

static void print_note(const struct validate_row *r)
{
    const struct published_row *row = r->row;
    printf("  %s", use_text[r->use]);
    if (row->exclude[0] || row->apart[0])
        printf(": %s", row->exclude[0] ? row->exclude : row->apart);
    print_settings(row);
    if (r->emulated.patches > 0)
        printf(" best of 2 to 32: M=%d", r->emulated.patches);
    if (r->suspect[0])
        printf(" [published figure: %s]", r->suspect);
    if (r->use == VALIDATE_FAILED)
        printf(": %s", r->emulated.reason);
    putchar('\n');
}

static void print_rows(const struct job *job, const char *platform)
{
    printf("%-14s %5s %6s %11s %11s %7s %15s\n", "strategy", "gpus", "px", "published s", "predicted s",
           "ratio", "without copies");
    for (size_t i = 0; i < job->published.count; i++) {
        const struct validate_row *r = &job->rows[i];
        const struct published_row *row = &job->published.rows[i];
        if (strcmp(row->platform, platform) != 0)
            continue;
        printf("%-14s %5d %6g %11.4g ", row->strategy, row->gpus, row->resolution, row->seconds);
        if (r->use == VALIDATE_FAILED)
            printf("%11s %7s %15s", "-", "-", "-");
        else
            printf("%11.4g %7.3f %15.3f", r->emulated.seconds, r->emulated.seconds / row->seconds,
                   r->own.seconds / row->seconds);
        print_note(r);
    }
    putchar('\n');
}

static void print_score(const char *what, const struct validate_score *s)
{
    printf("%s: %d rows at %d px and up", what, s->rows, FIT_FROM_RESOLUTION);
    if (s->rows > 0)
        printf(": median |ratio-1| %.1f%%", 100 * s->median_off);
    if (s->other_rows > 0)
        printf(", without pipefusion (%d rows) %.1f%%", s->other_rows, 100 * s->median_off_other);
    if (s->rows > 0)
        printf("; worst factor %.2f", s->worst);
    if (s->pairs > 0)
        printf("; %d of %d pairs in the published order (%.0f%%)", s->pairs_in_order, s->pairs,
               100.0 * s->pairs_in_order / s->pairs);
    putchar('\n');
}

/* ---- the figure ---- */

static enum status write_data(const struct job *job, const char *path)
{
    struct files_output file;
    TRY(files_create(path, &file));
    for (int use = VALIDATE_JUDGED; use <= VALIDATE_APART; use++) {
        fprintf(file.stream, "# %s: strategy platform gpus px published_s predicted_s\n",
                use == VALIDATE_JUDGED ? "judged" : use_text[use]);
        for (size_t i = 0; i < job->published.count; i++) {
            const struct validate_row *r = &job->rows[i];
            if (r->use == (enum validate_use)use)
                fprintf(file.stream, "%s %s %d %g %.6g %.6g\n", r->row->strategy, r->row->platform,
                        r->row->gpus, r->row->resolution, r->row->seconds, r->emulated.seconds);
        }
        fprintf(file.stream, "\n\n");
    }
    return files_commit(&file);
}

static enum status write_script(const char *path)
{
    struct files_output file;
    TRY(files_create(path, &file));
    fprintf(file.stream,
            "# Remake with: gnuplot -e \"format='pdf'\" validate.gp\nname = 'validate'\ndata = "
            "'validate.dat'\nnote = 'emulated copies of the published code; judged from %d px'\nnote_lines = 1\n"
            "array panel_title[1] = ['Published against predicted']\narray panel_first[1] = [0]\n"
            "array panel_last[1] = [9]\n",
            FIT_FROM_RESOLUTION);
    enum status status = plot_gnuplot_append(file.stream, "style");
    if (status == OK)
        status = plot_gnuplot_append(file.stream, "validate");
    if (status == OK)
        return files_commit(&file);
    files_discard(&file);
    return status;
}

static enum status draw(const struct job *job)
{
    char dat[FILES_PATH], script[FILES_PATH];
    const char *folder = option_text(&job->options, &opt_output);
    if (!folder[0])
        return OK;
    TRY(plot_gnuplot_place(folder, "validate", "dat", dat));
    TRY(plot_gnuplot_place(folder, "validate", "gp", script));
    TRY(files_make_parent(dat));
    TRY(write_data(job, dat));
    TRY(write_script(script));
    const char *format = option_text(&job->options, &opt_format);
    TRY(plot_gnuplot_draw(folder, "validate", format));
    printf("%s/validate.%s\n", folder, format);
    return OK;
}

/* ---- the command ---- */

static bool is_first_of_platform(const struct published *p, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (strcmp(p->rows[j].platform, p->rows[i].platform) == 0)
            return false;
    return true;
}

static enum status validate_one(struct job *job, const char *name)
{
    struct platform platform;
    struct validate_platform calibrated;
    TRY(find_platform(job, name, &platform));
    TRY(validate_calibrate(&platform, &job->published, &calibrated));
    for (size_t i = 0; i < job->published.count; i++)
        if (strcmp(job->published.rows[i].platform, name) == 0)
            TRY(validate_predict(&calibrated, &job->published, &job->published.rows[i], &job->rows[i]));
    print_calibration(&calibrated);
    print_rows(job, name);
    return OK;
}

static enum status validate_all(struct job *job, const char *path)
{
    TRY(published_read(path, &job->published));
    job->rows = calloc(job->published.count, sizeof *job->rows);
    if (job->rows == NULL)
        return FAIL(ERR_MEMORY, "%s: no memory for %zu rows", path, job->published.count);
    for (size_t i = 0; i < job->published.count; i++)
        if (is_first_of_platform(&job->published, i))
            TRY(validate_one(job, job->published.rows[i].platform));
    struct validate_score with = validate_score(job->rows, job->published.count, true);
    struct validate_score without = validate_score(job->rows, job->published.count, false);
    print_score("with the published code's copies (legacy-pytorch)", &with);
    print_score("without them", &without);
    return draw(job);
}

static enum status run(const struct cli *cli)
{
    struct job job = {.rows = NULL};
    enum status status = cli_options(cli, &job.options);
    if (status == OK)
        status = validate_all(&job, cli->operands[0]);
    free(job.rows);
    published_free(&job.published);
    option_set_free(&job.options);
    return status;
}

const struct command command_validate = {
    .name = "validate",
    .summary = "the simulator against published measurements",
    .synopsis = "ROWS.json [OPTIONS]",
    .description =
        "Calibrates each platform on its serial and tp rows alone (the shares of the peak that products "
        "and attention reach; bandwidth from tp rows at 2048 px and up), predicts every row, and prints "
        "published and predicted seconds, their ratio, and how well strategies come out in the "
        "published order. Rows below 2048 px and rows marked apart or exclude are listed but not "
        "judged. Predictions include the copies and framework operations of the published PyTorch code; "
        "the last column leaves them out. Rules and results: docs/simulator.md.",
    .examples = "  bench validate results/published/published.json -o figures\n"
                "  bench validate rows.json --platform mybox.json\n",
    .operands_min = 1,
    .operands_max = 1,
    .options = validate_options,
    .run = run,
};
