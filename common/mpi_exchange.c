/* Messages of any length, as sets of nonblocking sends and receives. */
#include "common/mpi_engine.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/fault.h"

/* Bytes of one MPI message: counts are ints. Far fewer, because between processes of one machine the library
 * copies a whole message in one call, which the watchdog must not take for a standstill. */
enum { PIECE = 1 << 26 };
/* How long a given-up receive that is being filled may take. */
enum { GIVE_UP_NS = 200 * 1000 * 1000 };

static size_t piece_bytes(void)
{
    int64_t test = fault_piece_bytes();
    return test > 0 && test < PIECE ? (size_t)test : PIECE;
}

static void describe(int code, char why[200])
{
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    snprintf(why, 200, "MPI: %.*s", length < 190 ? length : 190, text);
}

static enum status make_room(struct mpi_exchange *x)
{
    if (x->count < x->room)
        return OK;
    size_t room = x->room > 0 ? 2 * x->room : 16;
    MPI_Request *requests = realloc(x->requests, room * sizeof *requests);
    x->requests = requests != NULL ? requests : x->requests;
    int *peers = realloc(x->peers, room * sizeof *peers);
    x->peers = peers != NULL ? peers : x->peers;
    if (requests == NULL || peers == NULL)
        return FAIL(ERR_MEMORY, "mpi: no memory for %zu messages under way", room);
    x->room = room;
    return OK;
}

static enum status posted(int code)
{
    char why[200];
    if (code == MPI_SUCCESS)
        return OK;
    describe(code, why);
    return FAIL(ERR_DEVICE, "%s", why);
}

enum status mpi_exchange_send(struct mpi_exchange *x, const void *data, size_t bytes, int to, int tag)
{
    for (size_t done = 0, most = piece_bytes(); done < bytes; done += most) {
        int piece = (int)(bytes - done < most ? bytes - done : most);
        TRY(make_room(x));
        mpi_engine_next_call();
        TRY(posted(MPI_Isend((const char *)data + done, piece, MPI_BYTE, to, tag, mpi_engine_data(),
                             &x->requests[x->count])));
        x->peers[x->count++] = ~to;
    }
    return OK;
}

enum status mpi_exchange_recv(struct mpi_exchange *x, void *data, size_t bytes, int from, int tag)
{
    for (size_t done = 0, most = piece_bytes(); done < bytes; done += most) {
        int piece = (int)(bytes - done < most ? bytes - done : most);
        TRY(make_room(x));
        mpi_engine_next_call();
        TRY(posted(MPI_Irecv((char *)data + done, piece, MPI_BYTE, from, tag, mpi_engine_data(),
                             &x->requests[x->count])));
        x->peers[x->count++] = from;
    }
    return OK;
}

enum status mpi_exchange_test(struct mpi_exchange *x, bool *ended, char why[200])
{
    size_t left = 0;
    for (size_t i = 0; i < x->count; i++) {
        int is_done = 0;
        mpi_engine_next_call();
        int code = MPI_Test(&x->requests[i], &is_done, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS) {
            describe(code, why);
            return ERR_DEVICE;
        }
        if (is_done)
            continue;
        x->requests[left] = x->requests[i];
        x->peers[left++] = x->peers[i];
    }
    x->count = left;
    *ended = left == 0;
    return OK;
}

int mpi_exchange_missing(const struct mpi_exchange *x)
{
    for (size_t i = 0; i < x->count; i++)
        if (x->peers[i] >= 0)
            return x->peers[i];
    return x->count > 0 ? ~x->peers[0] : -1;
}

/* A receive that is being filled already cannot be cancelled and must not be left. */
void mpi_exchange_abandon(struct mpi_exchange *x)
{
    const int64_t start = clock_ns();
    for (size_t i = 0; i < x->count; i++) {
        int is_done = 0;
        if (x->peers[i] >= 0)
            MPI_Cancel(&x->requests[i]);
        do {
            if (MPI_Test(&x->requests[i], &is_done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
                is_done = 1;
        } while (!is_done && clock_ns() - start < GIVE_UP_NS && x->peers[i] >= 0);
        if (!is_done)
            MPI_Request_free(&x->requests[i]);
    }
    x->count = 0;
}

void mpi_exchange_free(struct mpi_exchange *x)
{
    free(x->requests);
    free(x->peers);
    *x = (struct mpi_exchange){0};
}
