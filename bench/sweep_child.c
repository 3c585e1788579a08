/* fork, exec, wait. Signals are taken synchronously: no handler, no race. */
#include "bench/sweep_child.h"

#include "common/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_NO_START = 127 };
enum { RESULT_GRACE_S = 5 };
enum { LAUNCHER_TURN_NS = 50 * 1000 * 1000, LAUNCHER_TURNS = 100 };

static void wanted_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGCHLD);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
}

void sweep_child_block_signals(void)
{
    sigset_t set;
    wanted_signals(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

bool sweep_child_interrupted(void)
{
    sigset_t pending;
    return sigpending(&pending) == 0 &&
           (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1);
}

/* In the child: never returns. */
static void become_child(const struct sweep_child_request *request, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_NO_START); /* the sweep died meanwhile */
    int messages = open(request->stderr_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int nothing = open("/dev/null", O_RDWR);
    if (messages < 0 || nothing < 0)
        _exit(EXIT_NO_START);
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDOUT_FILENO);
    dup2(messages, STDERR_FILENO);
    const struct rlimit limit = {request->memory_bytes, request->memory_bytes};
    if (request->memory_bytes > 0 && setrlimit(RLIMIT_DATA, &limit) != 0)
        _exit(EXIT_NO_START);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (request->is_launcher)
        execvp(request->argv[0], request->argv);
    else
        execv("/proc/self/exe", request->argv);
    _exit(EXIT_NO_START);
}

/* Whether the child has ended; fills the outcome. */
static bool has_ended(pid_t child, struct sweep_child_end *out)
{
    int status;
    if (waitpid(child, &status, WNOHANG) != child)
        return false;
    out->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    out->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return true;
}

/* Gives a launcher some time to end its processes. */
static void ask_to_end(pid_t child)
{
    siginfo_t info = {0};
    kill(child, SIGTERM);
    for (int i = 0; i < LAUNCHER_TURNS && info.si_pid == 0; i++) {
        clock_sleep_ns(LAUNCHER_TURN_NS);
        if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) != 0)
            return;
    }
}

static void end_child(pid_t child, const struct sweep_child_request *request,
                      struct sweep_child_end *out)
{
    int status;
    if (request->is_launcher)
        ask_to_end(child);
    kill(-child, SIGKILL);
    kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    out->exit_code = -1;
    out->signal = SIGKILL;
}

/* Whether the result was written long ago; *since_ns, from 0, is kept between calls. */
static bool outlives_result(const struct sweep_child_request *request, int64_t *since_ns)
{
    struct stat info;
    if (!request->is_launcher || !request->result_path)
        return false;
    if (*since_ns == 0 && stat(request->result_path, &info) == 0 && info.st_size > 0)
        *since_ns = clock_ns();
    return *since_ns != 0 && clock_ns() - *since_ns > INT64_C(1000000000) * RESULT_GRACE_S;
}

static void wait_for(pid_t child, const struct sweep_child_request *request,
                     struct sweep_child_end *out)
{
    const int64_t start = clock_ns();
    const struct timespec second = {.tv_sec = 1};
    int64_t result_ns = 0;
    sigset_t set;
    wanted_signals(&set);
    while (!has_ended(child, out)) {
        int signal = sigtimedwait(&set, NULL, &second);
        out->is_interrupted = signal == SIGINT || signal == SIGTERM;
        out->is_timed_out = request->timeout_s > 0.0 &&
                            (double)(clock_ns() - start) > request->timeout_s * 1e9;
        if (out->is_interrupted || out->is_timed_out || outlives_result(request, &result_ns)) {
            end_child(child, request, out);
            return;
        }
        if (signal < 0 && errno == EAGAIN && request->tick)
            request->tick(request->context);
    }
}

enum status sweep_child_run(const struct sweep_child_request *request, struct sweep_child_end *out)
{
    *out = (struct sweep_child_end){.is_launcher = request->is_launcher};
    const pid_t parent = getpid();
    pid_t child = fork();
    if (child < 0)
        return FAIL(ERR_IO, "cannot start a process: %s", strerror(errno));
    if (child == 0)
        become_child(request, parent);
    setpgid(child, child);
    wait_for(child, request, out);
    if (out->exit_code == EXIT_NO_START && request->is_launcher)
        return FAIL(ERR_IO, "cannot start %s: is it installed and in PATH? --launcher names another",
                    request->argv[0]);
    if (out->exit_code == EXIT_NO_START)
        return FAIL(ERR_IO, "cannot start this program again as a child");
    return OK;
}
