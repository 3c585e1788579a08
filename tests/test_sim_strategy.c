/* Every strategy in virtual time against the same strategy on threads: the same bytes, the same order of
 * operations, the same memory; and what must hold whatever the platform. */
#include "tests/run_point.h"

#include "bench/platform_file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PLAIN "platform=tests/platforms/plain.json "

static const char *problem_of(const struct strategy *s)
{
    return s->runs_image ? "model=bench-image resolution=16 steps=3 warmup-steps=1 "
                         : "model=bench-video resolution=16 frames=4 steps=2 ";
}

static int most_ranks(const struct strategy *s)
{
    return strcmp(s->name, "serial") == 0 ? 1 : 4;
}

/* ---- the same as on threads ---- */

struct traced {
    struct option_set options;
    struct point point;
    struct measurement m;
};

static bool trace(struct traced *t, const char *where, const struct strategy *s, int gpus)
{
    char line[512], *rest = NULL;
    struct measure_request request = {.want_trace = true};
    *t = (struct traced){.options = {0}};
    assert_int_equal(point_options_init(&t->options), OK);
    snprintf(line, sizeof line, "%sstrategy=%s gpus=%d repeat=1 warmup-runs=0 %s", problem_of(s),
             s->name, gpus, where);
    for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        assert_int_equal(option_assign(&t->options, word, equals + 1), OK);
    }
    enum status status = point_resolve(&t->options, &t->point);
    if (status == OK)
        status = measure_point(&t->point, &request, &t->m);
    if (status != OK && status != ERR_UNSUPPORTED)
        fail_msg("%s on %d: %s", s->name, gpus, status_first()->text);
    status_clear();
    return status == OK;
}

static void traced_free(struct traced *t)
{
    measure_free(&t->m);
    point_close(&t->point);
    option_set_free(&t->options);
}

static bool same_event(const struct trace_event *a, const struct trace_event *b)
{
    return a->rank == b->rank && a->peer == b->peer && a->step == b->step && a->layer == b->layer &&
           a->patch == b->patch && a->traffic == b->traffic && strcmp(a->name, b->name) == 0 &&
           strcmp(a->lane, b->lane) == 0;
}

static void compare(const char *name, const struct traced *real, const struct traced *sim)
{
    assert_true(real->m.event_count > 0);
    if (real->m.event_count != sim->m.event_count)
        fail_msg("%s: %zu events on threads, %zu simulated", name, real->m.event_count,
                 sim->m.event_count);
    for (size_t i = 0; i < real->m.event_count; i++)
        if (!same_event(&real->m.events[i], &sim->m.events[i]))
            fail_msg("%s: event %zu: %s of layer %d on rank %d, simulated %s of layer %d on rank %d",
                     name, i, real->m.events[i].name, real->m.events[i].layer, real->m.events[i].rank,
                     sim->m.events[i].name, sim->m.events[i].layer, sim->m.events[i].rank);
    for (int r = 0; r < real->m.nranks; r++) {
        const struct rank_result *a = &real->m.ranks[r], *b = &sim->m.ranks[r];
        assert_memory_equal(&a->counts, &b->counts, sizeof a->counts);
        assert_memory_equal(&a->claim, &b->claim, sizeof a->claim);
        assert_int_equal(a->moved_bytes, b->moved_bytes);
        for (int p = 0; p < MEMORY_PURPOSES; p++)
            if (a->memory.peak[p] != b->memory.peak[p])
                fail_msg("%s: rank %d holds %llu bytes of %s, simulated %llu", name, r,
                         (unsigned long long)a->memory.peak[p], memory_purpose_name(p),
                         (unsigned long long)b->memory.peak[p]);
        assert_int_equal(a->memory.peak_total, b->memory.peak_total);
    }
}

static void equals_threads(void **state)
{
    (void)state;
    char platform[600];
    const char *root = getenv("DITTO_TEST_ROOT");
    snprintf(platform, sizeof platform, "platform=%s/tests/platforms/plain.json", root ? root : ".");
    for (const struct strategy *const *s = strategy_list(); *s; s++)
        for (int gpus = 1; gpus <= most_ranks(*s) && gpus <= 3; gpus++) { /* 3: uneven */
            struct traced real, sim;
            bool runs = trace(&real, "device=ref", *s, gpus);
            assert_int_equal(trace(&sim, platform, *s, gpus), runs);
            if (runs)
                compare((*s)->name, &real, &sim);
            traced_free(&real);
            traced_free(&sim);
        }
}

/* ---- on any platform ---- */

/* NAN: refused. */
static double latency_us(const char *problem, const char *strategy, int gpus, const struct platform *p,
                         const char *mode)
{
    struct option_set o;
    struct point point;
    struct measurement m = {0};
    struct measure_request request = {0};
    char line[512], *rest = NULL;
    assert_int_equal(point_options_init(&o), OK);
    snprintf(line, sizeof line, "%sstrategy=%s gpus=%d mode=%s", problem, strategy, gpus, mode);
    for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        assert_int_equal(option_assign(&o, word, equals + 1), OK);
    }
    enum status status = point_resolve_on(&o, p, NULL, &point);
    if (status == OK)
        status = measure_point(&point, &request, &m);
    if (status != OK && status != ERR_UNSUPPORTED)
        fail_msg("%s on %d: %s", strategy, gpus, status_first()->text);
    status_clear();
    double us = status == OK ? m.latency_us[0] : NAN;
    measure_free(&m);
    point_close(&point);
    option_set_free(&o);
    return us;
}

static struct platform platform_named(const char *name)
{
    struct platform p;
    if (platform_load(name, &p) != OK)
        fail_msg("%s", status_first()->text);
    return p;
}

#define LARGE_IMAGE "model=dit-b-2 resolution=1024 steps=4 warmup-steps=2 dtype=bf16 "
#define LARGE_VIDEO "model=latte-xl resolution=256 frames=16 steps=2 dtype=bf16 "

static const char *large_problem(const struct strategy *s)
{
    return s->runs_image ? LARGE_IMAGE : LARGE_VIDEO;
}

static void more_bandwidth_is_never_slower(void **state)
{
    (void)state;
    for (const struct strategy *const *s = strategy_list(); *s; s++) {
        struct platform p = platform_named("l40-pcie");
        double before = latency_us(large_problem(*s), (*s)->name, most_ranks(*s), &p, "full");
        for (int doubling = 0; doubling < 3; doubling++) {
            p.node.bus *= 2;
            p.node.all_to_all *= 2;
            double now = latency_us(large_problem(*s), (*s)->name, most_ranks(*s), &p, "full");
            if (!(now <= before))
                fail_msg("%s: %g us became %g us with twice the bandwidth", (*s)->name, before, now);
            before = now;
        }
    }
}

/* Free communication leaves computing alone; the pipeline still has to fill. */
static void free_links_leave_computing(void **state)
{
    (void)state;
    struct platform p = platform_named("h100-nvlink");
    p.protocol = PROTOCOL_ALPHA_BETA;
    p.node.latency_s = 0;
    p.node.bus = p.node.all_to_all = 1e30;
    for (const struct strategy *const *s = strategy_list(); *s; s++) {
        bool is_pipeline = strcmp((*s)->name, "pipefusion") == 0;
        double full = latency_us(large_problem(*s), (*s)->name, most_ranks(*s), &p, "full");
        double compute = latency_us(large_problem(*s), (*s)->name, most_ranks(*s), &p, "compute");
        if (is_pipeline ? !(full >= compute) : !(full == compute))
            fail_msg("%s: %.6f us with free links, %.6f us of computing", (*s)->name, full, compute);
    }
}

/* A strategy alone does what serial does; some also fill buffers that nobody reads, or pass through them. */
static void one_rank_is_serial(void **state)
{
    (void)state;
    const struct platform p = platform_named("h100-nvlink");
    static const struct {
        const char *strategy;
        double at_most; /* of serial's time */
    } cases[] = {{"tp", 1},      {"tp-stale", 1.001}, {"ulysses", 1.2},      {"ring", 1.2},
                 {"tp-sp", 1.2}, {"usp", 1.2},        {"distrifusion", 1.2}, {"pipefusion", 1.2}};
    double serial = latency_us(LARGE_IMAGE, "serial", 1, &p, "full");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double us = latency_us(LARGE_IMAGE "patches=1 ", cases[i].strategy, 1, &p, "full");
        if (!(us >= serial && us <= serial * cases[i].at_most))
            fail_msg("%s on one rank: %.3f us, serial %.3f us", cases[i].strategy, us, serial);
    }
}

/* ---- runs repeat, memory ends ---- */

static void runs_repeat(void **state)
{
    (void)state;
    struct run_point run;
    for (const struct strategy *const *s = strategy_list(); *s; s++) {
        run_point(&run, "%s" PLAIN "strategy=%s gpus=%d repeat=3 warmup-runs=1", problem_of(*s),
                  (*s)->name, most_ranks(*s));
        if (run.status != OK)
            fail_msg("%s: %s", (*s)->name, run.failure.text);
        assert_true(run.measured.latency_us[0] == run.measured.latency_us[1]);
        assert_true(run.measured.latency_us[0] == run.measured.latency_us[2]);
        assert_null(run.measured.x0); /* no data, so no error */
        run_point_free(&run);
    }
}

static void memory_ends(void **state)
{
    (void)state;
    struct run_point run;
    run_point(&run, "platform=t4-pcie dtype=fp16 model=sim-wide resolution=1024 strategy=serial");
    assert_int_equal(run.status, ERR_MEMORY);
    assert_non_null(strstr(run.failure.text, "of 17179869184"));
    run_point_free(&run);
}

static void dtypes_without_a_peak(void **state)
{
    (void)state;
    struct run_point run;
    run_point(&run, "platform=t4-pcie dtype=bf16 model=dit-s-2 resolution=256 strategy=serial");
    assert_int_equal(run.status, ERR_UNSUPPORTED);
    assert_non_null(strstr(run.failure.text, "t4-pcie has no peak for bf16"));
    run_point_free(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_threads),
        cmocka_unit_test(more_bandwidth_is_never_slower),
        cmocka_unit_test(free_links_leave_computing),
        cmocka_unit_test(one_rank_is_serial),
        cmocka_unit_test(runs_repeat),
        cmocka_unit_test(memory_ends),
        cmocka_unit_test(dtypes_without_a_peak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
