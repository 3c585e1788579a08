/* Parsing of the command line and its help, from tables. */
#include "bench/cli.h"

#include "bench/point.h"

#include <stdlib.h>
#include <string.h>

static const struct command *const commands[] = {
    &command_run,    &command_sweep,  &command_verify, &command_compare, &command_plot, &command_export,
    &command_report,
    &command_list,   &command_info,   &command_validate, &command_calibrate, NULL,
};

const struct command *const *cli_commands(void)
{
    return commands;
}

const struct command *cli_nearest_command(const char *name)
{
    const struct command *best = NULL;
    size_t best_distance = 3;
    for (const struct command *const *c = commands; *c; c++) {
        size_t d = option_name_distance(name, (*c)->name);
        if (d < best_distance) {
            best_distance = d;
            best = *c;
        }
    }
    return best;
}

/* ---- parsing ---- */

enum status cli_known_options(const struct command *command, struct option_set *out)
{
    *out = (struct option_set){0};
    if (command->takes_point)
        TRY(point_options_init(out));
    return command->options ? option_set_add(out, command->options) : OK;
}

static enum status add_argument(struct cli *cli, const struct option *option, const char *text)
{
    for (size_t i = 0; i < cli->count; i++)
        if (cli->arguments[i].option == option)
            return FAIL(ERR_USAGE, "--%s is given twice", option->name);
    cli->arguments[cli->count++] = (struct cli_argument){option, text};
    return OK;
}

/* One option at argv[*i]; advances over its value. */
static enum status parse_option(struct cli *cli, struct option_set *known, int *i)
{
    const char *word = cli->argv[*i];
    if (strncmp(word, "-o", 2) == 0)
        word = word[2] ? "-o" : "--output";
    else if (strcmp(word, "-j") == 0)
        word = "--jobs";
    if (strncmp(word, "--", 2) != 0)
        return FAIL(ERR_USAGE, "%s: unknown option; options start with --, see bench %s --help",
                    cli->argv[*i], cli->command->name);
    char name[64];
    const char *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) - 2 : strlen(word) - 2;
    if (length >= sizeof name)
        return FAIL(ERR_USAGE, "%.80s: unknown option", word);
    memcpy(name, word + 2, length);
    name[length] = '\0';
    const struct option_setting *setting = option_find(known, name);
    if (!setting)
        return option_assign(known, name, equals ? equals + 1 : ""); /* names the nearest */
    if (setting->option->type == OPTION_FLAG) {
        if (equals)
            return FAIL(ERR_USAGE, "--%s takes no value", name);
        return add_argument(cli, setting->option, "true");
    }
    if (equals)
        return add_argument(cli, setting->option, equals + 1);
    if (*i + 1 >= cli->argc || strncmp(cli->argv[*i + 1], "--", 2) == 0)
        return FAIL(ERR_USAGE, "--%s needs a value", name);
    return add_argument(cli, setting->option, cli->argv[++*i]);
}

static enum status parse_words(struct cli *cli, struct option_set *known)
{
    bool only_operands = false;
    for (int i = 2; i < cli->argc; i++) {
        const char *word = cli->argv[i];
        if (only_operands || word[0] != '-' || strcmp(word, "-") == 0) {
            cli->operands[cli->operand_count++] = word;
        } else if (strcmp(word, "--") == 0) {
            only_operands = true;
        } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            cli->wants_help = true;
            return OK;
        } else {
            TRY(parse_option(cli, known, &i));
        }
    }
    const struct command *command = cli->command;
    if (cli->operand_count > command->operands_max)
        return FAIL(ERR_USAGE, "unexpected \"%s\"; usage: bench %s %s",
                    cli->operands[command->operands_max], command->name, command->synopsis);
    if (cli->operand_count < command->operands_min)
        return FAIL(ERR_USAGE, "something is missing; usage: bench %s %s", command->name,
                    command->synopsis);
    return OK;
}

enum status cli_parse(const struct command *command, int argc, char **argv, struct cli *out)
{
    *out = (struct cli){.command = command, .argc = argc, .argv = argv};
    out->arguments = calloc((size_t)argc + 1, sizeof *out->arguments);
    out->operands = calloc((size_t)argc + 1, sizeof *out->operands);
    if (!out->arguments || !out->operands)
        return FAIL(ERR_MEMORY, "out of memory for the command line");
    struct option_set known = {0};
    enum status status = cli_known_options(command, &known);
    if (status == OK)
        status = parse_words(out, &known);
    option_set_free(&known);
    return status;
}

void cli_free(struct cli *cli)
{
    free(cli->arguments);
    free(cli->operands);
    *cli = (struct cli){0};
}

enum status cli_options(const struct cli *cli, struct option_set *out)
{
    TRY(cli_known_options(cli->command, out));
    for (size_t i = 0; i < cli->count; i++)
        TRY(option_assign(out, cli->arguments[i].option->name, cli->arguments[i].text));
    return OK;
}

/* ---- help ---- */

/* Prints text in lines of at most 96 columns; continuation lines are indented. */
static void print_wrapped(FILE *out, int indent, const char *text)
{
    int column = 0;
    while (*text) {
        size_t word = strcspn(text, " \n");
        if (column > 0 && column + 1 + (int)word > 96 - indent) {
            fputc('\n', out);
            column = 0;
        }
        column += fprintf(out, "%*s%.*s", column ? 1 : indent, "", (int)word, text) -
                  (column ? 0 : indent);
        text += word;
        if (*text == '\n') {
            fputc('\n', out);
            column = 0;
        }
        text += *text != '\0';
    }
    fputc('\n', out);
}

static const char *value_word(const struct option *option)
{
    static const char *const word[] = {
        [OPTION_INT] = "N",      [OPTION_REAL] = "X",       [OPTION_CHOICE] = "NAME",
        [OPTION_RANGE] = "A-B",  [OPTION_TEXT] = "TEXT",    [OPTION_EXTENT] = "N|HxW",
        [OPTION_FLAG] = "",
    };
    return word[option->type];
}

/* "one of a, b" or "0 to 64", and the unit and default. */
static void describe_values(FILE *out, const struct option *option)
{
    if (option->type == OPTION_CHOICE) {
        fprintf(out, " One of ");
        for (size_t i = 0; option->choices[i]; i++)
            fprintf(out, "%s%s", i ? ", " : "", option->choices[i]);
        fputc('.', out);
    }
    if (option->type == OPTION_INT || option->type == OPTION_REAL)
        fprintf(out, " %.10g to %.10g.", option->min, option->max);
    if (option->unit)
        fprintf(out, " Unit: %s.", option->unit);
    if (option->type != OPTION_FLAG && option->fallback && *option->fallback)
        fprintf(out, " Default: %s.", option->fallback);
}

static void print_option(FILE *out, const struct option *option)
{
    fprintf(out, "  --%s %s\n", option->name, value_word(option));
    char *text = NULL;
    size_t bytes = 0;
    FILE *line = open_memstream(&text, &bytes);
    if (!line)
        return;
    fputs(option->help, line);
    if (*option->help && option->help[strlen(option->help) - 1] != '.')
        fputc('.', line);
    describe_values(line, option);
    fclose(line);
    print_wrapped(out, 6, text);
    free(text);
}

static void print_strategy_names(FILE *out, const struct option *option)
{
    const char *separator = "      Used by: ";
    for (const struct strategy *const *s = strategy_list(); *s; s++)
        for (const struct option *const *o = (*s)->options; o && *o; o++)
            if (*o == option) {
                fprintf(out, "%s%s", separator, (*s)->name);
                separator = ", ";
            }
    if (separator[0] == ',')
        fputc('\n', out);
}

void cli_print_help(FILE *out, const struct command *command)
{
    fprintf(out, "bench %s: %s\n\nUsage\n  bench %s %s\n\n", command->name, command->summary,
            command->name, command->synopsis);
    print_wrapped(out, 0, command->description);
    if (command->options && command->options[0])
        fprintf(out, "\nOptions of %s (-o is short for --output)\n", command->name);
    for (const struct option *const *o = command->options; o && *o; o++)
        print_option(out, *o);
    struct option_set point = {0};
    if (command->takes_point && point_options_init(&point) == OK) {
        fprintf(out, "\nOptions of a point\n");
        for (size_t i = 0; i < point.count; i++) {
            print_option(out, point.settings[i].option);
            print_strategy_names(out, point.settings[i].option);
        }
    }
    option_set_free(&point);
    fprintf(out, "\nExamples\n%s\nExit code: 0 fine, 1 failed, 2 wrong usage, 130 interrupted.\n",
            command->examples);
}

void cli_print_overview(FILE *out)
{
    fprintf(out, "bench: compares ways of running one diffusion transformer on several GPUs\n\n"
                 "Usage\n  bench COMMAND [OPTIONS]\n\nCommands\n");
    for (const struct command *const *c = commands; *c; c++)
        fprintf(out, "  %-9s %s\n", (*c)->name, (*c)->summary);
    fprintf(out, "\nbench COMMAND --help describes one.\n");
}
