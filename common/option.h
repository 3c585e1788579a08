/* Options are data: one table entry gives parsing, range check, help, sweep axis and JSON echo.
 *
 * An option is one const object; a strategy that has options of its own defines them in its file and
 * lists pointers to them. Values live in a struct option_set, looked up by the option's address, so a
 * module reads `option_int(problem->options, &strategy_opt_staleness)` and nothing else knows. */
#ifndef COMMON_OPTION_H
#define COMMON_OPTION_H

#include "common/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_type {
    OPTION_INT,    /* int64, min..max */
    OPTION_REAL,   /* double, min..max, finite; decimal point whatever the locale */
    OPTION_CHOICE, /* one of choices[] */
    OPTION_RANGE,  /* "a-b" or "a" (inclusive, from min), or "all" */
    OPTION_TEXT,   /* any text: file names, model names */
    OPTION_EXTENT, /* "N" or "HxW": two positive integers */
    OPTION_FLAG,   /* takes no value on the command line; as text "" or "true", "false" */
};

struct option {
    const char *name; /* as on the command line without the dashes: "stale-mode" */
    enum option_type type;
    const char *fallback;       /* the default as text, parsed like a value; "" means: not set */
    double min, max;            /* OPTION_INT, OPTION_REAL, OPTION_RANGE, OPTION_EXTENT */
    const char *const *choices; /* OPTION_CHOICE: NULL-terminated */
    const char *unit;           /* "s", "pixels", or NULL */
    const char *help;           /* one sentence */
    bool is_identity;           /* takes part in case_id: it changes the result of a point */
};

union option_value {
    int64_t i;
    double r;
    int choice;
    struct {
        int first, last; /* inclusive; "all" is 0..INT_MAX */
    } range;
    struct {
        int height, width;
    } extent;
    bool flag;
};

struct option_setting {
    const struct option *option;
    union option_value value;
    char *text;    /* the value in canonical form; owned by the set; "" when not set (a flag: "false") */
    bool is_given; /* by the user, as opposed to the default */
};

struct option_set {
    struct option_setting *settings; /* one for every option added, in that order */
    size_t count;
};

/* Adds every option of the NULL-terminated table, at its default. A set starts as {0}. May be called
 * again with another table: an option that is in the set already is left alone; two options of one name
 * are ERR_INTERNAL. Free the set after a failure too. */
enum status option_set_add(struct option_set *set, const struct option *const *table) WARN_UNUSED;
/* dst, which must hold nothing, becomes independent of src. */
enum status option_set_copy(struct option_set *dst, const struct option_set *src) WARN_UNUSED;
void option_set_free(struct option_set *set);

/* Parses and range-checks `text`; ERR_USAGE names the option, the rule and the allowed values. */
enum status option_parse(const struct option *option, const char *text, union option_value *value)
    WARN_UNUSED;
/* The same, and the one text that all spellings of the value share: "0.5" for "5e-1", "32" for "32x32",
 * "all", "1-2", "true" for a flag's "". Owner of *canonical: the caller, with free(). */
enum status option_canonical(const struct option *option, const char *text,
                             union option_value *value, char **canonical) WARN_UNUSED;
/* Parses and stores. `name` is without dashes. ERR_USAGE: unknown (with the nearest name) or bad value. */
enum status option_assign(struct option_set *set, const char *name, const char *text) WARN_UNUSED;

/* Levenshtein's distance of what was typed from a name that exists, of at most 63 characters. */
size_t option_name_distance(const char *text, const char *name);

/* NULL: not in the set. */
const struct option_setting *option_find(const struct option_set *set, const char *name);
const struct option_setting *option_setting(const struct option_set *set, const struct option *option);
/* The option must be in the set and of that type. 0 when not set; option_text takes every type. */
int64_t option_int(const struct option_set *set, const struct option *option);
double option_real(const struct option_set *set, const struct option *option);
int option_choice(const struct option_set *set, const struct option *option);
const char *option_text(const struct option_set *set, const struct option *option);
/* True too when the user gave the default's value. */
bool option_is_default(const struct option_setting *setting);

#endif
