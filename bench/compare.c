/* Joining and judging. */
#include "bench/compare.h"

#include "common/option.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TESTED_FROM = 9, INTERVAL_FROM = 6 };

static const double significance = 0.05, floors = 5.0;

/* ---- limits ---- */

static enum status parse_limit(const char *name, char *text, bool is_count, double *out)
{
    const struct option number = {.name = "fail-on", .type = OPTION_REAL, .min = 0, .max = 1e9};
    union option_value value;
    size_t n = strlen(text);
    bool is_percent = n > 0 && text[n - 1] == '%';
    if (is_percent)
        text[n - 1] = '\0';
    TRY(option_parse(&number, text, &value));
    if (is_count && is_percent)
        return FAIL(ERR_USAGE, "--fail-on %s=%s%%: a number of points, without %%", name, text);
    if (!is_count && !is_percent && value.r != 0.0)
        return FAIL(ERR_USAGE, "--fail-on %s=%s: write a percentage, as in %s=10%%", name, text, name);
    *out = is_percent ? value.r / 100.0 : value.r;
    return OK;
}

static enum status parse_words(char *text, struct compare_limits *limits)
{
    const struct {
        const char *name;
        double *value;
    } known[] = {
        {"latency", &limits->of[COMPARE_LATENCY]}, {"bytes", &limits->of[COMPARE_BYTES]},
        {"memory", &limits->of[COMPARE_MEMORY]},   {"error", &limits->of[COMPARE_ERROR]},
        {"simulated", &limits->simulated},         {"missing", &limits->missing},
    };
    enum { KNOWN = sizeof known / sizeof *known };
    for (char *word; (word = strsep(&text, ",")) != NULL;) {
        char *equals = strchr(word, '=');
        size_t i = 0;
        if (equals)
            *equals = '\0';
        while (i < KNOWN && strcmp(known[i].name, word) != 0)
            i++;
        if (!equals || i == KNOWN)
            return FAIL(ERR_USAGE, "--fail-on: \"%.60s\" is none of latency=, simulated=, bytes=, "
                                   "memory=, error=, missing=", word);
        TRY(parse_limit(word, equals + 1, known[i].value == &limits->missing, known[i].value));
    }
    return OK;
}

enum status compare_parse_limits(const char *text, struct compare_limits *limits)
{
    limits->simulated = NAN;
    limits->missing = INFINITY;
    for (int i = 0; i < COMPARE_ASPECTS; i++)
        limits->of[i] = INFINITY;
    char *copy = strdup(text);
    if (!copy)
        return FAIL(ERR_MEMORY, "--fail-on: no memory");
    enum status status = strcmp(text, "none") == 0 ? OK : parse_words(copy, limits);
    free(copy);
    if (isnan(limits->simulated))
        limits->simulated = limits->of[COMPARE_LATENCY];
    return status;
}

/* ---- the records of a case ---- */

static bool is_ok(const cJSON *record)
{
    const char *status = record ? json_text(record, "status") : NULL;
    return status && strcmp(status, "ok") == 0;
}

static bool is_case(const cJSON *record, const char *id)
{
    const char *other = json_text(record, "case_id");
    return other && strcmp(other, id) == 0;
}

/* The last ok record, else the last one. */
static const cJSON *find_case(const struct results *results, const char *id)
{
    const cJSON *found = NULL;
    for (size_t i = 0; i < results->count; i++)
        if (is_case(results->records[i], id) && (is_ok(results->records[i]) || !is_ok(found)))
            found = results->records[i];
    return found;
}

/* Samples of measured latency, sorted; owner: the caller. */
static double *collect_samples(const struct results *results, const char *id, const cJSON *only,
                               bool by_min, size_t *count)
{
    const cJSON *own = json_at(only, "latency_us.samples");
    size_t room = results->count + (size_t)(own ? cJSON_GetArraySize(own) : 0);
    double *samples = calloc(room + 1, sizeof *samples);
    ASSERT(samples != NULL);
    size_t n = 0;
    for (size_t i = 0; i < results->count; i++) {
        const cJSON *record = results->records[i];
        double value = json_number(record, by_min ? "latency_us.min" : "latency_us.median");
        if (is_case(record, id) && is_ok(record) && value > 0.0)
            samples[n++] = value;
    }
    if (n == 1) {
        n = 0;
        for (const cJSON *item = own ? own->child : NULL; item; item = item->next)
            if (cJSON_IsNumber(item) && item->valuedouble > 0.0)
                samples[n++] = item->valuedouble;
    }
    stats_sort(samples, n);
    *count = n;
    return samples;
}

/* ---- judging ---- */

static void set_change(struct compare_change *change, double base, double now)
{
    change->base = base;
    change->now = now;
    change->change = now == base ? 0.0 : base != 0.0 ? now / base - 1.0 : INFINITY;
    change->verdict = now == base ? COMPARE_SAME : now > base ? COMPARE_MORE : COMPARE_LESS;
}

static void set_unjudged(struct compare_change *change, const char *why)
{
    change->verdict = COMPARE_UNJUDGED;
    change->why = why;
}

/* True when both sides have the value; else the verdict is set. */
static bool both_known(struct compare_change *change, bool base, bool now)
{
    if (base && now)
        return true;
    change->verdict = base || now ? COMPARE_UNJUDGED : COMPARE_UNKNOWN;
    change->why = base ? "known in BASE only" : "known in NEW only";
    return false;
}

static void add_samples(struct compare_case *c, const struct results *base, const struct results *now,
                        const char *id, bool by_min)
{
    double *a = collect_samples(base, id, c->base, by_min, &c->base_samples);
    double *b = collect_samples(now, id, c->now, by_min, &c->now_samples);
    size_t n = c->base_samples, m = c->now_samples;
    stats_compare(a, n, b, m, &c->ratio);
    set_change(&c->of[COMPARE_LATENCY], stats_median(a, n), stats_median(b, m));
    struct stats x, y;
    stats_summarise(a, n, &x);
    stats_summarise(b, m, &y);
    c->overlaps = !x.has_ci || !y.has_ci || (x.ci_low <= y.ci_high && y.ci_low <= x.ci_high);
    if (n >= TESTED_FROM && m >= TESTED_FROM)
        c->p = stats_rank_sum(a, n, b, m);
    free(a);
    free(b);
}

/* What needs no test; with a test the verdict comes after Holm's correction. */
static void compare_latency(struct compare_case *c, const struct results *base,
                            const struct results *now, const char *id, bool by_min)
{
    struct compare_change *change = &c->of[COMPARE_LATENCY];
    double x = json_number(c->base, "latency_us.median"), y = json_number(c->now, "latency_us.median");
    const char *device = json_text(c->now, "config.device");
    c->is_simulated = device && strcmp(device, "sim") == 0;
    if (!both_known(change, !isnan(x), !isnan(y)))
        return;
    set_change(change, x, y);
    if (c->is_simulated)
        return;
    if (cJSON_IsTrue(json_at(c->base, "latency_us.oversubscribed")) ||
        cJSON_IsTrue(json_at(c->now, "latency_us.oversubscribed")))
        set_unjudged(change, "more ranks than cores");
    else
        add_samples(c, base, now, id, by_min);
}

static void judge_latency(struct compare_case *c, double noise)
{
    struct compare_change *change = &c->of[COMPARE_LATENCY];
    if (c->is_simulated || change->verdict <= COMPARE_UNJUDGED)
        return;
    size_t fewest = c->base_samples < c->now_samples ? c->base_samples : c->now_samples;
    bool differs = isnan(c->p) ? !c->overlaps : c->p < significance;
    double ratio = c->ratio.ratio;
    change->change = ratio - 1.0;
    if (fewest < INTERVAL_FROM)
        set_unjudged(change, "too few samples; --repeat 9");
    else if (!differs || fabs(ratio - 1.0) <= noise)
        change->verdict = COMPARE_SAME;
    else
        change->verdict = ratio > 1.0 ? COMPARE_MORE : COMPARE_LESS;
}

/* Per rank; the rank that grew most represents all, or the one that shrank most when none grew. */
static void compare_ranks(struct compare_change *change, const cJSON *base, const cJSON *now,
                          const char *key)
{
    if (!both_known(change, cJSON_IsArray(base), cJSON_IsArray(now)))
        return;
    set_change(change, 0.0, 0.0);
    if (cJSON_GetArraySize(base) != cJSON_GetArraySize(now)) {
        set_unjudged(change, "another number of ranks");
        return;
    }
    const cJSON *b = now->child;
    for (const cJSON *a = base->child; a; a = a->next, b = b->next) {
        struct compare_change one = {0};
        set_change(&one, json_number(a, key), json_number(b, key));
        bool is_first = a == base->child;
        bool grows = one.change > 0.0 ? one.change > change->change
                                      : change->change <= 0.0 && one.change < change->change;
        if (is_first || grows)
            *change = one;
    }
}

static void compare_errors(struct compare_case *c)
{
    struct compare_change *change = &c->of[COMPARE_ERROR];
    double x = json_number(c->base, "error.rel_l2"), y = json_number(c->now, "error.rel_l2");
    double floor = fmax(json_number(c->base, "error.noise_floor"),
                        json_number(c->now, "error.noise_floor"));
    if (!both_known(change, !isnan(x), !isnan(y)))
        return;
    set_change(change, x, y);
    if (x < floors * floor && y < floors * floor)
        change->verdict = COMPARE_SAME;
}

static void compare_sides(struct compare_case *c, const struct results *base, const struct results *now,
                          const char *id, bool by_min)
{
    c->p = NAN;
    c->ratio = (struct stats_ratio){.ratio = NAN, .low = NAN, .high = NAN};
    c->is_lost = is_ok(c->base) && !is_ok(c->now);
    if (!is_ok(c->base) || !is_ok(c->now))
        return;
    compare_latency(c, base, now, id, by_min);
    compare_ranks(&c->of[COMPARE_BYTES], json_at(c->base, "comm.sent_bytes"),
                  json_at(c->now, "comm.sent_bytes"), "");
    compare_ranks(&c->of[COMPARE_MEMORY], json_at(c->base, "memory_bytes.per_rank"),
                  json_at(c->now, "memory_bytes.per_rank"), "peak");
    compare_errors(c);
}

/* ---- all cases ---- */

static bool is_listed(const struct comparison *comparison, const char *id)
{
    for (size_t i = 0; i < comparison->count; i++) {
        const struct compare_case *c = &comparison->cases[i];
        if (is_case(c->base ? c->base : c->now, id))
            return true;
    }
    return false;
}

static void add_cases(struct comparison *out, const struct results *from, const struct results *base,
                      const struct results *now, bool by_min)
{
    for (size_t i = 0; i < from->count; i++) {
        const char *id = json_text(from->records[i], "case_id");
        if (!id || is_listed(out, id))
            continue;
        struct compare_case *c = &out->cases[out->count++];
        c->base = find_case(base, id);
        c->now = find_case(now, id);
        compare_sides(c, base, now, id, by_min);
        out->joined += c->base && c->now;
        out->added += !c->base;
        out->lost += c->is_lost;
    }
}

static void correct_all(struct comparison *out)
{
    double *p = calloc(out->count + 1, sizeof *p);
    ASSERT(p != NULL);
    for (size_t i = 0; i < out->count; i++)
        p[i] = out->cases[i].p;
    stats_holm(p, out->count);
    for (size_t i = 0; i < out->count; i++)
        out->cases[i].p = p[i];
    free(p);
}

static void find_regressions(struct compare_case *c, const struct compare_limits *limits)
{
    for (int i = 0; i < COMPARE_ASPECTS; i++) {
        struct compare_change *change = &c->of[i];
        double limit = i == COMPARE_LATENCY && c->is_simulated ? limits->simulated : limits->of[i];
        change->is_regression = change->verdict == COMPARE_MORE && change->change > limit;
    }
}

enum status compare_results(const struct results *base, const struct results *now,
                            const struct compare_limits *limits, struct comparison *out)
{
    *out = (struct comparison){0};
    out->cases = calloc(base->count + now->count + 1, sizeof *out->cases);
    if (!out->cases)
        return FAIL(ERR_MEMORY, "no memory for %zu points", base->count + now->count);
    add_cases(out, base, base, now, limits->by_min);
    add_cases(out, now, base, now, limits->by_min);
    correct_all(out);
    for (size_t i = 0; i < out->count; i++) {
        struct compare_case *c = &out->cases[i];
        bool regressed = false;
        judge_latency(c, limits->noise);
        find_regressions(c, limits);
        for (int k = 0; k < COMPARE_ASPECTS; k++)
            regressed = regressed || c->of[k].is_regression;
        out->regressed += regressed;
    }
    return OK;
}

void compare_free(struct comparison *comparison)
{
    free(comparison->cases);
    *comparison = (struct comparison){0};
}

bool compare_passes(const struct comparison *comparison, const struct compare_limits *limits)
{
    return comparison->regressed == 0 && (double)comparison->lost <= limits->missing;
}
