/* The MPI library of this process: opening, the lock, the service thread, the other processes. */
#include "common/mpi_world.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/mpi_engine.h"

enum { US = 1000, MS = 1000 * US };
/* How often the service thread looks: after something moved, while something is under way, else. */
enum { TICK_BUSY_NS = 100 * US, TICK_PENDING_NS = 500 * US, TICK_IDLE_NS = 5 * MS };
/* A wait spins this long before it gives its core away, and then blocks this long each time. */
enum { SPIN_NS = 100 * US, NAP_NS = 50 * US };
/* How often the watchdog looks, and the least that a call of the library may take. */
enum { WATCH_NS = 100 * MS, LEAST_BUSY_S = 10 };
enum { LISTEN_NS = 2 * MS, TAG_TELL = 1 };
enum { GENERATION_BITS = 5, PHASE_BITS = 3, CONTEXT_BITS = 7, LEAST_SEQUENCE_BITS = 10 };

static struct {
    bool is_open;
    int rank, size, sequence_bits;
    MPI_Comm data, control, tell;
    char library[128];
    struct mpi_place *places;
    pthread_t service, watchdog;
    _Atomic bool stop;
    int64_t most_busy_ns;
    _Atomic int64_t busy_since_ns; /* the time at which the library was called; 0: nobody is in it */
} world;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mpi_work *works; /* guarded by the lock */

/* ---- the engine ---- */

static void enter_library(void)
{
    atomic_store_explicit(&world.busy_since_ns, clock_ns(), memory_order_relaxed);
}

static void leave_library(void)
{
    atomic_store_explicit(&world.busy_since_ns, 0, memory_order_relaxed);
}

void mpi_engine_lock(void)
{
    pthread_mutex_lock(&lock);
    enter_library();
}

void mpi_engine_unlock(void)
{
    leave_library();
    pthread_mutex_unlock(&lock);
}

void mpi_engine_next_call(void)
{
    enter_library();
}

void mpi_engine_add(struct mpi_work *work)
{
    work->next = works;
    works = work;
}

void mpi_engine_remove(struct mpi_work *work)
{
    struct mpi_work **at = &works;
    while (*at != NULL && *at != work)
        at = &(*at)->next;
    if (*at != NULL)
        *at = work->next;
}

/* With the lock held. The time until it is worth looking again. */
static int64_t advance_all(void)
{
    int64_t tick = TICK_IDLE_NS;
    struct mpi_work *next;
    for (struct mpi_work *work = works; work != NULL; work = next) {
        next = work->next; /* `work` may end and be reused; the others stay */
        bool is_background = work->is_background;
        enum mpi_progress progress = work->advance(work);
        if (progress == MPI_WORK_MOVED)
            tick = TICK_BUSY_NS;
        else if (progress == MPI_WORK_IDLE && !is_background && tick > TICK_PENDING_NS)
            tick = TICK_PENDING_NS;
    }
    return tick;
}

void mpi_engine_poll(void)
{
    mpi_engine_lock();
    advance_all();
    mpi_engine_unlock();
}

void mpi_engine_pause(int64_t since_ns, bool is_oversubscribed)
{
    int64_t waited = clock_ns() - since_ns;
    if (waited < SPIN_NS && !is_oversubscribed)
        return;
    if (waited < SPIN_NS || !is_oversubscribed)
        sched_yield();
    else
        clock_sleep_ns(NAP_NS);
}

/* While the rank itself polls, the lock is taken often enough that a missed turn does not matter. */
static void *serve(void *unused)
{
    (void)unused;
    int64_t tick = TICK_IDLE_NS;
    while (!atomic_load(&world.stop)) {
        clock_sleep_ns(tick);
        if (pthread_mutex_trylock(&lock) != 0)
            continue;
        enter_library();
        tick = advance_all();
        mpi_engine_unlock();
    }
    return NULL;
}

/* Needs neither the lock nor the library. */
static void *watch(void *unused)
{
    (void)unused;
    while (!atomic_load(&world.stop)) {
        clock_sleep_ns(WATCH_NS);
        int64_t since = atomic_load_explicit(&world.busy_since_ns, memory_order_relaxed);
        if (since == 0 || clock_ns() - since < world.most_busy_ns)
            continue;
        log_error("%s: a call of the MPI library did not return within %g s: some rank's process stands "
                  "still or did not start",
                  status_name(ERR_TIMEOUT), (double)world.most_busy_ns * 1e-9);
        _exit(EXIT_FAILURE);
    }
    return NULL;
}

MPI_Comm mpi_engine_data(void)
{
    return world.data;
}

MPI_Comm mpi_engine_control(void)
{
    return world.control;
}

int mpi_engine_tag(uint64_t generation, int context, enum mpi_phase phase, uint64_t sequence)
{
    uint64_t tag = generation & ((1u << GENERATION_BITS) - 1);
    tag = tag << CONTEXT_BITS | (uint64_t)context;
    tag = tag << PHASE_BITS | (uint64_t)phase;
    return (int)(tag << world.sequence_bits | (sequence & ((1u << world.sequence_bits) - 1)));
}

/* ---- who is where ---- */

/* "0-3,8" */
static void list_cores(const cpu_set_t *set, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (int first = 0; first < CPU_SETSIZE && used + 16 < size; first++) {
        if (!CPU_ISSET(first, set))
            continue;
        int last = first;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set))
            last++;
        used += (size_t)snprintf(out + used, size - used, last > first ? "%s%d-%d" : "%s%d",
                                 used ? "," : "", first, last);
        first = last;
    }
}

static void find_own_place(struct mpi_place *place)
{
    struct utsname names;
    cpu_set_t set;
    *place = (struct mpi_place){.core_count = 1};
    snprintf(place->host, sizeof place->host, "%.63s", uname(&names) == 0 ? names.nodename : "unknown");
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return;
    place->core_count = CPU_COUNT(&set);
    place->is_bound = place->core_count < sysconf(_SC_NPROCESSORS_ONLN);
    list_cores(&set, place->cores, sizeof place->cores);
}

static void count_host_ranks(void)
{
    for (int r = 0; r < world.size; r++)
        for (int q = 0; q < world.size; q++)
            world.places[r].host_ranks += strcmp(world.places[r].host, world.places[q].host) == 0;
}

bool mpi_world_is_oversubscribed(int nranks)
{
    for (int r = 0; r < nranks; r++) {
        int sharing = 0; /* ranks of the team with the same cores of the same host */
        const struct mpi_place *own = &world.places[r];
        for (int q = 0; q < nranks; q++)
            sharing += strcmp(own->host, world.places[q].host) == 0 &&
                       strcmp(own->cores, world.places[q].cores) == 0;
        if (sharing > own->core_count)
            return true;
    }
    return false;
}

const struct mpi_place *mpi_world_place(int rank)
{
    return &world.places[rank];
}

const char *mpi_world_library(void)
{
    return world.library;
}

/* ---- opening and closing ---- */

static enum status find_tag_bits(void)
{
    int *most = NULL, is_set = 0, bits = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &is_set);
    while (is_set && bits < 31 && (uint32_t)*most >= (UINT32_C(2) << bits) - 1)
        bits++;
    world.sequence_bits = bits - GENERATION_BITS - CONTEXT_BITS - PHASE_BITS;
    if (world.sequence_bits < LEAST_SEQUENCE_BITS)
        return FAIL(ERR_UNSUPPORTED, "mpi: this library's tags have only %d bits", bits);
    return OK;
}

static void open_communicators(void)
{
    MPI_Comm *const own[] = {&world.data, &world.control, &world.tell};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, own[i]);
        MPI_Comm_set_errhandler(*own[i], MPI_ERRORS_RETURN);
    }
}

static void read_library(void)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, "\n")] = '\0';
    snprintf(world.library, sizeof world.library, "%.127s", text);
}

static enum status gather_places(void)
{
    struct mpi_place own;
    world.places = calloc((size_t)world.size, sizeof *world.places);
    if (world.places == NULL)
        return FAIL(ERR_MEMORY, "mpi: no memory for the places of %d ranks", world.size);
    find_own_place(&own);
    MPI_Allgather(&own, (int)sizeof own, MPI_BYTE, world.places, (int)sizeof own, MPI_BYTE, world.data);
    count_host_ranks();
    return OK;
}

static enum status start_thread(pthread_t *thread, void *(*run)(void *), const char *name)
{
    if (pthread_create(thread, NULL, run, NULL) != 0)
        return FAIL(ERR_MEMORY, "mpi: cannot start thread %s", name);
    pthread_setname_np(*thread, name);
    return OK;
}

static enum status open_library(void)
{
    int provided = 0;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)
        return FAIL(ERR_DEVICE, "mpi: cannot be initialised");
    if (provided < MPI_THREAD_SERIALIZED)
        return FAIL(ERR_UNSUPPORTED, "mpi: this library cannot be used from two threads");
    MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world.size);
    TRY(find_tag_bits());
    open_communicators();
    read_library();
    return gather_places();
}

enum status mpi_world_open(double timeout_s)
{
    if (world.is_open)
        return OK;
    world.most_busy_ns = (int64_t)((timeout_s > LEAST_BUSY_S ? timeout_s : LEAST_BUSY_S) * 1e9);
    TRY(start_thread(&world.watchdog, watch, "mpi-watchdog"));
    enter_library();
    enum status status = open_library();
    leave_library();
    TRY(status);
    TRY(start_thread(&world.service, serve, "mpi-service"));
    world.is_open = true;
    return OK;
}

bool mpi_world_is_open(void)
{
    return world.is_open;
}

int mpi_world_rank(void)
{
    return world.rank;
}

int mpi_world_size(void)
{
    return world.size;
}

void mpi_world_close(void)
{
    if (!world.is_open)
        return;
    atomic_store(&world.stop, true);
    pthread_join(world.service, NULL);
    pthread_join(world.watchdog, NULL);
    MPI_Comm_free(&world.data);
    MPI_Comm_free(&world.control);
    MPI_Comm_free(&world.tell);
    MPI_Finalize();
    free(world.places);
    world.places = NULL;
    world.is_open = false;
}

/* The library may wait for processes that do not answer. */
static void *end_anyway(void *exit_code)
{
    clock_sleep_ns(INT64_C(5000) * MS);
    _exit(*(const int *)exit_code);
}

_Noreturn void mpi_world_abort(int exit_code)
{
    static int code;
    pthread_t thread;
    code = exit_code;
    fflush(NULL);
    if (pthread_create(&thread, NULL, end_anyway, &code) == 0 && world.is_open) {
        mpi_engine_lock();
        MPI_Abort(MPI_COMM_WORLD, exit_code);
    }
    _exit(exit_code);
}

/* ---- telling ---- */

enum status mpi_world_tell(int rank, const char *text)
{
    size_t bytes = strlen(text) + 1;
    mpi_engine_lock();
    int code = MPI_Send(text, (int)bytes, MPI_CHAR, rank, TAG_TELL, world.tell);
    mpi_engine_unlock();
    return code == MPI_SUCCESS ? OK : FAIL(ERR_DEVICE, "mpi: cannot reach rank %d", rank);
}

enum status mpi_world_listen(char **text)
{
    MPI_Status status;
    for (int has_come = 0;;) {
        mpi_engine_lock();
        int code = MPI_Iprobe(0, TAG_TELL, world.tell, &has_come, &status);
        if (has_come || code != MPI_SUCCESS)
            break; /* with the lock held */
        mpi_engine_unlock();
        clock_sleep_ns(LISTEN_NS);
    }
    int bytes = 0;
    MPI_Get_count(&status, MPI_CHAR, &bytes);
    char *heard = calloc((size_t)bytes + 1, 1);
    if (heard != NULL)
        MPI_Recv(heard, bytes, MPI_CHAR, 0, TAG_TELL, world.tell, MPI_STATUS_IGNORE);
    mpi_engine_unlock();
    if (heard == NULL)
        return FAIL(ERR_MEMORY, "mpi: no memory for a message of %d bytes", bytes);
    *text = heard;
    return OK;
}
