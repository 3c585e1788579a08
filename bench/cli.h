/* The command line: subcommands and their options are data, from which parsing, checking and help come. */
#ifndef BENCH_CLI_H
#define BENCH_CLI_H

#include "common/option.h"
#include <stdio.h>

/* An option as the user gave it. */
struct cli_argument {
    const struct option *option;
    const char *text;
};

/* A parsed command line. Texts belong to argv. */
struct cli {
    const struct command *command;
    struct cli_argument *arguments; /* in the order given; no option twice */
    size_t count;
    const char **operands; /* what is not an option */
    size_t operand_count;
    bool wants_help;
    bool is_within_sweep; /* run by a sweep of this process */
    int argc; /* the whole command line, for provenance */
    char **argv;
};

struct command {
    const char *name, *summary;
    const char *synopsis;    /* after "bench NAME" */
    const char *description; /* paragraphs for --help */
    const char *examples;    /* lines for --help */
    bool takes_point;        /* accepts every option of a point, see bench/point.h */
    bool uses_ranks;         /* measures: the processes of an outer launcher are its ranks */
    size_t operands_min, operands_max;
    const struct option *const *options; /* its own, NULL-terminated */
    /* The status decides the exit code: OK 0, ERR_USAGE 2, ERR_INTERRUPTED 130, others 1. */
    enum status (*run)(const struct cli *);
};

/* NULL-terminated; the one list, in main.c. */
const struct command *const *cli_commands(void);
extern const struct command command_run, command_sweep, command_verify, command_compare, command_plot,
    command_export, command_report, command_list, command_info, command_validate, command_calibrate;

/* Parses what follows the subcommand: `--name value`, `--name=value`, `-o FILE` for --output, `-j N` for --jobs, flags
 * without a value, `--` before operands. ERR_USAGE names the nearest option. Free with cli_free in every
 * case. */
enum status cli_parse(const struct command *, int argc, char **argv, struct cli *out) WARN_UNUSED;
void cli_free(struct cli *);
/* A set with all options of the command, at the values given (else defaults). Not for commands whose
 * options are lists. */
enum status cli_options(const struct cli *, struct option_set *out) WARN_UNUSED;
/* The same without the given values. */
enum status cli_known_options(const struct command *, struct option_set *out) WARN_UNUSED;
void cli_print_help(FILE *, const struct command *);
void cli_print_overview(FILE *);
/* The registered name that is nearest to what was typed; NULL: nothing is near. */
const struct command *cli_nearest_command(const char *name);

#endif
