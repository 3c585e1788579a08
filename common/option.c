/* Sets of options: defaults, assignment, looking up. */
#include "common/option.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_LENGTH = 63 };

static enum status canonical_default(const struct option *option, union option_value *value,
                                     char **out)
{
    if (*option->fallback)
        return option_canonical(option, option->fallback, value, out);
    if (option->type == OPTION_FLAG)
        return option_canonical(option, "false", value, out);
    char *printed = strdup("");
    if (!printed)
        return FAIL(ERR_MEMORY, "--%s: no memory for its default", option->name);
    memset(value, 0, sizeof *value);
    *out = printed;
    return OK;
}

/* ---- sets ---- */

static enum status add_option(struct option_set *set, const struct option *option)
{
    const struct option_setting *known = option_find(set, option->name);
    if (known && known->option == option)
        return OK;
    if (known)
        return FAIL(ERR_INTERNAL, "two options are called --%s", option->name);
    ASSERT_CMP(strlen(option->name), <=, NAME_MAX_LENGTH);

    struct option_setting setting = {.option = option};
    TRY(canonical_default(option, &setting.value, &setting.text));
    struct option_setting *settings =
        realloc(set->settings, (set->count + 1) * sizeof *set->settings);
    if (!settings) {
        free(setting.text);
        return FAIL(ERR_MEMORY, "no memory for option --%s", option->name);
    }
    settings[set->count++] = setting;
    set->settings = settings;
    return OK;
}

enum status option_set_add(struct option_set *set, const struct option *const *table)
{
    for (; *table; table++)
        TRY(add_option(set, *table));
    return OK;
}

enum status option_set_copy(struct option_set *dst, const struct option_set *src)
{
    struct option_set copy = {.settings = calloc(src->count + 1, sizeof *copy.settings)};
    if (!copy.settings)
        return FAIL(ERR_MEMORY, "no memory to copy %zu options", src->count);
    for (; copy.count < src->count; copy.count++) {
        struct option_setting *setting = &copy.settings[copy.count];
        *setting = src->settings[copy.count];
        setting->text = strdup(setting->text);
        if (!setting->text) {
            option_set_free(&copy);
            return FAIL(ERR_MEMORY, "no memory to copy %zu options", src->count);
        }
    }
    *dst = copy;
    return OK;
}

void option_set_free(struct option_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        free(set->settings[i].text);
    free(set->settings);
    *set = (struct option_set){0};
}

/* ---- the nearest name ---- */

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* One row of the table, a column for each character of the name. */
size_t option_name_distance(const char *text, const char *name)
{
    size_t row[NAME_MAX_LENGTH + 1], length = strlen(name);
    ASSERT_CMP(length, <=, NAME_MAX_LENGTH);
    for (size_t j = 0; j <= length; j++)
        row[j] = j;
    for (size_t i = 0; text[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 1; j <= length; j++) {
            size_t above = row[j];
            row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (text[i] != name[j - 1]));
            diagonal = above;
        }
    }
    return row[length];
}

static enum status fail_unknown(const struct option_set *set, const char *name)
{
    const char *nearest = NULL;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < set->count; i++) {
        const char *candidate = set->settings[i].option->name;
        size_t distance = option_name_distance(name, candidate);
        if (distance < least) {
            least = distance;
            nearest = candidate;
        }
    }
    if (!nearest)
        return FAIL(ERR_USAGE, "--%.60s: unknown option; there are none here", name);
    return FAIL(ERR_USAGE, "--%.60s: unknown option; the nearest is --%s", name, nearest);
}

enum status option_assign(struct option_set *set, const char *name, const char *text)
{
    for (size_t i = 0; i < set->count; i++) {
        struct option_setting *setting = &set->settings[i];
        if (strcmp(setting->option->name, name))
            continue;
        char *printed;
        TRY(option_canonical(setting->option, text, &setting->value, &printed));
        free(setting->text);
        setting->text = printed;
        setting->is_given = true;
        return OK;
    }
    return fail_unknown(set, name);
}

/* ---- looking up ---- */

const struct option_setting *option_find(const struct option_set *set, const char *name)
{
    for (size_t i = 0; i < set->count; i++)
        if (!strcmp(set->settings[i].option->name, name))
            return &set->settings[i];
    return NULL;
}

const struct option_setting *option_setting(const struct option_set *set,
                                            const struct option *option)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->settings[i].option == option)
            return &set->settings[i];
    return NULL;
}

static const struct option_setting *
setting_of_type(const struct option_set *set, const struct option *option, enum option_type type)
{
    const struct option_setting *setting = option_setting(set, option);
    ASSERT(setting != NULL);
    ASSERT_CMP(option->type, ==, type);
    return setting;
}

int64_t option_int(const struct option_set *set, const struct option *option)
{
    return setting_of_type(set, option, OPTION_INT)->value.i;
}

double option_real(const struct option_set *set, const struct option *option)
{
    return setting_of_type(set, option, OPTION_REAL)->value.r;
}

int option_choice(const struct option_set *set, const struct option *option)
{
    return setting_of_type(set, option, OPTION_CHOICE)->value.choice;
}

const char *option_text(const struct option_set *set, const struct option *option)
{
    return setting_of_type(set, option, option->type)->text;
}

bool option_is_default(const struct option_setting *setting)
{
    union option_value value;
    char *text;
    if (!setting->is_given)
        return true;
    if (canonical_default(setting->option, &value, &text) != OK)
        return false;
    bool same = !strcmp(text, setting->text);
    free(text);
    return same;
}
