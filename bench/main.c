/* Chooses the subcommand, prints the failure, decides the exit code. The only exit. */
#include "bench/cli.h"
#include "bench/launch.h"
#include "bench/point.h"
#include "bench/remote.h"
#include "common/fault.h"
#include "common/log.h"
#include "config.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

/* One point has nothing to keep when it is interrupted; a sweep blocks the signals and waits for them. */
static void end_interrupted(int signal)
{
    (void)signal;
    _exit(EXIT_INTERRUPTED);
}

static enum status find_command(int argc, char **argv, const struct command **out)
{
    if (argc < 2)
        return FAIL(ERR_USAGE, "a command is missing; see bench --help");
    for (const struct command *const *c = cli_commands(); *c; c++)
        if (strcmp((*c)->name, argv[1]) == 0) {
            *out = *c;
            return OK;
        }
    const struct command *near = cli_nearest_command(argv[1]);
    return FAIL(ERR_USAGE, "%.60s: unknown command%s%s; see bench --help", argv[1],
                near ? ", nearest is " : "", near ? near->name : "");
}

/* Whether the command line leaves its ranks to the processes of an outer launcher. */
static bool wants_outer_ranks(const struct cli *cli)
{
    if (!cli->command->uses_ranks || launch_outer_ranks() == 0)
        return false;
    for (size_t i = 0; i < cli->count; i++) {
        const struct cli_argument *argument = &cli->arguments[i];
        if (argument->option == &point_opt_platform ||
            (argument->option == &point_opt_transport && !strstr(argument->text, "mpi") &&
             !strstr(argument->text, "nccl")))
            return false;
    }
    return true;
}

/* What --timeout says; a list's, or a command's without it: the default. */
static double start_timeout_s(const struct cli *cli)
{
    union option_value value;
    const char *text = point_opt_timeout.fallback;
    for (size_t i = 0; i < cli->count; i++)
        if (cli->arguments[i].option == &point_opt_timeout && !strchr(cli->arguments[i].text, ','))
            text = cli->arguments[i].text;
    if (option_parse(&point_opt_timeout, text, &value) == OK)
        return value.r;
    status_clear(); /* the command will say so */
    return 0;
}

/* Processes that the command has no use for do nothing. */
static enum status run_on_ranks(const struct cli *cli)
{
    if (!wants_outer_ranks(cli))
        return launch_outer_rank() == 0 ? cli->command->run(cli) : OK;
    TRY(launch_begin(start_timeout_s(cli)));
    return launch_outer_rank() == 0 ? cli->command->run(cli) : launch_serve(&remote_maker);
}

static enum status run_command(int argc, char **argv)
{
    const struct command *command = NULL;
    TRY(find_command(argc, argv, &command));
    TRY(fault_read_environment());
    struct cli cli;
    enum status status = cli_parse(command, argc, argv, &cli);
    if (status == OK && cli.wants_help)
        cli_print_help(stdout, command);
    else if (status == OK)
        status = run_on_ranks(&cli);
    cli_free(&cli);
    return status;
}

static int exit_code(enum status status)
{
    switch (status) {
    case OK:
        return EXIT_SUCCESS;
    case ERR_USAGE:
        return EXIT_USAGE;
    case ERR_INTERRUPTED:
        return EXIT_INTERRUPTED;
    default:
        return EXIT_FAILED;
    }
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = end_interrupted};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of the write */
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        cli_print_overview(stdout);
        return EXIT_SUCCESS;
    }
    if (argc >= 2 && strcmp(argv[1], "--version") == 0) {
        printf("ditto %s\n", DITTO_VERSION);
        return EXIT_SUCCESS;
    }
    enum status status = run_command(argc, argv);
    if (status == OK && fflush(stdout) != 0)
        status = FAIL(ERR_IO, "standard output: cannot write");
    if (status != OK && (launch_outer_rank() == 0 || status != ERR_USAGE)) {
        const struct failure *first = status_first();
        log_error("%s: %s", status_name(status),
                  first->code != OK ? first->text : status_text(status));
    }
    launch_end(exit_code(status));
    return exit_code(status);
}
