/* The readers of sweep files and of results on any bytes: whatever is accepted must be whole. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/results.h"
#include "bench/summary.h"
#include "bench/sweep_plan.h"
#include "common/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_plan(const char *path)
{
    const char *operands[] = {path};
    const struct cli cli = {.command = &command_sweep, .operands = operands, .operand_count = 1};
    struct sweep_plan plan = {0};
    if (sweep_plan_build(&cli, &plan) == OK) {
        ASSERT_CMP(plan.count, >, 0);
        for (size_t i = 0; i < plan.count && i < 64; i++) {
            char label[SWEEP_LABEL];
            sweep_plan_label(&plan, &plan.points[i], label);
            ASSERT_CMP(strlen(label), <, sizeof label);
        }
    }
    sweep_plan_free(&plan);
}

static void read_results(const char *path)
{
    struct results results;
    struct summary summary = {0};
    if (results_read(path, &results) == OK) {
        results_drop_superseded(&results);
        if (summary_build(&results, &summary) == OK)
            ASSERT_CMP(summary.count, <=, results.count);
        summary_free(&summary);
    }
    results_free(&results);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    ASSERT_CMP(fd, >=, 0);
    ASSERT_CMP(write(fd, data, size), ==, (ssize_t)size);
    ASSERT_CMP(write(fd, "\n", 1), ==, 1); /* a torn last line is only left out, with a warning */
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    log_quiet(1);
    read_plan(path);
    status_clear();
    read_results(path);
    status_clear();
    close(fd);
    return 0;
}
