/* fork, and wait for whichever ends. */
#include "bench/parallel.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FREE = 0 };

struct slot {
    pid_t child; /* FREE, or its process */
    size_t index;
};

static enum status start(const struct parallel *p, size_t index, struct slot *slot)
{
    const pid_t parent = getpid();
    pid_t child = fork();
    if (child < 0)
        return FAIL(ERR_IO, "cannot start a process: %s", strerror(errno));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(getppid() == parent && p->run(p->context, index) == OK ? 0 : 1);
    }
    *slot = (struct slot){child, index};
    return OK;
}

static struct slot *find(struct slot *slots, int jobs, pid_t child)
{
    for (int i = 0; i < jobs; i++)
        if (slots[i].child == child)
            return &slots[i];
    return NULL;
}

static bool is_busy(const struct slot *slots, int jobs)
{
    for (int i = 0; i < jobs; i++)
        if (slots[i].child != FREE)
            return true;
    return false;
}

/* Waits for a signal; true when it asks to stop. */
static bool wait_asked_to_stop(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    int signal = sigwaitinfo(&set, NULL);
    return signal == SIGINT || signal == SIGTERM;
}

static enum status reap(const struct parallel *p, struct slot *slots)
{
    enum status status = OK;
    for (pid_t child; (child = waitpid(-1, NULL, WNOHANG)) > 0;) {
        struct slot *slot = find(slots, p->jobs, child);
        if (!slot)
            continue;
        slot->child = FREE;
        enum status one = p->done(p->context, slot->index);
        status = status == OK ? one : status;
    }
    return status;
}

static void stop_all(const struct slot *slots, int jobs)
{
    for (int i = 0; i < jobs; i++)
        if (slots[i].child != FREE)
            kill(slots[i].child, SIGTERM);
}

enum status parallel_run(const struct parallel *p)
{
    struct slot *slots = calloc((size_t)p->jobs, sizeof *slots);
    if (!slots)
        return FAIL(ERR_MEMORY, "no memory for %d processes", p->jobs);
    enum status status = OK;
    size_t next = 0;
    while (is_busy(slots, p->jobs) || (status == OK && next < p->count)) {
        struct slot *slot = status == OK && next < p->count ? find(slots, p->jobs, FREE) : NULL;
        if (slot) {
            status = start(p, next++, slot);
        } else if (wait_asked_to_stop()) {
            status = status == OK ? ERR_INTERRUPTED : status;
            stop_all(slots, p->jobs);
        }
        enum status one = reap(p, slots);
        if (status == OK && one != OK) {
            status = one;
            stop_all(slots, p->jobs);
        }
    }
    free(slots);
    return status;
}
