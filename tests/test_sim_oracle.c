/* The simulator against SimGrid, a simulator of networks at the level of messages: a ring and a pairwise
 * all-to-all without contention. Each case is a process of its own, because SimGrid runs once. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <simgrid/actor.h>
#include <simgrid/comm.h>
#include <simgrid/engine.h>
#include <simgrid/host.h>
#include <simgrid/mailbox.h>
#include <xbt/config.h>

#include "tests/sim_rig.h"

enum { BYTES = 40000 }; /* of a part */
#define WITHIN 1e-6     /* relative */

/* ---- SimGrid ---- */

/* Hosts on a switch: half a microsecond and 1 GB/s each way, so 1 us a hop as in plain.json. */
static const char platform_xml[] =
    "<?xml version='1.0'?><!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">"
    "<platform version=\"4.1\"><cluster id=\"c\" prefix=\"h\" suffix=\"\" radical=\"0-%d\" speed=\"1Gf\" "
    "bw=\"1GBps\" lat=\"0.5us\" sharing_policy=\"SPLITDUPLEX\"/></platform>\n";

static void exchange(int from, int to, int me)
{
    char name[32];
    static char payload[1];
    void *received;
    snprintf(name, sizeof name, "%d-%d", me, to);
    sg_comm_t both[2];
    both[0] = sg_mailbox_put_async(sg_mailbox_by_name(name), payload, BYTES);
    snprintf(name, sizeof name, "%d-%d", from, me);
    both[1] = sg_mailbox_get_async(sg_mailbox_by_name(name), &received);
    sg_comm_wait_all(both, 2);
}

static void actor(int argc, char *argv[])
{
    (void)argc;
    int me = atoi(argv[1]), n = atoi(argv[2]), is_ring = atoi(argv[3]);
    for (int k = 1; k < n; k++) {
        int distance = is_ring ? 1 : k;
        exchange((me + n - distance) % n, (me + distance) % n, me);
    }
}

static double run_simgrid(int n, int is_ring, const char *path)
{
    char name[] = "oracle", *words[] = {name, NULL};
    int count = 1;
    simgrid_init(&count, words);
    sg_cfg_set_string("network/model", "CM02");
    sg_cfg_set_double("network/TCP-gamma", 0);
    sg_cfg_set_boolean("network/crosstraffic", "no");
    sg_cfg_set_double("network/weight-S", 0);
    simgrid_load_platform(path);
    for (int r = 0; r < n; r++) {
        char host[16], rank[16], ranks[16], kind[4];
        snprintf(host, sizeof host, "h%d", r);
        snprintf(rank, sizeof rank, "%d", r);
        snprintf(ranks, sizeof ranks, "%d", n);
        snprintf(kind, sizeof kind, "%d", is_ring);
        const char *arguments[] = {"rank", rank, ranks, kind, NULL};
        sg_actor_create_("rank", sg_host_by_name(host), actor, 4, arguments);
    }
    simgrid_run();
    return simgrid_get_clock();
}

static double simgrid_seconds(int n, int is_ring)
{
    char path[] = "/tmp/ditto-oracle-XXXXXX.xml";
    int file = mkstemps(path, 4), ends[2], status;
    double seconds = NAN;
    assert_true(file >= 0 && dprintf(file, platform_xml, n - 1) > 0 && pipe(ends) == 0);
    close(file);
    pid_t child = fork();
    if (child == 0) {
        seconds = run_simgrid(n, is_ring, path);
        _exit(write(ends[1], &seconds, sizeof seconds) == sizeof seconds ? 0 : 1);
    }
    close(ends[1]);
    assert_true(child > 0 && read(ends[0], &seconds, sizeof seconds) == sizeof seconds);
    assert_int_equal(waitpid(child, &status, 0), child);
    close(ends[0]);
    unlink(path);
    return seconds;
}

/* ---- ours ---- */

static struct devmem somewhere(size_t i)
{
    return (struct devmem){4096 * i};
}

static enum status gather(struct sim_rank *r)
{
    return comm_all_gather(r->comm, TRAFFIC_KV, DTYPE_FP32, somewhere(1), somewhere(2),
                           BYTES / sizeof(float), NULL);
}

static enum status pass_around(struct sim_rank *r)
{
    int n = r->nranks, to = (r->rank + 1) % n, from = (r->rank + n - 1) % n;
    for (int hop = 1; hop < n; hop++)
        TRY(comm_sendrecv(r->comm, TRAFFIC_KV, DTYPE_FP32, somewhere(1), BYTES / sizeof(float), to,
                          somewhere(2), BYTES / sizeof(float), from, NULL));
    return OK;
}

static enum status switch_all(struct sim_rank *r)
{
    return comm_all_to_all(r->comm, TRAFFIC_HEADS, DTYPE_FP32, somewhere(1), somewhere(2),
                           BYTES / sizeof(float), NULL);
}

static void compare(const char *what, int n, sim_body *body, double oracle)
{
    const struct platform p = sim_rig_plain();
    double ours = (double)sim_rig_time(&p, n, body, NULL) * 1e-12;
    if (!(fabs(ours / oracle - 1) <= WITHIN))
        fail_msg("%s on %d ranks: %.9g s, SimGrid %.9g s", what, n, ours, oracle);
}

static void agrees_with_simgrid(void **state)
{
    (void)state;
    static const int ranks[] = {2, 8, 64, 256};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        double ring = simgrid_seconds(ranks[i], 1);
        compare("all-gather", ranks[i], gather, ring);
        compare("ring", ranks[i], pass_around, ring);
        compare("all-to-all", ranks[i], switch_all, simgrid_seconds(ranks[i], 0));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_simgrid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
