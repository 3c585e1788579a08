/* The copies of the published code per strategy, in bytes read plus written per byte of a tensor. */
#include "bench/emulation.h"

#include <string.h>

/* Every strategy: a block moves 29A besides GELU's 8A, of which ditto's kernels move 13A: LayerNorm and
 * modulation apart (6A instead of 2A, twice), the gated residuals (5A instead of 3A, twice), and 2A around
 * each of two attentions. 33 framework operations a block, where ditto has 14 device operations. */
static const struct platform_emulation common = {
    .modulate = 4, .residual = 2, .gelu = 2, .attention = 2, .host_ops = 33.0 / 14,
    .host_collective = 3, .host_message = 8};

void emulation_legacy_pytorch(struct platform *p, const char *strategy)
{
    struct platform_emulation *e = &p->emulation;
    *e = common;
    p->gpu.host_op_s = 20e-6;
    if (strcmp(strategy, "tp") == 0) {
        e->reduced = 3; /* 33A a block: 6A more with the two all-reduces */
    } else if (strcmp(strategy, "distrifusion") == 0) {
        e->gathered = 2;      /* all K,V concatenated: 4A for the 2A that were gathered */
        e->gathered_lane = 2; /* the gathered list copied out: 4A, on the communicator's lane */
        e->host_gather_each = 1;
    } else if (strcmp(strategy, "ulysses") == 0) {
        e->switched = 5.5; /* 22a a block for the 4a that are switched: two transposes each, fp32 */
    } else if (strcmp(strategy, "ring") == 0) {
        e->modulate += 13; /* 24a a block and the 2a around attention, over its two modulations */
        e->attention = 0;  /* called once a hop */
        e->merge_total = 17;
        e->host_merge = 10; /* conversions, differences, sigmoid and logsigmoid, one by one */
    }
}
