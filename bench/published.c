/* Reading rows, strictly: a misspelt field is an error, not a silent default. */
#include "bench/published.h"

#include "bench/platform_file.h"
#include "bench/point.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Fields that are not options of a point. */
static const char *const own_fields[] = {"platform", "gpus",       "strategy", "resolution", "seconds",
                                         "exclude",  "apart",      "fit",      "sync_steps", "note",
                                         "source",   "warmup_steps", NULL};

static bool is_own_field(const char *key)
{
    for (const char *const *f = own_fields; *f != NULL; f++)
        if (strcmp(*f, key) == 0)
            return true;
    return false;
}

static enum status take_text(const char *what, const cJSON *row, const char *key, char *out, size_t size)
{
    const char *text = json_text(row, key);
    if (text == NULL || strlen(text) >= size)
        return FAIL(ERR_FORMAT, "%s: %s must be a text of at most %zu bytes", what, key, size - 1);
    snprintf(out, size, "%s", text);
    return OK;
}

static enum status take_number(const char *what, const cJSON *row, const char *key, double *out)
{
    *out = json_number(row, key);
    if (!(*out > 0))
        return FAIL(ERR_FORMAT, "%s: %s must be a positive number", what, key);
    return OK;
}

/* A later setting of a name replaces an earlier one. */
static enum status set(const char *what, struct published_row *row, const char *key, const char *text)
{
    struct published_setting setting = {{0}, {0}};
    snprintf(setting.name, sizeof setting.name, "%s", key);
    snprintf(setting.text, sizeof setting.text, "%s", text);
    for (char *p = setting.name; *p; p++)
        *p = *p == '_' ? '-' : *p;
    int i = 0;
    while (i < row->setting_count && strcmp(row->settings[i].name, setting.name) != 0)
        i++;
    if (i == PUBLISHED_SETTINGS)
        return FAIL(ERR_FORMAT, "%s: more than %d options", what, PUBLISHED_SETTINGS);
    row->settings[i] = setting;
    row->setting_count += i == row->setting_count;
    row->has_patches |= strcmp(setting.name, "patches") == 0;
    return OK;
}

static enum status set_value(const char *what, struct published_row *row, const char *key,
                             const cJSON *value)
{
    char text[64];
    if (cJSON_IsString(value))
        return set(what, row, key, value->valuestring);
    if (!cJSON_IsNumber(value))
        return FAIL(ERR_FORMAT, "%s: %s must be a text or a number", what, key);
    snprintf(text, sizeof text, "%.15g", value->valuedouble);
    return set(what, row, key, text);
}

static enum status set_options(const char *what, struct published_row *row, const cJSON *object,
                               const struct option_set *known)
{
    for (const cJSON *field = object ? object->child : NULL; field != NULL; field = field->next) {
        char name[32];
        if (is_own_field(field->string))
            continue;
        snprintf(name, sizeof name, "%s", field->string);
        for (char *p = name; *p; p++)
            *p = *p == '_' ? '-' : *p;
        if (option_find(known, name) == NULL)
            return FAIL(ERR_FORMAT, "%s: unknown field \"%.60s\"", what, field->string);
        TRY(set_value(what, row, field->string, field));
    }
    return OK;
}

static enum status set_sync_steps(const char *what, struct published_row *row, const cJSON *object)
{
    const cJSON *steps = json_at(object, "sync_steps");
    if (steps == NULL)
        steps = json_at(object, "warmup_steps");
    return steps != NULL ? set_value(what, row, "warmup-steps", steps) : OK;
}

/* A reason as a text, or true. */
static void take_reason(const cJSON *object, const char *key, char out[160])
{
    const cJSON *value = json_at(object, key);
    if (cJSON_IsString(value))
        snprintf(out, 160, "%s", value->valuestring);
    else if (cJSON_IsTrue(value))
        snprintf(out, 160, "marked so");
}

static enum status read_row(const char *what, const cJSON *object, const cJSON *defaults,
                            const struct option_set *known, struct published_row *row)
{
    double gpus;
    *row = (struct published_row){.is_fitted_allowed = !cJSON_IsFalse(json_at(object, "fit"))};
    TRY(take_text(what, object, "platform", row->platform, sizeof row->platform));
    TRY(take_text(what, object, "strategy", row->strategy, sizeof row->strategy));
    TRY(take_number(what, object, "gpus", &gpus));
    TRY(take_number(what, object, "resolution", &row->resolution));
    TRY(take_number(what, object, "seconds", &row->seconds));
    row->gpus = (int)gpus;
    take_reason(object, "exclude", row->exclude);
    take_reason(object, "apart", row->apart);
    static const char *const usual[][2] = {{"model", "pixart-alpha"}, {"steps", "20"}, {"dtype", "fp16"},
                                           {"cfg-scale", "4.5"}};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        TRY(set(what, row, usual[i][0], usual[i][1]));
    TRY(set_options(what, row, defaults, known));
    TRY(set_options(what, row, object, known));
    return set_sync_steps(what, row, object);
}

/* ---- records ---- */

static const char *const record_options[] = {"model", "steps", "dtype", "cfg_scale", "warmup_steps",
                                             "patches", "ulysses_degree", "staleness", NULL};

static enum status read_record(const char *what, const cJSON *record, struct published_row *row)
{
    const cJSON *config = json_at(record, "config");
    double gpus, microseconds;
    *row = (struct published_row){.is_fitted_allowed = true};
    const char *platform = json_text(record, "config.platform");
    snprintf(row->platform, sizeof row->platform, "%s", platform && platform[0] ? platform : "host");
    TRY(take_text(what, config, "strategy", row->strategy, sizeof row->strategy));
    TRY(take_number(what, config, "gpus", &gpus));
    TRY(take_number(what, record, "latency_us.median", &microseconds));
    const char *resolution = json_text(config, "resolution");
    row->resolution = resolution ? strtod(resolution, NULL) : NAN;
    if (!(row->resolution > 0) || strchr(resolution, 'x') != NULL)
        return FAIL(ERR_FORMAT, "%s: only square resolutions can be compared", what);
    row->gpus = (int)gpus;
    row->seconds = microseconds * 1e-6;
    for (const char *const *key = record_options; *key != NULL; key++) {
        const cJSON *value = json_at(config, *key);
        if (value != NULL && !cJSON_IsNull(value))
            TRY(set_value(what, row, *key, value));
    }
    return OK;
}

/* ---- files ---- */

static struct published_row *new_row(struct published *p)
{
    struct published_row *rows = realloc(p->rows, (p->count + 1) * sizeof *rows);
    ASSERT(rows != NULL);
    p->rows = rows;
    return &rows[p->count++];
}

static enum status read_platforms(const char *path, const cJSON *root, struct published *out)
{
    const cJSON *list = json_at(root, "platforms");
    if (list == NULL)
        return OK;
    out->platforms = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *out->platforms);
    ASSERT(out->platforms != NULL);
    for (const cJSON *item = list->child; item != NULL; item = item->next) {
        char *text = json_print(item);
        enum status s = platform_read(path, item, text, strlen(text), &out->platforms[out->platform_count]);
        free(text);
        TRY(s);
        out->platform_count++;
    }
    return OK;
}

static enum status read_rows(const char *path, const cJSON *root, struct published *out)
{
    struct option_set known = {0};
    const cJSON *rows = json_at(root, "rows");
    char what[256];
    if (!cJSON_IsArray(rows))
        return FAIL(ERR_FORMAT, "%s: no array \"rows\"", path);
    enum status status = point_options_init(&known);
    int number = 0;
    for (const cJSON *row = rows->child; row != NULL && status == OK; row = row->next) {
        snprintf(what, sizeof what, "%.200s: row %d", path, number++);
        status = read_row(what, row, json_at(root, "defaults"), &known, new_row(out));
    }
    option_set_free(&known);
    return status == OK ? read_platforms(path, root, out) : status;
}

/* JSON Lines of records; those that did not end well say nothing about time. */
static enum status read_lines(const char *path, char *text, struct published *out)
{
    char what[256], *rest = text;
    for (int number = 1; rest != NULL && *rest; number++) {
        char *line = strsep(&rest, "\n");
        cJSON *record = NULL;
        snprintf(what, sizeof what, "%.200s: line %d", path, number);
        if (*line == '\0')
            continue;
        TRY(json_parse(what, line, strlen(line), &record));
        const char *status_text = json_text(record, "status");
        enum status status = OK;
        if (status_text != NULL && strcmp(status_text, "ok") == 0)
            status = read_record(what, record, new_row(out));
        cJSON_Delete(record);
        TRY(status);
    }
    return OK;
}

enum status published_read(const char *path, struct published *out)
{
    char *text;
    size_t bytes;
    cJSON *root = NULL;
    *out = (struct published){0};
    TRY(json_read_file(path, &text, &bytes));
    enum status status;
    if (strstr(text, "\"rows\"") != NULL) {
        status = json_parse(path, text, bytes, &root);
        if (status == OK)
            status = read_rows(path, root, out);
    } else {
        status = read_lines(path, text, out);
    }
    cJSON_Delete(root);
    free(text);
    if (status == OK && out->count == 0)
        status = FAIL(ERR_FORMAT, "%s: no rows", path);
    return status;
}

void published_free(struct published *p)
{
    free(p->rows);
    free(p->platforms);
    *p = (struct published){0};
}

void published_name(const struct published_row *row, char *out, size_t size)
{
    snprintf(out, size, "%s on %d x %s at %g px", row->strategy, row->gpus, row->platform,
             row->resolution);
}
