/* The options of a point that do not belong to a strategy. */
#include "bench/point.h"

#include <limits.h>
#include <stdint.h>

#define MAX_SEED 9007199254740992.0 /* 2^53: exact in a double and in JSON */

const struct option point_opt_model = {
    .name = "model", .type = OPTION_TEXT, .fallback = "models/dit-fashion.safetensors",
    .help = "a .safetensors file, a folder with config.json and diffusion_pytorch_model.safetensors, "
            "or a preset with random weights (bench list models)"};
const struct option point_opt_resolution = {
    .name = "resolution", .type = OPTION_EXTENT, .fallback = "32", .min = 1, .max = 1 << 16,
    .unit = "pixels", .help = "size of the image; the latent is this over the model's vae_factor",
    .is_identity = true};
const struct option point_opt_frames = {
    .name = "frames", .type = OPTION_INT, .fallback = "1", .min = 1, .max = 1 << 16,
    .unit = "frames", .help = "frames of a video model", .is_identity = true};
const struct option point_opt_steps = {
    .name = "steps", .type = OPTION_INT, .fallback = "20", .min = 1, .max = 1000,
    .unit = "steps", .help = "denoising steps (DDIM)", .is_identity = true};
const struct option point_opt_class = {
    .name = "class", .type = OPTION_INT, .fallback = "0", .min = 0, .max = INT_MAX,
    .help = "class to draw", .is_identity = true};
const struct option point_opt_cfg_scale = {
    .name = "cfg-scale", .type = OPTION_REAL, .fallback = "1", .min = -1000, .max = 1000,
    .help = "classifier-free guidance; 1 runs the conditional half alone", .is_identity = true};
const struct option point_opt_seed = {
    .name = "seed", .type = OPTION_INT, .fallback = "0", .min = 0, .max = MAX_SEED,
    .help = "of the start noise and of a preset's weights", .is_identity = true};
const struct option point_opt_init = {
    .name = "init", .type = OPTION_TEXT, .fallback = "",
    .help = "a safetensors file whose tensor x_T is the start noise"};
const struct option point_opt_strategy = {
    .name = "strategy", .type = OPTION_TEXT, .fallback = "serial",
    .help = "how the ranks share the work (bench list strategies)", .is_identity = true};
const struct option point_opt_gpus = {
    .name = "gpus", .type = OPTION_INT, .fallback = "1", .min = 1, .max = COMM_MAX_RANKS,
    .unit = "ranks", .help = "number of ranks", .is_identity = true};
const struct option point_opt_cfg_degree = {
    .name = "cfg-degree", .type = OPTION_INT, .fallback = "1", .min = 1, .max = 2,
    .help = "2: the halves of guidance on two groups of ranks", .is_identity = true};
const struct option point_opt_device = {
    .name = "device", .type = OPTION_TEXT, .fallback = "",
    .help = "arithmetic (bench list devices); default: the first of that list", .is_identity = true};
const struct option point_opt_transport = {
    .name = "transport", .type = OPTION_TEXT, .fallback = "",
    .help = "communication (bench list transports); default: the first that fits the device",
    .is_identity = true};
const struct option point_opt_platform = {
    .name = "platform", .type = OPTION_TEXT, .fallback = "",
    .help = "what device sim simulates, which it chooses: a name (bench list platforms) or a file",
    .is_identity = true};
static const char *const dtypes[] = {"fp32", "bf16", "fp16", NULL};
const struct option point_opt_dtype = {
    .name = "dtype", .type = OPTION_CHOICE, .fallback = "fp32", .choices = dtypes,
    .help = "weights, activations and messages", .is_identity = true};
const struct option point_opt_threads = {
    .name = "threads", .type = OPTION_INT, .fallback = "1", .min = 1, .max = 1024,
    .unit = "threads", .help = "threads of one rank's arithmetic"};
static const char *const modes[] = {"full", "compute", "comm", "all", NULL};
const struct option point_opt_mode = {
    .name = "mode", .type = OPTION_CHOICE, .fallback = "full", .choices = modes,
    .help = "time everything, the arithmetic alone, the communication alone, or all three in turn "
            "(which gives the overlap)",
    .is_identity = true};
const struct option point_opt_heads = {
    .name = "heads", .type = OPTION_INT, .fallback = "", .min = 1, .max = 4096,
    .help = "attention heads of a model whose file does not say", .is_identity = true};
const struct option point_opt_patch = {
    .name = "patch", .type = OPTION_INT, .fallback = "", .min = 1, .max = 64,
    .help = "patch size of a model whose file does not say", .is_identity = true};
const struct option point_opt_vae_factor = {
    .name = "vae-factor", .type = OPTION_INT, .fallback = "", .min = 1, .max = 64,
    .help = "pixels per latent pixel of a model whose file does not say", .is_identity = true};
const struct option point_opt_classes = {
    .name = "classes", .type = OPTION_INT, .fallback = "", .min = 1, .max = 1 << 20,
    .help = "classes of a model whose file does not say", .is_identity = true};
static const char *const kinds[] = {"auto", "dit", "video", NULL};
const struct option point_opt_kind = {
    .name = "kind", .type = OPTION_CHOICE, .fallback = "auto", .choices = kinds,
    .help = "image or video model, where the file does not say", .is_identity = true};
const struct option point_opt_warmup_runs = {
    .name = "warmup-runs", .type = OPTION_INT, .fallback = "1", .min = 0, .max = 1000,
    .unit = "runs", .help = "untimed runs before the timed ones"};
const struct option point_opt_repeat = {
    .name = "repeat", .type = OPTION_INT, .fallback = "7", .min = 0, .max = 100000,
    .unit = "runs", .help = "timed runs; 0: only the run that gives the output error"};
const struct option point_opt_timeout = {
    .name = "timeout", .type = OPTION_REAL, .fallback = "60", .min = 0.05, .max = 86400,
    .unit = "s", .help = "without progress of any rank before the point fails"};
const struct option point_opt_reference = {
    .name = "reference", .type = OPTION_TEXT, .fallback = "auto",
    .help = "auto: serial is run for the output error; none: no error; or a file of --dump"};

static const struct option *const universal[] = {
    &point_opt_model, &point_opt_resolution, &point_opt_frames, &point_opt_steps, &point_opt_class,
    &point_opt_cfg_scale, &point_opt_seed, &point_opt_init, &point_opt_strategy, &point_opt_gpus,
    &point_opt_cfg_degree, &point_opt_device, &point_opt_transport, &point_opt_platform,
    &point_opt_dtype, &point_opt_threads, &point_opt_mode, &point_opt_heads, &point_opt_patch,
    &point_opt_vae_factor, &point_opt_classes, &point_opt_kind, &point_opt_warmup_runs,
    &point_opt_repeat, &point_opt_timeout, &point_opt_reference, NULL,
};

static bool is_in(const struct option *const *table, const struct option *option)
{
    for (; table && *table; table++)
        if (*table == option)
            return true;
    return false;
}

enum status point_options_init(struct option_set *set)
{
    *set = (struct option_set){0};
    TRY(option_set_add(set, universal));
    for (const struct strategy *const *s = strategy_list(); *s; s++)
        if ((*s)->options)
            TRY(option_set_add(set, (*s)->options));
    return OK;
}

bool point_uses(const struct option_set *set, const struct option *option)
{
    const struct strategy *strategy = strategy_find(option_text(set, &point_opt_strategy));
    if (!is_in(universal, option))
        return strategy && is_in(strategy->options, option);
    if (option == &point_opt_platform)
        return option_text(set, option)[0] != 0;
    return true;
}
