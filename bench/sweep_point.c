/* Planning a point, recognising its record, writing one for it. */
#include "bench/sweep_point.h"

#include "bench/record.h"
#include "bench/reference.h"
#include "common/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status note_refusal(struct sweep_point *out, enum status status)
{
    if (status == ERR_USAGE)
        return FAIL(ERR_USAGE, "%s", out->label); /* the first failure is the one reported */
    snprintf(out->reason, sizeof out->reason, "%s", status_first()->text);
    status_clear();
    return OK;
}

static bool needs_reference(const struct point *point)
{
    return strcmp(option_text(point->options, &point_opt_reference), "auto") == 0 &&
           point->device->memory != MEMORY_VIRTUAL;
}

static void remember(struct sweep_known_model *known, const char *name, const struct point *point)
{
    known->name = point->model ? name : NULL;
    if (point->model)
        memcpy(known->sha256, model_sha256(point->model), sizeof known->sha256);
}

enum status sweep_point_plan(const struct option_set *options, const char *label,
                             struct sweep_known_model *known, struct sweep_point *out)
{
    const char *model = option_text(options, &point_opt_model);
    bool is_known = known->name && strcmp(known->name, model) == 0;
    *out = (struct sweep_point){.options = options};
    snprintf(out->label, sizeof out->label, "%s", label);
    struct point point;
    enum status status = point_resolve_known(options, is_known ? known->sha256 : NULL, &point);
    remember(known, model, &point);
    if (known->name)
        snprintf(out->model_sha256, sizeof out->model_sha256, "%s", known->sha256);
    record_case_id(&point, options, out->case_id);
    if (status != OK)
        status = note_refusal(out, status);
    else if (needs_reference(&point))
        status = reference_id(&point, out->reference_id);
    point_close(&point);
    return status;
}

bool sweep_point_matches(const struct sweep_point *point, const cJSON *record)
{
    static const struct option *const measuring[] = {&point_opt_mode, &point_opt_repeat,
                                                     &point_opt_warmup_runs, &point_opt_threads};
    const char *id = json_text(record, "case_id"), *status = json_text(record, "status");
    if (!id || strcmp(id, point->case_id) != 0 || !status || strcmp(status, "interrupted") == 0)
        return false;
    for (size_t i = 0; i < sizeof measuring / sizeof *measuring; i++) {
        char key[64], path[80], text[32] = "";
        record_option_key(measuring[i], key);
        snprintf(path, sizeof path, "config.%s", key);
        double number = json_number(record, path);
        if (!isnan(number))
            snprintf(text, sizeof text, "%.0f", number);
        const char *recorded = isnan(number) ? json_text(record, path) : text;
        if (!recorded || strcmp(recorded, option_text(point->options, measuring[i])) != 0)
            return false;
    }
    return true;
}

cJSON *sweep_point_record(const struct sweep_point *planned, enum status status, const char *reason,
                          int argc, char *const *argv, const char *start)
{
    struct point point;
    char end[21];
    clock_utc(end);
    enum status resolved = point_resolve(planned->options, &point);
    if (resolved != OK)
        status_clear();
    if (*planned->reason) {
        status = resolved;
        reason = planned->reason;
    }
    const struct record_facts facts = {.point = &point, .status = status, .reason = reason,
                                       .argc = argc, .argv = argv, .start = start, .end = end};
    cJSON *record = record_build(&facts);
    point_close(&point);
    return record;
}

void sweep_point_free_argv(char **argv)
{
    for (size_t i = 0; argv && argv[i]; i++)
        free(argv[i]);
    free(argv);
}

enum status sweep_point_argv(const struct sweep_point *point, const char *program, size_t extra,
                             char ***out, size_t *count)
{
    const struct option_set *set = point->options;
    char **argv = calloc(set->count + extra + 3, sizeof *argv);
    if (!argv)
        return FAIL(ERR_MEMORY, "no memory for a command line");
    size_t n = 0;
    argv[n++] = strdup(program);
    argv[n++] = strdup("run");
    bool good = argv[0] && argv[1];
    for (size_t i = 0; i < set->count && good; i++) {
        const struct option_setting *setting = &set->settings[i];
        if (!setting->is_given || !point_uses(set, setting->option))
            continue;
        good = asprintf(&argv[n], "--%s=%s", setting->option->name, setting->text) > 0;
        n += good;
    }
    if (!good) {
        sweep_point_free_argv(argv);
        return FAIL(ERR_MEMORY, "no memory for a command line");
    }
    *out = argv;
    *count = n;
    return OK;
}
