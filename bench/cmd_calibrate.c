/* bench calibrate: a platform file from measurements, of this machine or of others. */
#include "bench/calibrate.h"
#include "bench/cli.h"
#include "bench/emulation.h"
#include "bench/fit.h"
#include "bench/platform_file.h"
#include "bench/point.h"

#include <stdio.h>
#include <string.h>

static const struct option opt_device = {
    .name = "device", .type = OPTION_TEXT, .fallback = "",
    .help = "measure this device of this machine (cpu, ref, cuda)"};
static const struct option opt_tokens = {
    .name = "tokens", .type = OPTION_INT, .fallback = "0", .min = 0, .max = 1 << 20, .unit = "rows",
    .help = "with --device: of the product and the attention; 0: 512 on the host, 4096 on a GPU"};
static const struct option opt_hidden = {
    .name = "hidden", .type = OPTION_INT, .fallback = "0", .min = 0, .max = 1 << 14, .unit = "elements",
    .help = "with --device: of a row, a multiple of 8; 0: 512 on the host, 1152 on a GPU"};
static const struct option opt_from = {
    .name = "from", .type = OPTION_TEXT, .fallback = "",
    .help = "fit to the serial and tp rows of this file: published rows, or records of ditto"};
static const struct option opt_platform = {
    .name = "platform", .type = OPTION_TEXT, .fallback = "",
    .help = "with --from: the platform to start from, a name or a file"};
static const char *const emulations[] = {"none", "legacy-pytorch", NULL};
static const struct option opt_emulate = {
    .name = "emulate", .type = OPTION_CHOICE, .fallback = "none", .choices = emulations,
    .help = "with --from: rows are of the published PyTorch code, copies and all"};
static const struct option opt_output = {
    .name = "output", .type = OPTION_TEXT, .fallback = "",
    .help = "platform file to write; standard output when not given"};
static const struct option *const calibrate_options[] = {
    &opt_device, &point_opt_transport, &point_opt_dtype, &opt_tokens, &opt_hidden, &opt_from, &opt_platform,
    &opt_emulate, &opt_output, NULL};

static enum status write_platform(const struct option_set *o, const struct platform *p, const char *how)
{
    const char *path = option_text(o, &opt_output);
    if (path[0])
        return platform_write(path, p, how);
    cJSON *root = platform_json(p, how);
    char *text = cJSON_Print(root);
    if (text != NULL)
        puts(text);
    cJSON_free(text);
    cJSON_Delete(root);
    return text != NULL ? OK : FAIL(ERR_MEMORY, "no memory for a platform file");
}

static enum status sizes_of(const struct option_set *o, struct calibration *c)
{
    calibrate_sizes(c);
    c->dtype = (enum dtype)option_choice(o, &point_opt_dtype);
    if (option_int(o, &opt_tokens) > 0)
        c->tokens = (size_t)option_int(o, &opt_tokens);
    if (option_int(o, &opt_hidden) > 0)
        c->hidden = (size_t)option_int(o, &opt_hidden);
    return c->hidden % CALIBRATE_HEADS == 0
               ? OK
               : FAIL(ERR_USAGE, "--hidden %zu: rows are split into %d heads; use a multiple of %d", c->hidden,
                      CALIBRATE_HEADS, CALIBRATE_HEADS);
}

static enum status measure(const struct option_set *o)
{
    struct calibration c;
    struct platform p;
    TRY(point_find_device(option_text(o, &opt_device), &c.device));
    if (c.device->memory == MEMORY_VIRTUAL)
        return FAIL(ERR_USAGE, "--device %s: virtual time has nothing to measure; name a real device",
                    c.device->name);
    TRY(point_find_transport(option_text(o, &point_opt_transport), c.device, &c.transport));
    TRY(sizes_of(o, &c));
    TRY(calibrate(&c, &p));
    return write_platform(o, &p, "measured by bench calibrate --device");
}

/* Records of real runs say "host"; they are the platform's. */
static void adopt_rows(struct published *rows, const char *name)
{
    for (size_t i = 0; i < rows->count; i++)
        if (strcmp(rows->rows[i].platform, "host") == 0)
            snprintf(rows->rows[i].platform, sizeof rows->rows[i].platform, "%s", name);
}

static enum status fit_rows(const struct option_set *o, struct published *rows)
{
    struct platform p;
    struct fit_report report;
    char how[200];
    TRY(published_read(option_text(o, &opt_from), rows));
    TRY(platform_load(option_text(o, &opt_platform), &p));
    adopt_rows(rows, p.name);
    TRY(fit_platform(&p, option_choice(o, &opt_emulate) != 0, rows, &report));
    if (report.rows == 0)
        return FAIL(ERR_USAGE, "%s: no serial or tp row of platform %s", option_text(o, &opt_from), p.name);
    snprintf(how, sizeof how, "ceilings fitted on %d serial and tp rows, emulate %s; bus %s", report.rows,
             emulations[option_choice(o, &opt_emulate)],
             report.is_bus_fitted ? "fitted on tp rows at 2048 px and up" : "as the platform had it");
    return write_platform(o, &p, how);
}

static enum status fit(const struct option_set *o)
{
    struct published rows = {.rows = NULL};
    if (!option_text(o, &opt_platform)[0])
        return FAIL(ERR_USAGE, "--from needs a --platform to start from");
    enum status status = fit_rows(o, &rows);
    published_free(&rows);
    return status;
}

static enum status run(const struct cli *cli)
{
    struct option_set options;
    enum status status = cli_options(cli, &options);
    bool measures = status == OK && option_text(&options, &opt_device)[0];
    bool fits = status == OK && option_text(&options, &opt_from)[0];
    if (status == OK && measures == fits)
        status = FAIL(ERR_USAGE, "give either --device NAME or --from FILE");
    if (status == OK)
        status = measures ? measure(&options) : fit(&options);
    option_set_free(&options);
    return status;
}

const struct command command_calibrate = {
    .name = "calibrate",
    .summary = "a platform file for the simulator, measured or fitted",
    .synopsis = "--device NAME | --from FILE --platform NAME [OPTIONS]",
    .description =
        "Writes a platform file for --device sim. With --device, measures this machine: a product, an "
        "attention, memory, and an all-gather between two ranks. (On one GPU the ranks of transport local share it: "
        "the bus is then the GPU's own memory; nccl needs two GPUs.) With --from, fits the shares of the peak "
        "that products and attention reach to the serial and tp rows of a file, and the bandwidth to its "
        "tp rows at 2048 px and up, unless single rows disagree about it. Nothing else is fitted.",
    .examples = "  bench calibrate --device cpu -o mine.json\n"
                "  bench calibrate --device cuda --dtype bf16 -o gpu.json\n"
                "  bench run --platform mine.json --strategy tp --gpus 2\n"
                "  bench calibrate --from results/published/pixart-a100.json --platform a100-pcie "
                "--emulate legacy-pytorch -o a100.json\n",
    .options = calibrate_options,
    .run = run,
};
