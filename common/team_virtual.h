/* The team of ranks that are fibers (fiber.h). Every call meets the others in virtual time: afterwards
 * the clocks of all ranks show the time of the last one that came, so runs start together.
 *
 * A rank is the fiber of its number. When no rank can run, each is named on the log with what it waits
 * for, and the team is aborted with ERR_TIMEOUT: a deadlock. */
#ifndef COMMON_TEAM_VIRTUAL_H
#define COMMON_TEAM_VIRTUAL_H

#include "common/team.h"

struct team_virtual;
enum status team_virtual_open(int nranks, struct team_virtual **out) WARN_UNUSED;
struct team *team_virtual_rank(struct team_virtual *, int rank); /* owned by the shared object */
void team_virtual_close(struct team_virtual *); /* accepts NULL */
/* Called when no rank can run: reports, aborts, wakes everybody. */
void team_virtual_stuck(struct team_virtual *);

#endif
