/* Lanes of virtual time: a rank's compute lane is a clock that devices advance by what their work costs,
 * and memory is a count. Belongs to the fiber that opened it (fiber.h), whose clock is the host's: an
 * operation is issued when the host has paid for it and starts at the later of that and the lane's end.
 *
 * Computing while a transfer runs is slower, by the platform's overlap_cost of the time that both run.
 * Nothing may depend on what happens later, so that is charged when the transfer is awaited. An instant
 * of computing pays once, however many transfers it overlaps. */
#ifndef COMMON_LANE_VIRTUAL_H
#define COMMON_LANE_VIRTUAL_H

#include "common/lane.h"
#include "common/platform.h"

/* `platform` must outlive the system. */
enum status lane_virtual_open(int rank, const struct platform *, struct lane_system **out) WARN_UNUSED;
void lane_virtual_close(struct lane_system *); /* accepts NULL */
const struct platform *lane_virtual_platform(const struct lane_system *);

/* Puts work on the compute lane, issued by `host_ops` framework operations. */
void lane_virtual_compute(struct lane_system *, int64_t ps, double host_ops);
/* Starts a transfer that is ordered after the compute lane: when it may begin. */
int64_t lane_virtual_post(struct lane_system *, double host_ops);
/* Orders the compute lane after a transfer that ran from begin to end, and charges for the overlap. Returns
 * the charge: transfers that queue behind this one are slowed down as much. */
int64_t lane_virtual_await(struct lane_system *, int64_t begin_ps, int64_t end_ps);

#endif
