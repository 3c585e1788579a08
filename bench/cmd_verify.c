/* bench verify: every strategy against serial and against its own claim. */
#include "bench/cli.h"
#include "bench/launch.h"
#include "bench/measure.h"
#include "bench/point.h"
#include "bench/reference.h"
#include "bench/remote.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct option opt_full = {
    .name = "full", .type = OPTION_FLAG, .fallback = "",
    .help = "more ranks, shapes, guidance and bf16; minutes instead of seconds"};
static const struct option opt_model = {
    .name = "model", .type = OPTION_TEXT, .fallback = "models/dit-fashion.safetensors",
    .help = "model to run: a file, a folder or a preset"};
static const struct option opt_device = {
    .name = "device", .type = OPTION_TEXT, .fallback = "",
    .help = "the only device to verify; default: all that compute"};
static const struct option opt_strategy = {
    .name = "strategy", .type = OPTION_TEXT, .fallback = "",
    .help = "the only strategy to verify; default: all"};
static const struct option *const verify_options[] = {&opt_full, &opt_model, &opt_device, &opt_strategy,
                                                      NULL};

#define TOLERANCE_FP32 5e-6 /* docs/measuring.md, dtype table; other dtypes: 5 x the noise floor */

/* Settings beyond the defaults. A variant applies to strategies that use all of its options. */
struct variant {
    const char *name;
    const char *settings[4][2];
    bool is_exact; /* a stale strategy must then equal serial */
};
static const struct variant variants[] = {
    {"", {{0}}, false},
    {"all warm-up", {{"warmup-steps", "@steps"}}, true},
    {"staleness 2", {{"warmup-steps", "2"}, {"staleness", "2"}}, false},
    {"peers", {{"stale-mode", "peers"}}, false},
    {"peers allgather", {{"stale-mode", "peers"}, {"stale-transport", "allgather"}}, false},
    {"peers all warm-up", {{"stale-mode", "peers"}, {"warmup-steps", "@steps"}}, true},
    {"refresh 2", {{"refresh", "2"}}, false},
    {"mlp blocks 1-3", {{"stale-halves", "mlp"}, {"stale-blocks", "1-3"}}, false},
    {"extrapolate", {{"extrapolate", "0.5"}, {"warmup-steps", "2"}}, false},
    {"repair", {{"repair", "1"}, {"extrapolate", "1"}}, false},
    {"coded", {{"stale-mode", "coded"}}, false},
    {"coded all warm-up", {{"stale-mode", "coded"}, {"warmup-steps", "@steps"}}, true},
    {"2 patches", {{"patches", "2"}}, false},
    {"1 patch", {{"patches", "1"}}, true},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* A problem to solve with every strategy; more frames than one are for video models. The first is for all. */
struct shape {
    const char *resolution, *frames, *steps, *cfg_scale, *dtype;
    bool only_full;
};
static const struct shape shapes[] = {
    {"8", "1", "4", "1", "fp32", false},   {"4x12", "1", "3", "1", "fp32", false},
    {"8", "2", "3", "1", "fp32", false},   {"4x12", "5", "3", "1", "fp32", false},
    {"6x10", "1", "5", "1", "fp32", true}, {"6x10", "7", "3", "1", "fp32", true},
    {"8", "1", "3", "2.5", "fp32", true},  {"6x6", "8", "3", "2.5", "fp32", true},
    {"16", "1", "4", "1", "fp32", true},   {"8", "1", "4", "1", "bf16", true},
    {"8", "5", "4", "1", "bf16", true},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };
static const struct {
    const char *gpus;
    bool only_full;
} ranks[] = {{"1", false}, {"2", false}, {"3", false}, {"4", false}, {"5", true}, {"8", true}};
enum { RANKS = sizeof ranks / sizeof *ranks };

/* What came of one strategy in one variant on one device. */
struct row {
    const struct strategy *strategy;
    const struct variant *variant;
    size_t runs, refused, failed;
    double worst; /* rel_l2 */
    char refusal[200]; /* the first, with its ranks */
};

struct verify {
    struct option_set options;
    bool is_full, is_video;
    struct row *rows;
    size_t row_count, failed;
    const struct device_ops *device;
    const struct shape *shape;
    struct reference reference;
};

/* ---- checks ---- */

static void complain(struct verify *v, struct row *row, const char *gpus, const char *what)
{
    printf("FAILED %s %s, device %s, %s px, %s frames, %s, cfg %s, gpus %s: %s\n", row->strategy->name,
           row->variant->name, v->device->name, v->shape->resolution, v->shape->frames, v->shape->dtype,
           v->shape->cfg_scale, gpus, what);
    row->failed++;
    v->failed++;
}

static void check_bytes(struct verify *v, struct row *row, const char *gpus,
                        const struct measurement *m)
{
    char text[200];
    for (int r = 0; r < m->nranks; r++) {
        const struct rank_result *rank = &m->ranks[r];
        uint64_t total = 0;
        for (int phase = 0; phase < STEP_PHASES; phase++)
            for (int op = 0; op < COMM_OPS; op++)
                for (int kind = 0; kind < TRAFFIC_KINDS; kind++) {
                    uint64_t counted = rank->counts.of[phase][op][kind].sent_bytes;
                    uint64_t claimed = rank->claim.sent_bytes[phase][op][kind];
                    total += counted;
                    if (counted == claimed)
                        continue;
                    snprintf(text, sizeof text,
                             "rank %d sent %" PRIu64 " bytes of %s %s in %s steps, claims %" PRIu64, r,
                             counted, comm_op_name((enum comm_op)op),
                             traffic_name((enum traffic)kind), phase == PHASE_SYNC ? "sync" : "stale",
                             claimed);
                    complain(v, row, gpus, text);
                }
        if (total != rank->moved_bytes) {
            snprintf(text, sizeof text, "rank %d counted %" PRIu64 " bytes, its transport %" PRIu64, r,
                     total, rank->moved_bytes);
            complain(v, row, gpus, text);
        }
        if (rank->memory.peak[MEMORY_STALE] != rank->claim.stale_bytes) {
            snprintf(text, sizeof text, "rank %d holds %" PRIu64 " stale bytes, claims %" PRIu64, r,
                     rank->memory.peak[MEMORY_STALE], rank->claim.stale_bytes);
            complain(v, row, gpus, text);
        }
    }
}

static void check_error(struct verify *v, struct row *row, const char *gpus,
                        const struct measurement *m)
{
    double error = error_rel_l2(m->x0, v->reference.x0, m->values);
    bool is_fp32 = strcmp(v->shape->dtype, "fp32") == 0;
    double tolerance = is_fp32 ? TOLERANCE_FP32 : 5.0 * v->reference.noise_floor;
    row->worst = fmax(row->worst, error);
    if (row->strategy->freshness == STALE && !row->variant->is_exact && !isnan(error))
        return; /* reported, not judged */
    if (error <= tolerance)
        return;
    char text[100];
    snprintf(text, sizeof text, "rel. L2 %.3e against serial, allowed %.1e", error, tolerance);
    complain(v, row, gpus, text);
}

/* ---- running ---- */

static bool variant_applies(const struct strategy *strategy, const struct variant *variant)
{
    for (size_t i = 0; i < 4 && variant->settings[i][0]; i++) {
        bool known = false;
        for (const struct option *const *o = strategy->options; o && *o; o++)
            known = known || strcmp((*o)->name, variant->settings[i][0]) == 0;
        if (!known)
            return false;
    }
    return true;
}

static enum status set_options(const struct verify *v, const struct row *row, const char *gpus,
                               struct option_set *out)
{
    const char *const settings[][2] = {
        {"model", option_text(&v->options, &opt_model)}, {"device", v->device->name},
        {"strategy", row ? row->strategy->name : "serial"}, {"gpus", gpus},
        {"resolution", v->shape->resolution}, {"frames", v->shape->frames}, {"steps", v->shape->steps},
        {"cfg-scale", v->shape->cfg_scale}, {"dtype", v->shape->dtype}, {"repeat", "1"},
        {"warmup-runs", "0"},
    };
    TRY(point_options_init(out));
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        TRY(option_assign(out, settings[i][0], settings[i][1]));
    TRY(remote_fill_options(out));
    for (size_t i = 0; row && i < 4 && row->variant->settings[i][0]; i++) {
        const char *value = row->variant->settings[i][1];
        TRY(option_assign(out, row->variant->settings[i][0],
                          strcmp(value, "@steps") == 0 ? v->shape->steps : value));
    }
    return OK;
}

static void note_refusal(struct row *row, const char *gpus)
{
    if (row->refused++ == 0)
        snprintf(row->refusal, sizeof row->refusal, "gpus %.8s: %.180s", gpus, status_first()->text);
}

static enum status verify_point(struct verify *v, struct row *row, const char *gpus)
{
    struct option_set options = {0};
    struct point point = {0};
    struct measurement m = {0};
    enum status status = set_options(v, row, gpus, &options);
    if (status == OK)
        status = point_resolve(&options, &point);
    const struct measure_request request = {.want_output = true};
    if (status == OK)
        status = measure_point(&point, &request, &m);
    if (status == OK) {
        row->runs++;
        check_bytes(v, row, gpus, &m);
        check_error(v, row, gpus, &m);
    } else if (status == ERR_UNSUPPORTED) {
        note_refusal(row, gpus);
        status_clear();
        status = OK;
    } else if (status != ERR_USAGE && status != ERR_IO && status != ERR_FORMAT) {
        complain(v, row, gpus, status_first()->text);
        status_clear();
        status = OK;
    }
    measure_free(&m);
    point_close(&point);
    option_set_free(&options);
    return status;
}

static enum status make_reference(struct verify *v)
{
    struct option_set options = {0};
    struct point point = {0};
    enum status status = set_options(v, NULL, "1", &options);
    if (status == OK)
        status = point_resolve(&options, &point);
    if (status == OK) {
        v->is_video = point.problem.shape->kind == MODEL_VIDEO;
        status = reference_serial(&point, NULL, NULL, &v->reference);
    }
    point_close(&point);
    option_set_free(&options);
    return status;
}

/* Under mpirun, at most as many ranks as it started; none after one failed inside timing. */
static bool can_launch(const char *gpus)
{
    return !launch_has_begun() || (atoi(gpus) <= launch_outer_ranks() && !launch_is_over());
}

static enum status verify_shape(struct verify *v)
{
    enum status status = make_reference(v);
    if (status == ERR_UNSUPPORTED) { /* a device without this dtype */
        status_clear();
        return OK;
    }
    for (size_t i = 0; i < v->row_count && status == OK; i++)
        for (size_t r = 0; r < RANKS && status == OK; r++)
            if ((v->is_full || !ranks[r].only_full) && can_launch(ranks[r].gpus))
                status = verify_point(v, &v->rows[i], ranks[r].gpus);
    reference_free(&v->reference);
    return status;
}

static const char *verdict(const struct row *row)
{
    if (row->failed > 0)
        return "FAILED";
    if (row->runs == 0)
        return row->refused > 0 ? "refused" : "not run";
    return row->strategy->freshness == FRESH || row->variant->is_exact
               ? "ok: exact, bytes as claimed"
               : "ok: bytes as claimed, error reported";
}

static void print_refusals(const struct verify *v)
{
    printf("\nwhy refused, the first of each\n");
    for (size_t i = 0; i < v->row_count; i++)
        if (v->rows[i].refused > 0)
            printf("%-12s %-20s %s\n", v->rows[i].strategy->name, v->rows[i].variant->name,
                   v->rows[i].refusal);
}

static void print_rows(const struct verify *v)
{
    size_t refused = 0;
    printf("\n%-8s %-12s %-20s %5s %8s %14s  %s\n", "device", "strategy", "variant", "runs", "refused",
           "worst rel. L2", "verdict");
    for (size_t i = 0; i < v->row_count; i++) {
        const struct row *row = &v->rows[i];
        refused += row->refused;
        printf("%-8s %-12s %-20s %5zu %8zu %14.2e  %s\n", v->device->name, row->strategy->name,
               row->variant->name, row->runs, row->refused, row->worst, verdict(row));
    }
    if (refused > 0)
        print_refusals(v);
}

static enum status verify_device(struct verify *v)
{
    for (size_t i = 0; i < v->row_count; i++) {
        struct row *row = &v->rows[i];
        *row = (struct row){.strategy = row->strategy, .variant = row->variant};
    }
    for (size_t s = 0; s < SHAPES; s++) {
        v->shape = &shapes[s];
        if ((v->is_full || !v->shape->only_full) && (v->is_video || strcmp(v->shape->frames, "1") == 0))
            TRY(verify_shape(v));
    }
    print_rows(v);
    return OK;
}

/* ---- what to verify ---- */

static enum status list_rows(struct verify *v)
{
    const char *only = option_text(&v->options, &opt_strategy);
    if (*only && !strategy_find(only))
        return FAIL(ERR_USAGE, "--strategy %.60s: no such strategy; see bench list strategies", only);
    for (const struct strategy *const *s = strategy_list(); *s; s++)
        for (size_t i = 0; i < VARIANTS; i++) {
            if ((*only && strcmp(only, (*s)->name)) || !variant_applies(*s, &variants[i]))
                continue;
            struct row *grown = realloc(v->rows, (v->row_count + 1) * sizeof *grown);
            if (!grown)
                return FAIL(ERR_MEMORY, "no memory for %zu rows", v->row_count + 1);
            v->rows = grown;
            grown[v->row_count++] = (struct row){.strategy = *s, .variant = &variants[i]};
        }
    return OK;
}

static enum status verify_devices(struct verify *v)
{
    const char *only = option_text(&v->options, &opt_device);
    if (*only && !device_find(only))
        return FAIL(ERR_USAGE, "--device %.60s: no such device; see bench list devices", only);
    for (const struct device_ops *const *d = device_list(); *d; d++) {
        if (*only ? strcmp(only, (*d)->name) != 0 : (*d)->memory == MEMORY_VIRTUAL)
            continue;
        v->device = *d;
        TRY(verify_device(v));
    }
    return OK;
}

static enum status run(const struct cli *cli)
{
    struct verify v = {0};
    enum status status = cli_options(cli, &v.options);
    if (status == OK)
        v.is_full = option_setting(&v.options, &opt_full)->value.flag;
    if (status == OK)
        status = list_rows(&v);
    if (status == OK)
        status = verify_devices(&v);
    free(v.rows);
    option_set_free(&v.options);
    if (status == OK && v.failed > 0)
        return FAIL(ERR_MISMATCH, "%zu checks failed", v.failed);
    return status;
}

const struct command command_verify = {
    .name = "verify",
    .summary = "every strategy against serial and against its own claim",
    .synopsis = "[--full] [--strategy NAME] [--device NAME] [--model MODEL]",
    .description =
        "Runs every strategy over numbers of ranks, shapes and devices. Exact strategies, and stale ones "
        "whose warm-up covers every step, must equal serial within the dtype's tolerance; the bytes "
        "counted must equal the bytes claimed, for every rank, operation and kind, and what the "
        "transport itself counted; the memory that stale values hold must equal the claim. The error "
        "of other stale runs is reported, never judged. A refused combination is no failure; the first "
        "reason of each row follows the table. A video model gets shapes with several frames.",
    .examples = "  bench verify\n  bench verify --full --strategy tp-stale --device ref\n"
                "  bench verify --model bench-video\n",
    .uses_ranks = true,
    .options = verify_options,
    .run = run,
};
