/* One value: text to number and back, in the C locale whatever the process has set. */
#include "common/option.h"

#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    REAL_TEXT = 40,  /* a printed double */
    RULE_TEXT = 320, /* the allowed values in words */
};

/* ---- numbers, whatever the locale ---- */

static locale_t c_locale;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    ASSERT(c_locale != (locale_t)0);
}

static locale_t plain_locale(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_c_locale);
    return c_locale;
}

/* The shortest text that reads back as the same number. */
static void print_real(double value, char out[REAL_TEXT])
{
    locale_t former = uselocale(plain_locale());
    if (value == 0)
        value = 0; /* no "-0" */
    if (fabs(value) < 1e15 && value == floor(value))
        snprintf(out, REAL_TEXT, "%.0f", value);
    else
        for (int digits = 1; digits <= 17; digits++) {
            snprintf(out, REAL_TEXT, "%.*g", digits, value);
            if (strtod(out, NULL) == value)
                break;
        }
    uselocale(former);
}

/* ---- parsing: each returns what is wrong with the text, or NULL ---- */

static const char *const out_of_range = "out of range";

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_within(const struct option *option, double value)
{
    return value >= option->min && value <= option->max;
}

/* An integer at the start of *text, which moves behind it. */
static const char *scan_integer(const char **text, int64_t *out)
{
    const char *p = *text;
    if (!is_digit(p[*p == '-'])) /* strtoll would skip spaces and take a plus sign */
        return "not an integer";
    char *end;
    errno = 0;
    long long value = strtoll(p, &end, 10);
    if (errno)
        return out_of_range;
    *text = end;
    *out = value;
    return NULL;
}

static const char *parse_int(const struct option *option, const char *text,
                             union option_value *value)
{
    int64_t i;
    const char *why = scan_integer(&text, &i);
    if (why)
        return why;
    if (*text)
        return "not an integer";
    if (!is_within(option, (double)i))
        return out_of_range;
    value->i = i;
    return NULL;
}

static const char *parse_real(const struct option *option, const char *text,
                              union option_value *value)
{
    const char *const not_number = "not a decimal number";
    /* strtod would take spaces, hexadecimal, "nan" and "inf" too. */
    if (!*text || text[strspn(text, "0123456789+-.eE")] || *text == '+')
        return not_number;
    char *end;
    double r = strtod_l(text, &end, plain_locale());
    if (*end)
        return not_number;
    if (!isfinite(r) || !is_within(option, r))
        return out_of_range;
    value->r = r;
    return NULL;
}

static const char *parse_choice(const struct option *option, const char *text,
                                union option_value *value)
{
    for (int i = 0; option->choices[i]; i++)
        if (!strcmp(option->choices[i], text)) {
            value->choice = i;
            return NULL;
        }
    return "unknown";
}

/* "a" or "a<separator>b" */
static const char *scan_pair(const struct option *option, const char *text, char separator,
                             const char *malformed, int pair[2])
{
    int64_t first, second;
    const char *why = scan_integer(&text, &first);
    if (why)
        return why;
    second = first;
    if (*text == separator) {
        text++;
        if ((why = scan_integer(&text, &second)))
            return why;
    }
    if (*text)
        return malformed;
    if (!is_within(option, (double)first) || !is_within(option, (double)second) || first < 0 ||
        first > INT_MAX || second < 0 || second > INT_MAX)
        return out_of_range;
    pair[0] = (int)first;
    pair[1] = (int)second;
    return NULL;
}

static const char *parse_range(const struct option *option, const char *text,
                               union option_value *value)
{
    int pair[2] = {0, INT_MAX};
    if (strcmp(text, "all")) {
        const char *why = scan_pair(option, text, '-', "not a range", pair);
        if (why)
            return why;
        if (pair[0] > pair[1])
            return "a range that ends before it starts";
    }
    value->range.first = pair[0];
    value->range.last = pair[1];
    return NULL;
}

static const char *parse_extent(const struct option *option, const char *text,
                                union option_value *value)
{
    int pair[2];
    const char *why = scan_pair(option, text, 'x', "not an extent", pair);
    if (why)
        return why;
    if (pair[0] < 1 || pair[1] < 1)
        return out_of_range;
    value->extent.height = pair[0];
    value->extent.width = pair[1];
    return NULL;
}

static const char *parse_text(const struct option *option, const char *text,
                              union option_value *value)
{
    (void)option;
    (void)text;
    (void)value;
    return NULL;
}

/* Given without a value, a flag is on. */
static const char *parse_flag(const struct option *option, const char *text,
                              union option_value *value)
{
    (void)option;
    if (*text && strcmp(text, "true") && strcmp(text, "false"))
        return "neither true nor false";
    value->flag = strcmp(text, "false") != 0;
    return NULL;
}

static const char *(*const parsers[])(const struct option *, const char *, union option_value *) = {
    [OPTION_INT] = parse_int,     [OPTION_REAL] = parse_real, [OPTION_CHOICE] = parse_choice,
    [OPTION_RANGE] = parse_range, [OPTION_TEXT] = parse_text, [OPTION_EXTENT] = parse_extent,
    [OPTION_FLAG] = parse_flag,
};

/* ---- what is allowed, in words ---- */

static void list_choices(const struct option *option, char rule[RULE_TEXT])
{
    size_t used = 0;
    for (int i = 0; option->choices[i] && used < RULE_TEXT; i++)
        used += (size_t)snprintf(rule + used, RULE_TEXT - used, "%s%s", i ? ", " : "",
                                 option->choices[i]);
}

static void describe_allowed(const struct option *option, char rule[RULE_TEXT])
{
    static const char *const forms[] = {
        [OPTION_INT] = "an integer",
        [OPTION_REAL] = "a number",
        [OPTION_RANGE] = "a, a-b or all, numbers",
        [OPTION_EXTENT] = "N or HxW, positive integers",
    };
    if (option->type == OPTION_CHOICE) {
        list_choices(option, rule);
        return;
    }
    if (option->type == OPTION_FLAG) {
        snprintf(rule, RULE_TEXT, "no value, true or false");
        return;
    }
    char min[REAL_TEXT], max[REAL_TEXT];
    print_real(option->min, min);
    print_real(option->max, max);
    snprintf(rule, RULE_TEXT, "%s from %s to %s%s%s", forms[option->type], min, max,
             option->unit ? " " : "", option->unit ? option->unit : "");
}

enum status option_parse(const struct option *option, const char *text, union option_value *value)
{
    union option_value parsed;
    memset(&parsed, 0, sizeof parsed);
    const char *why = parsers[option->type](option, text, &parsed);
    if (why) {
        char rule[RULE_TEXT];
        describe_allowed(option, rule);
        return FAIL(ERR_USAGE, "--%s: \"%.60s\" is %s; allowed: %s", option->name, text, why, rule);
    }
    *value = parsed;
    return OK;
}

/* ---- canonical text ---- */

/* out has room for `text` and for REAL_TEXT. */
static void print_value(const struct option *option, const union option_value *value,
                        const char *text, char *out, size_t size)
{
    switch (option->type) {
    case OPTION_INT:
        snprintf(out, size, "%lld", (long long)value->i);
        break;
    case OPTION_REAL:
        print_real(value->r, out);
        break;
    case OPTION_RANGE:
        if (value->range.first == 0 && value->range.last == INT_MAX)
            snprintf(out, size, "all");
        else if (value->range.first == value->range.last)
            snprintf(out, size, "%d", value->range.first);
        else
            snprintf(out, size, "%d-%d", value->range.first, value->range.last);
        break;
    case OPTION_EXTENT:
        if (value->extent.height == value->extent.width)
            snprintf(out, size, "%d", value->extent.height);
        else
            snprintf(out, size, "%dx%d", value->extent.height, value->extent.width);
        break;
    case OPTION_FLAG:
        snprintf(out, size, "%s", value->flag ? "true" : "false");
        break;
    case OPTION_CHOICE:
    case OPTION_TEXT:
        snprintf(out, size, "%s", text);
        break;
    }
}

enum status option_canonical(const struct option *option, const char *text,
                             union option_value *value, char **out)
{
    union option_value parsed;
    TRY(option_parse(option, text, &parsed));
    size_t size = strlen(text) + REAL_TEXT;
    char *printed = malloc(size);
    if (!printed)
        return FAIL(ERR_MEMORY, "--%s: no memory for its value", option->name);
    print_value(option, &parsed, text, printed, size);
    *value = parsed;
    *out = printed;
    return OK;
}
