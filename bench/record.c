/* Assembles a record. */
#include "bench/record.h"

#include "bench/launch.h"
#include "bench/provenance.h"
#include "bench/stats.h"

#include <math.h>
#include <sha2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *record_status(enum status status)
{
    switch (status) {
    case OK:
    case ERR_UNSUPPORTED:
    case ERR_TIMEOUT:
    case ERR_INTERRUPTED:
        return status_name(status);
    case ERR_MEMORY:
        return "oom";
    default:
        return "error";
    }
}

/* ---- identity ---- */

const char *record_option_text(const struct point *point, const struct option_setting *setting)
{
    if (setting->option == &point_opt_device && point->device)
        return point->device->name;
    if (setting->option == &point_opt_transport && point->transport)
        return point->transport->name;
    if (setting->option == &point_opt_platform && point->platform.name[0])
        return point->platform.name;
    return setting->text;
}

/* Does the setting say nothing that the defaults do not say? Where they run is judged by what was
 * resolved: naming the default device is no other case. "cpu" is the default of every full build. */
static bool is_default_case(const struct point *point, const struct option_setting *setting)
{
    if (setting->option == &point_opt_device)
        return point->device && strcmp(point->device->name, "cpu") == 0;
    if (setting->option != &point_opt_transport)
        return option_is_default(setting);
    for (const struct comm_ops *const *t = comm_transports(); *t && point->device; t++)
        if ((*t)->memory == point->device->memory)
            return *t == point->transport;
    return false;
}

void record_option_key(const struct option *option, char out[64])
{
    snprintf(out, 64, "%s", option->name);
    for (char *p = out; *p; p++)
        if (*p == '-')
            *p = '_';
}

static int compare_settings(const void *a, const void *b)
{
    const struct option_setting *x = *(const struct option_setting *const *)a;
    const struct option_setting *y = *(const struct option_setting *const *)b;
    return strcmp(x->option->name, y->option->name);
}

static void hash_text(SHA2_CTX *hash, const char *text)
{
    SHA256Update(hash, (const uint8_t *)text, strlen(text) + 1);
}

void record_case_id(const struct point *point, const struct option_set *options,
                    char out[RECORD_CASE_ID])
{
    const struct option_setting **used = calloc(options->count + 1, sizeof *used);
    ASSERT(used != NULL);
    size_t count = 0;
    for (size_t i = 0; i < options->count; i++) {
        const struct option_setting *setting = &options->settings[i];
        if (setting->option->is_identity && point_uses(options, setting->option) &&
            !is_default_case(point, setting))
            used[count++] = setting;
    }
    qsort(used, count, sizeof *used, compare_settings);
    SHA2_CTX hash;
    SHA256Init(&hash);
    hash_text(&hash, RECORD_SCHEMA);
    for (size_t i = 0; i < count; i++) {
        hash_text(&hash, used[i]->option->name);
        hash_text(&hash, record_option_text(point, used[i]));
    }
    hash_text(&hash, point->model ? model_sha256(point->model) : "");
    hash_text(&hash, point->init_sha256);
    free(used);
    char hex[SHA256_DIGEST_STRING_LENGTH];
    SHA256End(&hash, hex);
    snprintf(out, RECORD_CASE_ID, "%.32s", hex);
}

/* ---- config and model ---- */

static void add_setting(cJSON *config, const struct point *point, const struct option_setting *setting)
{
    char key[64];
    record_option_key(setting->option, key);
    const char *text = record_option_text(point, setting);
    if (*text == '\0' && setting->option->type != OPTION_TEXT)
        json_add_text(config, key, NULL);
    else if (setting->option == &point_opt_repeat)
        json_add_i64(config, key, point->repeat);
    else if (setting->option == &point_opt_warmup_runs)
        json_add_i64(config, key, point->warmup_runs);
    else if (setting->option->type == OPTION_INT)
        json_add_i64(config, key, setting->value.i);
    else if (setting->option->type == OPTION_REAL)
        json_add_number(config, key, setting->value.r, "not a number");
    else if (setting->option->type == OPTION_FLAG)
        json_add_bool(config, key, setting->value.flag);
    else
        json_add_text(config, key, text);
}

static void add_resolved(cJSON *config, const struct point *point)
{
    static const char *const axis_key[AXES] = {"tp", "ulysses", "ring", "pp", "cfg"};
    const struct problem *problem = &point->problem;
    cJSON *layout = json_add_object(config, "layout");
    for (int axis = 0; axis < AXES; axis++)
        json_add_i64(layout, axis_key[axis], point->layout.degree[axis]);
    cJSON *latent = json_add_object(config, "latent");
    json_add_i64(latent, "frames", problem->frames);
    json_add_i64(latent, "channels", problem->shape ? problem->shape->channels : 0);
    json_add_i64(latent, "height", problem->latent_height);
    json_add_i64(latent, "width", problem->latent_width);
    json_add_u64(config, "tokens", problem->tokens);
    json_add_i64(config, "batch", problem->batch);
}

/* Which description of which machine the times come from. */
static void add_platform(cJSON *record, const struct point *point)
{
    if (!point->platform.name[0])
        return;
    cJSON *object = json_add_object(record, "platform");
    json_add_text(object, "name", point->platform.name);
    json_add_text(object, "sha256", point->platform.sha256);
}

static void add_config(cJSON *record, const struct point *point)
{
    cJSON *config = json_add_object(record, "config");
    for (size_t i = 0; i < point->options->count; i++) {
        const struct option_setting *setting = &point->options->settings[i];
        if (point_uses(point->options, setting->option))
            add_setting(config, point, setting);
    }
    add_resolved(config, point);
}

static void add_model(cJSON *record, const struct point *point)
{
    cJSON *object = json_add_object(record, "model");
    json_add_text(object, "name", option_text(point->options, &point_opt_model));
    json_add_text(object, "sha256", point->model ? model_sha256(point->model) : NULL);
    const struct model_shape *shape = point->model ? model_shape(point->model) : NULL;
    if (!shape)
        return;
    json_add_text(object, "kind", shape->kind == MODEL_VIDEO ? "video" : "dit");
    json_add_text(object, "layout", shape->layout == LAYOUT_DIFFUSERS ? "diffusers" : "original");
    const struct {
        const char *key;
        int value;
    } number[] = {
        {"blocks", shape->blocks},       {"hidden", shape->hidden},
        {"heads", shape->heads},         {"mlp_hidden", shape->mlp_hidden},
        {"channels", shape->channels},   {"out_channels", shape->out_channels},
        {"patch", shape->patch},         {"classes", shape->classes},
        {"vae_factor", shape->vae_factor},
    };
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        json_add_i64(object, number[i].key, number[i].value);
}

/* ---- totals ---- */

static uint64_t claimed_total(const struct cost *claim)
{
    uint64_t sum = 0;
    for (int phase = 0; phase < STEP_PHASES; phase++)
        for (int op = 0; op < COMM_OPS; op++)
            for (int kind = 0; kind < TRAFFIC_KINDS; kind++)
                sum += claim->sent_bytes[phase][op][kind];
    return sum;
}

static uint64_t sent_total(const struct comm_counts *counts)
{
    uint64_t sum = 0;
    for (int phase = 0; phase < STEP_PHASES; phase++)
        for (int op = 0; op < COMM_OPS; op++)
            for (int kind = 0; kind < TRAFFIC_KINDS; kind++)
                sum += counts->of[phase][op][kind].sent_bytes;
    return sum;
}

/* ---- time ---- */

static void add_numbers(cJSON *parent, const char *key, const double *values, size_t n)
{
    cJSON *array = json_add_array(parent, key);
    for (size_t i = 0; i < n; i++)
        json_add_number(array, NULL, values[i], "");
}

/* Places of samples that are outliers, from 0. */
static void add_outliers(cJSON *latency, const double *samples, size_t n)
{
    bool *is_outlier = calloc(n + 1, sizeof *is_outlier);
    ASSERT(is_outlier != NULL);
    cJSON *array = json_add_array(latency, "outliers");
    if (stats_outliers(samples, n, is_outlier) > 0)
        for (size_t i = 0; i < n; i++)
            if (is_outlier[i])
                json_add_u64(array, NULL, i);
    free(is_outlier);
}

static void add_latency(cJSON *record, const struct measurement *m)
{
    const size_t n = (size_t)m->repeat;
    const char *few = n == 0 ? "no timed run (--repeat 0)" : "fewer than 6 samples, see --repeat";
    cJSON *latency = json_add_object(record, "latency_us");
    add_numbers(latency, "samples", m->latency_us, n);
    double *sorted = calloc(n + 1, sizeof *sorted);
    ASSERT(sorted != NULL);
    if (n > 0)
        memcpy(sorted, m->latency_us, n * sizeof *sorted);
    stats_sort(sorted, n);
    struct stats stats;
    stats_summarise(sorted, n, &stats);
    free(sorted);
    json_add_number(latency, "median", stats.median, few);
    if (stats.has_ci) {
        add_numbers(latency, "ci95", (const double[]){stats.ci_low, stats.ci_high}, 2);
    } else {
        json_add_text(latency, "ci95", NULL);
        json_add_text(latency, "ci95_reason", few);
    }
    json_add_number(latency, "min", stats.min, few);
    json_add_number(latency, "p95", stats.p95, few);
    json_add_number(latency, "max", stats.max, few);
    add_outliers(latency, m->latency_us, n);
    add_numbers(latency, "per_step", m->per_step_us, n > 0 ? (size_t)m->steps : 0);
    json_add_text(latency, "rank_reduce", "max");
    double skew = 0.0;
    for (int r = 0; r < m->nranks; r++)
        skew = fmax(skew, m->ranks[r].start_skew_us);
    json_add_number(latency, "start_skew", n > 0 ? skew : NAN, few);
    json_add_bool(latency, "oversubscribed", m->is_oversubscribed);
}

/* {"max": over ranks, "per_rank": [...]} of a time kept at `offset` in struct rank_result. */
static void add_rank_time(cJSON *record, const char *key, const struct measurement *m, size_t offset)
{
    cJSON *object = json_add_object(record, key);
    double most = m->repeat > 0 && m->nranks > 0 ? 0.0 : NAN;
    for (int r = 0; r < m->nranks; r++)
        most = fmax(most, *(const double *)((const char *)&m->ranks[r] + offset));
    json_add_number(object, "max", m->repeat > 0 ? most : NAN, "no timed run (--repeat 0)");
    cJSON *array = json_add_array(object, "per_rank");
    for (int r = 0; r < m->nranks && m->repeat > 0; r++)
        json_add_number(array, NULL, *(const double *)((const char *)&m->ranks[r] + offset), "");
}

/* Without bytes, T(comm) is the bare walk through the steps, and a quotient by it says nothing. */
static void add_overlap(cJSON *record, const struct measurement *m)
{
    const char *why = "needs runs of --mode full, compute and comm";
    double exposed = m->wall_full_us - m->wall_compute_us;
    bool sends = false;
    for (int r = 0; r < m->nranks; r++)
        sends = sends || sent_total(&m->ranks[r].counts) > 0;
    json_add_number(record, "comm_exposed_by_difference_us", exposed, why);
    bool is_known = sends && m->wall_comm_us > 0.0;
    json_add_number(record, "overlap", is_known ? 1.0 - exposed / m->wall_comm_us : NAN,
                    isnan(exposed) || sends ? why : "nothing is sent");
}

static void add_times(cJSON *record, const struct measurement *m)
{
    add_latency(record, m);
    add_rank_time(record, "compute_us", m, offsetof(struct rank_result, compute_us));
    add_rank_time(record, "comm_exposed_us", m, offsetof(struct rank_result, exposed_us));
    add_rank_time(record, "bubble_us", m, offsetof(struct rank_result, bubble_us));
    add_overlap(record, m);
}

/* ---- bytes ---- */

static bool kind_is_used(const struct measurement *m, int phase, int op, int kind)
{
    for (int r = 0; r < m->nranks; r++)
        if (m->ranks[r].counts.of[phase][op][kind].calls > 0 ||
            m->ranks[r].claim.sent_bytes[phase][op][kind] > 0)
            return true;
    return false;
}

static void add_kind(cJSON *kinds, const struct measurement *m, int phase, int op, int kind)
{
    cJSON *object = json_add_object(kinds, NULL);
    json_add_text(object, "phase", phase == PHASE_SYNC ? "sync" : "stale");
    json_add_text(object, "op", comm_op_name((enum comm_op)op));
    json_add_text(object, "traffic", traffic_name((enum traffic)kind));
    cJSON *calls = json_add_array(object, "calls");
    cJSON *payload = json_add_array(object, "payload_bytes");
    cJSON *sent = json_add_array(object, "sent_bytes");
    cJSON *claimed = json_add_array(object, "claimed_bytes");
    for (int r = 0; r < m->nranks; r++) {
        const struct comm_count *count = &m->ranks[r].counts.of[phase][op][kind];
        json_add_u64(calls, NULL, count->calls);
        json_add_u64(payload, NULL, count->payload_bytes);
        json_add_u64(sent, NULL, count->sent_bytes);
        json_add_u64(claimed, NULL, m->ranks[r].claim.sent_bytes[phase][op][kind]);
    }
}

static void count_steps(const struct point *point, int steps[STEP_PHASES])
{
    steps[PHASE_SYNC] = steps[PHASE_STALE] = 0;
    for (int step = 0; step < point->problem.steps; step++) {
        bool is_stale = strategy_step_is_stale(point->strategy, &point->problem, step);
        steps[is_stale ? PHASE_STALE : PHASE_SYNC]++;
    }
}

static void add_comm(cJSON *record, const struct point *point, const struct measurement *m)
{
    cJSON *comm = json_add_object(record, "comm");
    int steps[STEP_PHASES];
    count_steps(point, steps);
    json_add_i64(comm, "sync_steps", steps[PHASE_SYNC]);
    json_add_i64(comm, "stale_steps", steps[PHASE_STALE]);
    cJSON *sent = json_add_array(comm, "sent_bytes");
    cJSON *claimed = json_add_array(comm, "claimed_bytes");
    cJSON *moved = json_add_array(comm, "moved_bytes");
    uint64_t most = 0;
    for (int r = 0; r < m->nranks; r++) {
        uint64_t total = sent_total(&m->ranks[r].counts);
        most = total > most ? total : most;
        json_add_u64(sent, NULL, total);
        json_add_u64(claimed, NULL, claimed_total(&m->ranks[r].claim));
        json_add_u64(moved, NULL, m->ranks[r].moved_bytes);
    }
    json_add_u64(comm, "max_sent_bytes", most);
    cJSON *kinds = json_add_array(comm, "kinds");
    for (int phase = 0; phase < STEP_PHASES; phase++)
        for (int op = 0; op < COMM_OPS; op++)
            for (int kind = 0; kind < TRAFFIC_KINDS; kind++)
                if (kind_is_used(m, phase, op, kind))
                    add_kind(kinds, m, phase, op, kind);
}

static void add_ledger(cJSON *object, const struct memory_ledger *ledger)
{
    for (int p = 0; p < MEMORY_PURPOSES; p++)
        json_add_u64(object, memory_purpose_name((enum memory_purpose)p), ledger->peak[p]);
    json_add_u64(object, "peak", ledger->peak_total);
}

static void add_memory(cJSON *record, const struct measurement *m)
{
    struct memory_ledger most = {0};
    for (int r = 0; r < m->nranks; r++) {
        const struct memory_ledger *ledger = &m->ranks[r].memory;
        for (int p = 0; p < MEMORY_PURPOSES; p++)
            most.peak[p] = ledger->peak[p] > most.peak[p] ? ledger->peak[p] : most.peak[p];
        if (ledger->peak_total > most.peak_total)
            most.peak_total = ledger->peak_total;
    }
    cJSON *memory = json_add_object(record, "memory_bytes");
    add_ledger(memory, &most);
    cJSON *ranks = json_add_array(memory, "per_rank");
    for (int r = 0; r < m->nranks; r++) {
        cJSON *rank = json_add_object(ranks, NULL);
        add_ledger(rank, &m->ranks[r].memory);
        json_add_u64(rank, "claimed_stale", m->ranks[r].claim.stale_bytes);
    }
}

/* ---- error ---- */

static void add_error(cJSON *record, const struct error_report *report, const char *reason)
{
    if (!report) {
        json_add_text(record, "error", NULL);
        json_add_text(record, "error_reason", reason);
        return;
    }
    const struct error_metrics *metrics = &report->metrics;
    const char *bad = "the result holds values that are not finite";
    cJSON *error = json_add_object(record, "error");
    json_add_text(error, "reference", report->reference);
    json_add_number(error, "rel_l2", metrics->rel_l2, metrics->non_finite ? bad : "the reference is zero");
    json_add_number(error, "max_abs", metrics->max_abs, bad);
    json_add_number(error, "psnr_db", metrics->psnr_db,
                    metrics->non_finite ? bad
                    : metrics->max_abs == 0.0 ? "equal to the reference"
                                              : "the reference is constant");
    json_add_number(error, "psnr_range", metrics->psnr_range, bad);
    json_add_number(error, "ssim", metrics->ssim,
                    metrics->non_finite ? bad : "under 11 pixels, or a constant reference");
    json_add_number(error, "cosine", metrics->cosine, metrics->non_finite ? bad : "a zero latent");
    json_add_u64(error, "non_finite", metrics->non_finite);
    add_numbers(error, "per_step_rel_l2", report->per_step, report->steps);
    json_add_number(error, "noise_floor", report->noise_floor, report->noise_floor_reason);
}

/* What only ranks that are processes have. */
static void add_processes(cJSON *record, const struct point *point, const struct measurement *m)
{
    provenance_add_mpi(record, point->nranks);
    cJSON *ranks = (cJSON *)json_at(record, "memory_bytes.per_rank"), *rank;
    int r = 0;
    cJSON_ArrayForEach(rank, ranks)
        json_add_u64(rank, "process_peak", m->ranks[r++].process_peak_bytes);
}

cJSON *record_build(const struct record_facts *facts)
{
    const struct point *point = facts->point;
    char case_id[RECORD_CASE_ID];
    record_case_id(point, point->options, case_id);
    cJSON *record = cJSON_CreateObject();
    ASSERT(record != NULL);
    json_add_text(record, "schema", RECORD_SCHEMA);
    json_add_text(record, "case_id", case_id);
    json_add_text(record, "status", record_status(facts->status));
    json_add_text(record, "reason", facts->reason);
    json_add_i64(record, "seed", option_int(point->options, &point_opt_seed));
    add_model(record, point);
    json_add_text(record, "init_sha256", *point->init_sha256 ? point->init_sha256 : NULL);
    add_config(record, point);
    add_platform(record, point);
    if (facts->measurement) {
        add_times(record, facts->measurement);
        if (facts->measurement->repeat > 0) {
            add_comm(record, point, facts->measurement);
        } else {
            json_add_text(record, "comm", NULL);
            json_add_text(record, "comm_reason", "no timed run (--repeat 0)");
        }
        add_memory(record, facts->measurement);
        add_error(record, facts->error, facts->error_reason);
    }
    provenance_add(record, facts->argc, facts->argv, facts->start, facts->end);
    if (facts->measurement && facts->measurement->attention)
        json_add_text(cJSON_GetObjectItemCaseSensitive(record, "provenance"), "attention",
                      facts->measurement->attention);
    if (launch_library() && point->transport && strcmp(point->transport->name, "mpi") == 0)
        add_processes(record, point, facts->measurement);
    return record;
}
