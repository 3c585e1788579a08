/* START HERE. A strategy: who holds what, who sends what, when.
 *
 * Adding one: write strategies/NAME.c with a const struct strategy, add one line to the list in
 * strategy.c and one to meson.build. Tests, help, sweeps and figures pick it up from the list
 * (docs/add-a-strategy.md walks through it).
 *
 * A strategy is written against device (arithmetic) and comm (bytes between ranks) and runs unchanged on
 * threads, MPI processes, CUDA streams and in virtual time. So: never look at device memory from the
 * host, never let control flow depend on values, allocate in setup only, and call comm in the same
 * order on every rank. */
#ifndef STRATEGIES_STRATEGY_H
#define STRATEGIES_STRATEGY_H

#include "common/arena.h"
#include "common/comm.h"
#include "common/meter.h"
#include "common/option.h"
#include "kernels/device.h"
#include "kernels/dit.h"
#include "kernels/model.h"
#include "strategies/partition.h"

/* One problem: a model, a latent, a sampler. The same for all ranks. */
struct problem {
    const struct model *model;
    const struct model_shape *shape; /* of the model */
    int frames;                      /* 1 for images */
    int latent_height, latent_width, grid_height, grid_width;
    size_t tokens;                   /* per frame: grid_height * grid_width */
    size_t token_values;             /* latent values per token: channels * patch^2 */
    int steps, class_id, batch;      /* batch: 2 under guidance unless cfg_degree is 2 */
    double cfg_scale;
    int cfg_degree;
    uint64_t seed;
    enum dtype dtype;
    const float *noise;              /* x_T [frames, tokens, token_values], NULL: shapes only */
    const struct option_set *options;
};

/* Part of the latent: frames x tokens of each. */
struct region {
    struct span frames, tokens;
};

/* How the latent is split over the ranks of a group: each steps all of it, its frames, or its tokens of
 * every frame. */
enum tiling { TILING_NONE, TILING_FRAMES, TILING_TOKENS };

struct rank;
struct trajectory;

enum freshness { FRESH, STALE }; /* how verify judges it: against serial, or by report */

struct reason {
    char text[256];
};

/* What a strategy claims a rank sends and holds; compared with what was counted, byte for byte. */
struct cost {
    uint64_t sent_bytes[STEP_PHASES][COMM_OPS][TRAFFIC_KINDS];
    uint64_t stale_bytes; /* what MEMORY_STALE holds */
};

struct strategy {
    const char *name, *summary, *paper;
    enum freshness freshness;
    bool runs_video, runs_image;
    /* OPTIONAL: NULL-terminated options this strategy has a use for; NULL: none. */
    const struct option *const *options;
    /* REQUIRED. Degrees of the mesh for the ranks of one cfg group. */
    void (*shape_layout)(const struct problem *, int group_ranks, struct layout *);
    /* OPTIONAL: refuses a combination, with a reason a user understands. */
    enum status (*check)(const struct problem *, const struct layout *, struct reason *);
    /* REQUIRED. Shards weights, allocates; untimed. Called once; sample may follow several times. */
    enum status (*setup)(struct rank *);
    /* REQUIRED. From rank->problem->noise's latent (already on the device where the rank owns it) to
     * x_0: `steps` denoising steps; timed. Most call sample_stepwise. Starts from clean buffers. */
    enum status (*sample)(struct rank *);
    /* OPTIONAL: frees what setup made outside the arenas. */
    void (*teardown)(struct rank *);
    /* REQUIRED. The claim of one run. */
    void (*cost)(const struct problem *, const struct layout *, int rank, struct cost *);
};

/* The strategies themselves; each is defined in its own file. */
extern const struct strategy strategy_serial, strategy_tp, strategy_tp_sp, strategy_tp_stale,
    strategy_distrifusion, strategy_pipefusion, strategy_ulysses, strategy_ring, strategy_usp,
    strategy_tsp, strategy_dsp;

/* NULL-terminated; the one list. */
const struct strategy *const *strategy_list(void);
const struct strategy *strategy_find(const char *name);
/* Checks the problem against what the strategy runs (image or video), the mesh, and its own check. */
enum status strategy_check(const struct strategy *, const struct problem *, int nranks,
                           struct layout *layout, struct reason *) WARN_UNUSED;

/* Options that several strategies share. */
extern const struct option strategy_opt_warmup_steps, strategy_opt_staleness, strategy_opt_refresh,
    strategy_opt_stale_mode, strategy_opt_stale_transport, strategy_opt_stale_halves,
    strategy_opt_stale_blocks, strategy_opt_extrapolate, strategy_opt_patches,
    strategy_opt_ulysses_degree;

/* Is step i synchronous? Every one of a fresh strategy is; of a stale one the warm-up, every refresh-th
 * step after it, or all with staleness 0, as far as the strategy has these options. */
bool strategy_step_is_sync(const struct strategy *, const struct problem *, int step);
/* Does step i exist, and use older values? Any i. */
bool strategy_step_is_stale(const struct strategy *, const struct problem *, int64_t step);
/* Refuses a staleness above the warm-up. */
enum status strategy_check_staleness(const struct problem *, struct reason *) WARN_UNUSED;
/* Fills the reason and returns ERR_UNSUPPORTED: the ending of a check. */
enum status strategy_refuse(struct reason *, const char *format, ...) PRINTF_LIKE(2, 3) WARN_UNUSED;

enum { RANK_MAX_SUBGROUPS = 2 };

/* One rank at work. Made by the launcher's caller (bench/measure), handed to setup and sample. */
struct rank {
    const struct problem *problem;
    const struct strategy *strategy;
    const struct layout *layout;
    int index, nranks;            /* in the whole run */
    struct team *team;
    struct lane_system *lanes;
    struct device *device;
    struct comm *world;           /* all ranks of the run */
    struct comm *group;           /* the ranks of this rank's cfg group; what strategies use */
    struct comm *twin;            /* two ranks: conditional (0) and null (1) half; NULL: cfg_degree 1 */
    struct meter *meter;
    struct memory_ledger *ledger;
    struct arena *persistent, *scratch;
    struct trajectory *trajectory; /* NULL except in the error run */

    struct comm *subgroup[RANK_MAX_SUBGROUPS]; /* from rank_split; closed after teardown */
    int subgroups;

    enum tiling tiling;           /* of the own regions of all ranks of the group; set by setup */
    struct region own;            /* what this rank steps; set by setup */
    struct devmem latent;         /* fp32 [frames, tokens, token_values] of the region `resident` */
    struct region resident;       /* what `latent` covers; set by setup; contains own */
    struct devmem gathered;       /* fp32, the whole latent after the final gather, in rank order */
    struct devmem twin_noise;     /* T, the twin's predicted noise of up to the own region */
    void *state;                  /* the strategy's own, from rank_state */
};

/* ---- for setup ---- */

/* Zeroed host memory for the strategy's struct, freed after teardown. */
enum status rank_state(struct rank *, size_t bytes, void **out) WARN_UNUSED;
/* Says which part of the latent this rank steps and which part it holds, and allocates for it. The latent
 * is not gathered at the end. */
enum status rank_set_latent(struct rank *, struct region own, struct region resident) WARN_UNUSED;
/* The rank steps and holds its tile; sample_stepwise gathers all tiles at the end. */
enum status rank_tile_latent(struct rank *, enum tiling) WARN_UNUSED;
/* Collective over rank->group: ranks that give the same color form a group of their own, ordered by
 * (key, rank). Owner: the rank. */
enum status rank_split(struct rank *, int color, int key, struct comm **out) WARN_UNUSED;
/* The model's part, with buffers for `max_rows` rows and keys of up to max_keys (0: whole sequences). */
enum status rank_open_dit(struct rank *, const struct dit_part *, size_t max_rows, size_t max_keys,
                          struct dit *out) WARN_UNUSED;
/* All of the model; the heads and MLP channels of part `index` of `parts`. */
struct dit_part problem_whole_part(const struct problem *);
struct dit_part problem_tp_part(const struct problem *, int parts, int index);
/* `rows` x `width` elements of T. */
enum status rank_alloc(struct rank *, enum memory_purpose, size_t rows, size_t width,
                       struct devmem *out) WARN_UNUSED;

struct region region_whole(const struct problem *);
size_t region_tokens(struct region);
/* Part `index` of `parts` of the whole latent. */
struct region region_tile(const struct problem *, enum tiling, int parts, int index);
/* The same by frames in video models, by tokens in images: problem_tiling. */
struct region region_chunk(const struct problem *, int parts, int index);
enum tiling problem_tiling(const struct problem *);
/* Parts first .. first+count-1 together. */
struct region region_chunks(const struct problem *, int parts, int first, int count);
/* What region_chunk splits: frames or tokens, and the rows of hidden state that each of them has. */
size_t problem_chunk_things(const struct problem *, size_t *rows_each);
struct dit_extent region_extent(struct region);

/* ---- for sample ---- */

/* Uploads x_T's part to `latent`; called by measure before every sample. */
enum status rank_load_noise(struct rank *) WARN_UNUSED;
/* Where the own region starts in `latent`. */
struct devmem rank_own_latent(const struct rank *);

/* The loop over steps that every strategy but the pipeline uses. For each step: meter_step, predict
 * (leaves the predicted noise of the own region, T [frames, tokens, token_values], in *noise), DDIM
 * step of the own region, trajectory. Afterwards, if the latent is tiled, one all-gather
 * (TRAFFIC_LATENT, counted as synchronous) brings everybody's tile to all ranks of the group, in rank
 * order. */
enum status sample_stepwise(struct rank *,
                            enum status (*predict)(struct rank *, int step, struct devmem *noise))
    WARN_UNUSED;
/* One DDIM step of `values` values in place. */
enum status sample_update(struct rank *, int step, size_t values, struct devmem latent,
                          struct devmem noise) WARN_UNUSED;
/* Network output of `rows` tokens to predicted noise: guidance inside the batch, or with the twin
 * (TRAFFIC_CFG). out: T [rows, batch, patch^2 * out_channels]; noise: T [rows, token_values]. */
enum status sample_noise(struct rank *, size_t rows, struct devmem out, struct devmem noise)
    WARN_UNUSED;
/* Is this step counted as stale? */
enum step_phase sample_phase(const struct rank *, int step);

/* ---- for cost ---- */

/* Adds what `call`, made `times` times, makes the rank of the group send. */
void cost_add(struct cost *, enum step_phase, const struct comm_call *, int group_rank, int group_ranks,
              uint64_t times);
/* The final gather of sample_stepwise, for a latent split by region_chunk, or tiled in another way. */
void cost_add_gather(const struct problem *, const struct layout *, int rank, struct cost *);
void cost_add_tile_gather(const struct problem *, const struct layout *, int rank, enum tiling,
                          struct cost *);
/* The exchange with the twin in every step, for `tokens` own tokens. */
void cost_add_twin(const struct problem *, const struct strategy *, size_t tokens, struct cost *);
/* Elements of one whole hidden state (A in docs/strategies.md, in elements). */
size_t problem_hidden_elements(const struct problem *);

#endif
