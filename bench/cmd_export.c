/* bench export: result files for spreadsheets, programs and papers. */
#include "bench/cli.h"
#include "bench/export.h"
#include "bench/files.h"

#include <stdbool.h>

static const struct option opt_output = {
    .name = "output", .type = OPTION_TEXT, .fallback = "",
    .help = "file to write; standard output when not given"};
static const struct option opt_csv = {
    .name = "csv", .type = OPTION_FLAG, .fallback = "",
    .help = "a line a record with everything that is one value; columns are named by path, as "
            "latency_us.median"};
static const struct option opt_json = {
    .name = "json", .type = OPTION_FLAG, .fallback = "", .help = "one JSON list of the records"};
static const struct option opt_latex = {
    .name = "latex", .type = OPTION_FLAG, .fallback = "",
    .help = "a table for \\usepackage{booktabs}; what differs in seed or class only is one row, the median "
            "with its range"};
static const struct option *const export_options[] = {&opt_output, &opt_csv, &opt_json, &opt_latex, NULL};

static const struct {
    const struct option *option;
    enum status (*write)(FILE *, const struct results *);
} formats[] = {{&opt_csv, export_csv}, {&opt_json, export_json}, {&opt_latex, export_latex}};
enum { FORMATS = sizeof formats / sizeof *formats };

static enum status choose_format(const struct option_set *options, size_t *out)
{
    size_t chosen = 0;
    for (size_t i = 0; i < FORMATS; i++)
        if (option_setting(options, formats[i].option)->value.flag) {
            *out = i;
            chosen++;
        }
    return chosen == 1 ? OK : FAIL(ERR_USAGE, "choose one of --csv, --json and --latex");
}

static enum status write_results(const struct option_set *options, size_t format,
                                 const struct results *results)
{
    const char *path = option_text(options, &opt_output);
    if (!*path)
        return formats[format].write(stdout, results);
    struct files_output file;
    TRY(files_create(path, &file));
    enum status status = formats[format].write(file.stream, results);
    if (status == OK)
        return files_commit(&file);
    files_discard(&file);
    return status;
}

static enum status run(const struct cli *cli)
{
    struct option_set options = {0};
    struct results results = {0};
    size_t format = 0;
    enum status status = cli_options(cli, &options);
    if (status == OK)
        status = choose_format(&options, &format);
    if (status == OK)
        status = results_read_all(cli->operands, cli->operand_count, "", &results);
    if (status == OK)
        status = write_results(&options, format, &results);
    results_free(&results);
    option_set_free(&options);
    return status;
}

const struct command command_export = {
    .name = "export",
    .summary = "result files as CSV, JSON or a LaTeX table",
    .synopsis = "RESULTS.jsonl... --csv|--json|--latex [OPTIONS]",
    .description = "Writes the records of result files in another format. Records of points that failed "
                   "and were run again later are left out.",
    .examples = "  bench export results/quickstart.jsonl --csv -o quickstart.csv\n"
                "  bench export results/quickstart.jsonl --latex\n",
    .operands_min = 1,
    .operands_max = 64,
    .options = export_options,
    .run = run,
};
