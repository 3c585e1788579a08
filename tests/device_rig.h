/* For suites that run every device: random arrays with canaries, what is expected of each element,
 * and how far it may be off. Failures print the device, the dtype, the seed and the shape. */
#ifndef TESTS_DEVICE_RIG_H
#define TESTS_DEVICE_RIG_H

#include "kernels/device.h"
#include <stdbool.h>

enum { RIG_BUFFERS = 16 };

struct buffer {
    const char *name;
    enum dtype dtype;
    size_t n;
    struct devmem mem;   /* element 0; canaries on both sides */
    struct devmem whole; /* the allocation */
    size_t whole_bytes;
    double *value; /* [n]: as uploaded, then as expected */
    double *slack; /* [n]: how far the result may be off; 0: not at all */
};

/* One device in one dtype, and the arrays of one random case. */
struct rig {
    const struct device_ops *ops;
    struct device *device;
    enum dtype dtype;
    int threads;
    struct memory_ledger ledger;
    struct arena *arena;
    uint64_t seed, drawn;
    char shape[256];
    struct buffer buffers[RIG_BUFFERS];
    int count;
};

/* Calls `test` in `rounds` random cases on every device that computes, in each of its dtypes; on one alone
 * if $DITTO_TEST_DEVICE names it, which a plug-in may bring. */
void rig_every_device(void (*test)(struct rig *), int rounds);
/* Is the device to be tested? */
bool rig_wants(const struct device_ops *);
/* The same on one device in one dtype. */
void rig_one_device(const char *name, enum dtype, void (*test)(struct rig *), int rounds);

/* A number below n (n >= 1), and one of 1 .. n of which small ones are likely. */
size_t rig_below(struct rig *, size_t n);
size_t rig_size(struct rig *, size_t n);
bool rig_coin(struct rig *);
/* Describes the case for failures; also makes it the place where they are reported. */
void rig_shape(struct rig *, const char *format, ...) PRINTF_LIKE(2, 3);

/* n normals times `scale`, rounded to dtype, expected to stay as they are. */
struct buffer *rig_buffer(struct rig *, const char *name, enum dtype, size_t n, double scale);
/* Puts changed values on the device. */
void rig_upload(struct rig *, const struct buffer *);
void rig_download(struct rig *, const struct buffer *, float *out);
/* Element i becomes `value`, rounded to the buffer's dtype, give or take `error`. */
void rig_expect(struct buffer *, size_t i, double value, double error);
/* Every element of every array as expected, and the canaries alive. */
void rig_check(struct rig *);
void rig_ok(struct rig *, enum status);
/* Prints the case and fails the test. */
void rig_fail(struct rig *, const char *format, ...) PRINTF_LIKE(2, 3);
void rig_reserve(struct rig *, const struct attention_call *, const struct linear_call *);

/* Largest relative error of one rounding to the dtype. */
double rig_unit(enum dtype);

#endif
