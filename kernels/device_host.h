/* Operations that devices in host memory do alike: everything but the products and the exponentials
 * of long arrays. Arrays of T are read and written in short runs of fp32, so one loop serves every
 * dtype and stays in the first-level cache; a result is rounded once. They run on the calling
 * thread. */
#ifndef KERNELS_DEVICE_HOST_H
#define KERNELS_DEVICE_HOST_H

#include "kernels/device.h"

enum { DEVICE_HOST_RUN = 256 }; /* elements of a run; a multiple of 8 */

/* The length of the run that starts at element i of n. */
static inline size_t device_host_run(size_t i, size_t n)
{
    return n - i < DEVICE_HOST_RUN ? n - i : DEVICE_HOST_RUN;
}

/* Elements first .. first+n-1 of an array of t, as fp32, and back. */
void device_host_read(enum dtype t, struct devmem array, size_t first, size_t n, float *out);
void device_host_write(enum dtype t, struct devmem array, size_t first, size_t n,
                       const float *values);

/* Where in elements the first row of a group and head stands. */
static inline size_t device_host_head(const struct attention_view *v, size_t g0, size_t g1,
                                      size_t h)
{
    return g0 * v->group0 + g1 * v->group1 + h * v->head;
}

/* Hooks of struct device_ops, as documented there. */
enum status device_host_merge(struct device *, const struct merge_call *);
enum status device_host_modulate(struct device *, const struct modulate_call *);
enum status device_host_residual(struct device *, const struct residual_call *);
enum status device_host_sum(struct device *, const struct sum_call *);
enum status device_host_copy(struct device *, const struct copy_call *);
enum status device_host_noise(struct device *, const struct noise_call *);
enum status device_host_guide(struct device *, const struct guide_call *);
enum status device_host_ddim(struct device *, const struct ddim_call *);
enum status device_host_add_rows(struct device *, const struct add_rows_call *);
enum status device_host_encode(struct device *, const struct code_call *);
enum status device_host_decode(struct device *, const struct code_call *);
enum status device_host_zero(struct device *, struct devmem dst, size_t bytes);
enum status device_host_convert(struct device *, enum dtype to, struct devmem dst, enum dtype from,
                                struct devmem src, size_t n);

#endif
