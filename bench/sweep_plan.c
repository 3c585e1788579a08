/* Expands axes into points. */
#include "bench/sweep_plan.h"

#include "bench/files.h"
#include "bench/json.h"
#include "bench/point.h"

#include <inttypes.h>
#include <math.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_POINTS = 100000 };

/* ---- axes ---- */

static void free_axes(struct sweep_axis *axes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t v = 0; v < axes[i].count; v++)
            free(axes[i].values[v]);
        free(axes[i].values);
    }
    free(axes);
}

static enum status add_value(struct sweep_axis *axis, const char *text)
{
    union option_value value;
    char *canonical = NULL;
    TRY(option_canonical(axis->option, text, &value, &canonical));
    char **values = realloc(axis->values, (axis->count + 1) * sizeof *values);
    if (!values) {
        free(canonical);
        return FAIL(ERR_MEMORY, "--%s: no memory for its values", axis->option->name);
    }
    axis->values = values;
    values[axis->count++] = canonical;
    return OK;
}

/* A new axis at the end of the list, or the one that the option has already, emptied. */
static enum status take_axis(struct sweep_axis **axes, size_t *count, const struct option *option,
                             struct sweep_axis **out)
{
    for (size_t i = 0; i < *count; i++)
        if ((*axes)[i].option == option) {
            for (size_t v = 0; v < (*axes)[i].count; v++)
                free((*axes)[i].values[v]);
            (*axes)[i].count = 0;
            *out = &(*axes)[i];
            return OK;
        }
    struct sweep_axis *grown = realloc(*axes, (*count + 1) * sizeof *grown);
    if (!grown)
        return FAIL(ERR_MEMORY, "--%s: no memory for its values", option->name);
    *axes = grown;
    grown[*count] = (struct sweep_axis){.option = option};
    *out = &grown[(*count)++];
    return OK;
}

/* "a,b,c" */
static enum status add_list(struct sweep_axis *axis, const char *text)
{
    char *copy = strdup(text), *rest = copy, *word;
    if (!copy)
        return FAIL(ERR_MEMORY, "--%s: no memory for its values", axis->option->name);
    enum status status = OK;
    while (status == OK && (word = strsep(&rest, ",")) != NULL)
        status = *word || axis->option->type == OPTION_TEXT
                     ? add_value(axis, word)
                     : FAIL(ERR_USAGE, "--%s %.80s: an empty value in the list", axis->option->name,
                            text);
    free(copy);
    return status;
}

/* ---- the file ---- */

static enum status find_option(const struct option_set *known, const char *key,
                               const struct option **out)
{
    char name[64];
    snprintf(name, sizeof name, "%s", key);
    for (char *p = name; *p; p++)
        if (*p == '_')
            *p = '-';
    const struct option_setting *setting = option_find(known, name);
    if (!setting)
        return FAIL(ERR_USAGE, "sweep file: \"%.60s\" is no option of a point; see bench run --help",
                    key);
    *out = setting->option;
    return OK;
}

static enum status add_json_value(struct sweep_axis *axis, const cJSON *value)
{
    char text[32];
    if (cJSON_IsString(value))
        return add_value(axis, value->valuestring);
    if (cJSON_IsBool(value))
        return add_value(axis, cJSON_IsTrue(value) ? "true" : "false");
    if (!cJSON_IsNumber(value))
        return FAIL(ERR_USAGE, "sweep file: \"%s\": a value is a number, text, true or false",
                    axis->option->name);
    double number = value->valuedouble;
    if (fabs(number) > 9007199254740992.0)
        return FAIL(ERR_USAGE, "sweep file: \"%s\": write numbers above 2^53 as text",
                    axis->option->name);
    if (number == floor(number))
        snprintf(text, sizeof text, "%" PRId64, (int64_t)number);
    else
        snprintf(text, sizeof text, "%.17g", number);
    return add_value(axis, text);
}

static enum status add_json_values(struct sweep_axis *axis, const cJSON *value)
{
    if (!cJSON_IsArray(value))
        return add_json_value(axis, value);
    if (!value->child)
        return FAIL(ERR_USAGE, "sweep file: \"%s\": an empty list", axis->option->name);
    for (const cJSON *item = value->child; item; item = item->next)
        TRY(add_json_value(axis, item));
    return OK;
}

/* An object of options; lists are allowed or not. */
static enum status add_json_axes(const struct option_set *known, const cJSON *object, bool lists,
                                 struct sweep_axis **axes, size_t *count)
{
    if (object && !cJSON_IsObject(object))
        return FAIL(ERR_USAGE, "sweep file: \"%s\" is not an object", object->string);
    for (const cJSON *item = object ? object->child : NULL; item; item = item->next) {
        const struct option *option = NULL;
        struct sweep_axis *axis = NULL;
        TRY(find_option(known, item->string, &option));
        if (cJSON_IsArray(item) != lists)
            return FAIL(ERR_USAGE, "sweep file: \"%s\" in \"%s\" %s", item->string, object->string,
                        lists ? "needs a list, as in [1, 2]" : "takes one value; lists go to \"axes\"");
        TRY(take_axis(axes, count, option, &axis));
        TRY(add_json_values(axis, item));
    }
    return OK;
}

static enum status add_exclusion(const struct option_set *known, const cJSON *object,
                                 struct sweep_plan *plan)
{
    if (!cJSON_IsObject(object) || !object->child)
        return FAIL(ERR_USAGE, "sweep file: \"exclude\" is a list of objects that are not empty");
    struct sweep_exclusion *grown =
        realloc(plan->exclusions, (plan->exclusion_count + 1) * sizeof *grown);
    if (!grown)
        return FAIL(ERR_MEMORY, "sweep file: no memory");
    plan->exclusions = grown;
    struct sweep_exclusion *exclusion = &grown[plan->exclusion_count++];
    *exclusion = (struct sweep_exclusion){0};
    for (const cJSON *item = object->child; item; item = item->next) {
        const struct option *option = NULL;
        struct sweep_axis *axis = NULL;
        TRY(find_option(known, item->string, &option));
        TRY(take_axis(&exclusion->axes, &exclusion->count, option, &axis));
        TRY(add_json_values(axis, item));
    }
    return OK;
}

static enum status apply_json(const struct option_set *known, const cJSON *root,
                              struct sweep_plan *plan)
{
    if (!cJSON_IsObject(root))
        return FAIL(ERR_USAGE, "sweep file: not an object");
    for (const cJSON *item = root->child; item; item = item->next)
        if (strcmp(item->string, "base") && strcmp(item->string, "axes") &&
            strcmp(item->string, "exclude"))
            return FAIL(ERR_USAGE, "sweep file: \"%.60s\" is unknown; base, axes and exclude are known",
                        item->string);
    TRY(add_json_axes(known, json_at(root, "base"), false, &plan->axes, &plan->axis_count));
    TRY(add_json_axes(known, json_at(root, "axes"), true, &plan->axes, &plan->axis_count));
    const cJSON *exclude = json_at(root, "exclude");
    if (exclude && !cJSON_IsArray(exclude))
        return FAIL(ERR_USAGE, "sweep file: \"exclude\" is not a list");
    for (const cJSON *item = exclude ? exclude->child : NULL; item; item = item->next)
        TRY(add_exclusion(known, item, plan));
    return OK;
}

static enum status apply_file(const struct option_set *known, const char *path,
                              struct sweep_plan *plan)
{
    char *text = NULL;
    size_t bytes = 0;
    cJSON *root = NULL;
    TRY(json_read_file(path, &text, &bytes));
    enum status status = json_parse(path, text, bytes, &root);
    free(text);
    /* A sweep file is typed by hand, like options. */
    if (status == ERR_FORMAT)
        return ERR_USAGE;
    TRY(status);
    status = apply_json(known, root, plan);
    cJSON_Delete(root);
    return status;
}

/* ---- expansion ---- */

static bool axis_has(const struct sweep_axis *axis, const char *text)
{
    for (size_t v = 0; v < axis->count; v++)
        if (strcmp(axis->values[v], text) == 0)
            return true;
    return false;
}

static bool is_excluded(const struct sweep_plan *plan, const struct option_set *point)
{
    for (size_t e = 0; e < plan->exclusion_count; e++) {
        const struct sweep_exclusion *exclusion = &plan->exclusions[e];
        size_t matches = 0;
        for (size_t i = 0; i < exclusion->count; i++)
            matches += point_uses(point, exclusion->axes[i].option) &&
                       axis_has(&exclusion->axes[i], option_text(point, exclusion->axes[i].option));
        if (matches == exclusion->count)
            return true;
    }
    return false;
}

/* Every option in use with its value: equal for points that are the same. Free with free(). */
static char *point_key(const struct option_set *point)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    ASSERT(out != NULL);
    for (size_t i = 0; i < point->count; i++)
        if (point_uses(point, point->settings[i].option))
            fprintf(out, "%s=%s\n", point->settings[i].option->name, point->settings[i].text);
    ASSERT(fclose(out) == 0);
    return text;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(a, b);
}

static enum status add_point(struct sweep_plan *plan, struct option_set *point, void **keys,
                             bool *kept)
{
    *kept = false;
    if (is_excluded(plan, point))
        return OK;
    char *key = point_key(point);
    char **found = tsearch(key, keys, compare_keys);
    ASSERT(found != NULL);
    if (*found != key) {
        free(key);
        return OK;
    }
    struct option_set *grown = realloc(plan->points, (plan->count + 1) * sizeof *grown);
    if (!grown)
        return FAIL(ERR_MEMORY, "no memory for %zu points", plan->count + 1);
    plan->points = grown;
    grown[plan->count++] = *point;
    *kept = true;
    return OK;
}

/* One rank is all that serial has a use for (one a half of guidance): more are no further points. */
static enum status limit_serial(struct option_set *point)
{
    if (strcmp(option_text(point, &point_opt_strategy), "serial") != 0)
        return OK;
    return option_assign(point, point_opt_gpus.name, option_text(point, &point_opt_cfg_degree));
}

/* Combination number `index`; the last axis varies fastest. */
static enum status make_point(const struct sweep_plan *plan, const struct option_set *defaults,
                              size_t index, struct option_set *out)
{
    TRY(option_set_copy(out, defaults));
    for (size_t i = plan->axis_count; i-- > 0;) {
        const struct sweep_axis *axis = &plan->axes[i];
        enum status status =
            option_assign(out, axis->option->name, axis->values[index % axis->count]);
        if (status != OK) {
            option_set_free(out);
            return status;
        }
        index /= axis->count;
    }
    return limit_serial(out);
}

static enum status expand(struct sweep_plan *plan, const struct option_set *defaults)
{
    size_t total = 1;
    for (size_t i = 0; i < plan->axis_count; i++) {
        total *= plan->axes[i].count;
        if (total > MAX_POINTS)
            return FAIL(ERR_USAGE, "the sweep has more than %d points; give fewer values", MAX_POINTS);
    }
    void *keys = NULL;
    enum status status = OK;
    for (size_t index = 0; index < total && status == OK; index++) {
        struct option_set point = {0};
        bool kept = false;
        status = make_point(plan, defaults, index, &point);
        if (status == OK)
            status = add_point(plan, &point, &keys, &kept);
        if (!kept)
            option_set_free(&point);
    }
    tdestroy(keys, free);
    if (status == OK && plan->count == 0)
        status = FAIL(ERR_USAGE, "the sweep has no points: every combination is excluded");
    return status;
}

static enum status collect(const struct cli *cli, const struct option_set *known,
                           struct sweep_plan *plan)
{
    char path[FILES_PATH];
    if (cli->operand_count > 0)
        TRY(apply_file(known, files_locate(cli->operands[0], path), plan));
    for (size_t i = 0; i < cli->count; i++) {
        const struct option *option = cli->arguments[i].option;
        struct sweep_axis *axis = NULL;
        if (!option_setting(known, option))
            continue; /* an option of sweep itself */
        TRY(take_axis(&plan->axes, &plan->axis_count, option, &axis));
        TRY(add_list(axis, cli->arguments[i].text));
    }
    return expand(plan, known);
}

enum status sweep_plan_build(const struct cli *cli, struct sweep_plan *out)
{
    *out = (struct sweep_plan){0};
    struct option_set known = {0};
    enum status status = point_options_init(&known);
    if (status == OK)
        status = collect(cli, &known, out);
    option_set_free(&known);
    return status;
}

void sweep_plan_free(struct sweep_plan *plan)
{
    free_axes(plan->axes, plan->axis_count);
    for (size_t e = 0; e < plan->exclusion_count; e++)
        free_axes(plan->exclusions[e].axes, plan->exclusions[e].count);
    free(plan->exclusions);
    for (size_t i = 0; i < plan->count; i++)
        option_set_free(&plan->points[i]);
    free(plan->points);
    *plan = (struct sweep_plan){0};
}

void sweep_plan_label(const struct sweep_plan *plan, const struct option_set *point,
                      char out[SWEEP_LABEL])
{
    size_t used = (size_t)snprintf(out, SWEEP_LABEL, "%s", option_text(point, &point_opt_strategy));
    for (size_t i = 0; i < plan->axis_count && used < SWEEP_LABEL; i++) {
        const struct option *option = plan->axes[i].option;
        if (plan->axes[i].count < 2 || option == &point_opt_strategy || !point_uses(point, option))
            continue;
        used += (size_t)snprintf(out + used, SWEEP_LABEL - used, "  %s %s", option->name,
                                 option_text(point, option));
    }
}
