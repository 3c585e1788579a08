/* Describing a measurement to other processes: "name=value" of every option that was given, each ended
 * by a byte that no value holds. */
#include "bench/remote.h"

#include "bench/point.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define END "\x1e"
/* Names beside those of options. */
#define KEY_SHA256 " sha256"
#define KEY_REQUEST " request"
enum { WANT_OUTPUT = 1, WANT_TRACE = 2, SPLITS_INNER = 4 };

/* ---- rank 0 ---- */

static enum status describe_to(FILE *text, const struct point *point,
                               const struct measure_request *request)
{
    int wants = (request->want_output ? WANT_OUTPUT : 0) | (request->want_trace ? WANT_TRACE : 0) |
                (request->splits_inner ? SPLITS_INNER : 0);
    fprintf(text, KEY_SHA256 "=%s" END KEY_REQUEST "=%d" END, model_sha256(point->problem.model),
            wants);
    for (size_t i = 0; i < point->options->count; i++) {
        const struct option_setting *setting = &point->options->settings[i];
        if (strchr(setting->text, END[0]))
            return FAIL(ERR_USAGE, "--%s: a value must not hold byte 0x1e", setting->option->name);
        if (setting->is_given)
            fprintf(text, "%s=%s" END, setting->option->name, setting->text);
    }
    return OK;
}

enum status remote_describe(const struct point *point, const struct measure_request *request, char **out)
{
    char *description = NULL;
    size_t bytes = 0;
    FILE *text = open_memstream(&description, &bytes);
    if (!text)
        return FAIL(ERR_MEMORY, "no memory to describe a point");
    enum status status = describe_to(text, point, request);
    if (fclose(text) != 0 && status == OK)
        status = FAIL(ERR_MEMORY, "no memory to describe a point");
    if (status == OK)
        *out = description;
    else
        free(description);
    return status;
}

/* ---- the other ranks ---- */

struct remote {
    struct option_set options;
    struct point point;
    struct measure_request request;
    struct measurement measurement;
    struct measure_job *job;
    char sha256[65];
};

static enum status take_word(struct remote *remote, char *word)
{
    char *value = strchr(word, '=');
    if (!value)
        return FAIL(ERR_INTERNAL, "rank 0 says \"%.40s\"", word);
    *value++ = '\0';
    if (strcmp(word, KEY_SHA256) == 0) {
        snprintf(remote->sha256, sizeof remote->sha256, "%s", value);
    } else if (strcmp(word, KEY_REQUEST) == 0) {
        int wants = atoi(value);
        remote->request = (struct measure_request){.want_output = wants & WANT_OUTPUT,
                                                   .want_trace = wants & WANT_TRACE,
                                                   .splits_inner = wants & SPLITS_INNER};
    } else if (option_find(&remote->options, word)) { /* else of a command, not of a point */
        return option_assign(&remote->options, word, value);
    }
    return OK;
}

static enum status take_description(struct remote *remote, const char *description)
{
    char *copy = strdup(description), *rest = NULL;
    if (!copy)
        return FAIL(ERR_MEMORY, "no memory for a description");
    enum status status = OK;
    for (char *word = strtok_r(copy, END, &rest); word && status == OK; word = strtok_r(NULL, END, &rest))
        status = take_word(remote, word);
    free(copy);
    return status;
}

static void drop(void *context)
{
    struct remote *remote = context;
    if (!remote)
        return;
    measure_job_free(remote->job);
    measure_free(&remote->measurement);
    point_close(&remote->point);
    option_set_free(&remote->options);
    free(remote);
}

static enum status fill(struct remote *remote, const char *description)
{
    TRY(point_options_init(&remote->options));
    TRY(take_description(remote, description));
    TRY(point_resolve_known(&remote->options, remote->sha256, &remote->point));
    return measure_job_new(&remote->point, &remote->request, &remote->measurement, &remote->job);
}

static enum status run_rank(struct team *team, void *context)
{
    struct remote *remote = context;
    return measure_job_rank(team, remote->job);
}

static enum status make(const char *description, launch_fn **work, void **context)
{
    struct remote *remote = calloc(1, sizeof *remote);
    if (!remote)
        return FAIL(ERR_MEMORY, "no memory for a point");
    *context = remote;
    *work = run_rank;
    return fill(remote, description);
}

const struct launch_maker remote_maker = {.make = make, .drop = drop};

/* ---- options ---- */

enum status remote_fill_options(struct option_set *set)
{
    char ranks[16];
    if (!launch_has_begun() || option_text(set, &point_opt_platform)[0] ||
        strcmp(option_text(set, &point_opt_device), "sim") == 0)
        return OK;
    if (!option_setting(set, &point_opt_transport)->is_given)
        TRY(option_assign(set, point_opt_transport.name, "mpi"));
    if (!launch_uses_processes(option_text(set, &point_opt_transport)) ||
        option_setting(set, &point_opt_gpus)->is_given)
        return OK;
    snprintf(ranks, sizeof ranks, "%d", launch_outer_ranks());
    return option_assign(set, point_opt_gpus.name, ranks);
}

enum status remote_check_ranks(const struct point *point, bool may_be_fewer)
{
    int ranks = launch_outer_ranks();
    if (!launch_uses_processes(point->transport->name))
        return OK;
    if (!launch_has_begun())
        return FAIL(ERR_USAGE,
                    "--transport mpi: ranks are processes that mpirun starts; use mpirun -n %d bench run "
                    "..., or bench sweep, which calls mpirun itself",
                    point->nranks);
    if (point->nranks > ranks || (!may_be_fewer && point->nranks < ranks))
        return FAIL(ERR_USAGE, "--gpus %d, but mpirun started %d ranks: leave --gpus out or give both alike",
                    point->nranks, ranks);
    return OK;
}
